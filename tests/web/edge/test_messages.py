"""Conditional requests and ranges, by the examples of RFC 9110."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from tollgauge.web.edge.messages import http_date, is_unmodified, requested_range

ETAG = '"abc"'
MODIFIED = 784_111_777_000
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
SIZE = 10_000


def make_request(value: str, if_range: str | None = None) -> range | None:
    headers = {"range": value} | ({} if if_range is None else {"if-range": if_range})
    return requested_range(Headers(headers), SIZE, etag=ETAG, modified=MODIFIED)


def test_date_is_formatted_for_http() -> None:
    assert http_date(MODIFIED + 999) == DATE


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("bytes=0-499", range(500)),
        ("bytes=500-999", range(500, 1_000)),
        ("bytes=-500", range(9_500, 10_000)),
        ("bytes=9500-", range(9_500, 10_000)),
        ("bytes=0-0", range(1)),
        ("bytes=9999-123456", range(9_999, 10_000)),
        ("bytes=-99999", range(10_000)),
        ("bytes=0-", range(10_000)),
    ],
)
def test_valid_range_is_parsed(value: str, part: range) -> None:
    assert make_request(value) == part


@pytest.mark.parametrize("value", ["bytes=10000-", "bytes=10000-10001", "bytes=-0"])
def test_range_beyond_the_file_is_empty(value: str) -> None:
    assert make_request(value) == range(0)


@pytest.mark.parametrize(
    "value",
    [
        *("", "bytes=", "bytes=-", "bytes=5-4", "bytes=0-1,5-6", "lines=0-1", "bytes=a-b"),
        *("bytes 0-1", "bytes=0x1-2", "bytes=+1-2", f"bytes=0-{'9' * 30}"),
    ],
)
def test_invalid_range_is_ignored(value: str) -> None:
    assert make_request(value) is None


@pytest.mark.parametrize(
    ("if_range", "part"),
    [
        *((ETAG, range(5)), (DATE, range(5)), (f"W/{ETAG}", None), ('"other"', None)),
        *(("Sun, 06 Nov 1994 08:49:38 GMT", None), ("", None)),
    ],
)
def test_range_of_another_version_is_ignored(if_range: str, part: range | None) -> None:
    assert make_request("bytes=0-4", if_range) == part


@pytest.mark.parametrize(
    ("headers", "unmodified"),
    [
        ({}, False),
        ({"if-none-match": ETAG}, True),
        ({"if-none-match": f"W/{ETAG}"}, True),
        ({"if-none-match": f'"other", {ETAG}'}, True),
        ({"if-none-match": "*"}, True),
        ({"if-none-match": '"other"'}, False),
        ({"if-modified-since": DATE}, True),
        ({"if-modified-since": "Sun, 06 Nov 1994 08:49:36 GMT"}, False),
        ({"if-modified-since": "yesterday"}, False),
        ({"if-modified-since": ""}, False),
        ({"if-none-match": '"other"', "if-modified-since": DATE}, False),
    ],
)
def test_current_version_is_unmodified(headers: dict[str, str], unmodified: bool) -> None:
    assert is_unmodified(Headers(headers), etag=ETAG, modified=MODIFIED) is unmodified
