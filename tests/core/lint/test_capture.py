"""Captured exchanges in, the linter's JSON out."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.lint.capture import exchange_from_capture, read_capture
from tollgauge.core.lint.diagnosis import diagnose
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer, Exchange

V1_BODY = {
    "x402Version": 1,
    "accepts": [
        {
            "scheme": "exact",
            "network": "base",
            "maxAmountRequired": "10000",
            "resource": "https://a.example.com/x",
            "description": "x",
            "payTo": "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
            "maxTimeoutSeconds": 60,
            "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
            "extra": {"name": "USD Coin", "version": "2"},
        }
    ],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["status", "headers", "body", "url", "method", "x"]), inner, max_size=5
        )
    ),
)


def answer_of(exchange: Exchange) -> Answer:
    assert isinstance(exchange.result, Answer)
    return exchange.result


def test_header_names_come_in_any_case_and_as_pairs_or_mapping() -> None:
    mapping = exchange_from_capture({"status": 402, "headers": {"X-A": "1", "x-b": ["2", "3"]}})
    pairs = exchange_from_capture(
        {"status": 402, "headers": [["x-a", "1"], ["X-B", "2"], ["X-b", "3"]]}
    )
    assert answer_of(mapping).headers == (("x-a", "1"), ("x-b", "2"), ("x-b", "3"))
    assert answer_of(pairs).headers == answer_of(mapping).headers


def test_body_is_a_string_json_or_null() -> None:
    as_text = exchange_from_capture({"status": 402, "body": json.dumps(V1_BODY)})
    as_json = exchange_from_capture({"status": 402, "body": V1_BODY})
    assert lint(as_text) == lint(as_json)
    assert lint(as_json).payable
    assert answer_of(exchange_from_capture({"status": 402, "body": None})).body == b""


def test_url_and_method_may_be_missing() -> None:
    bare = exchange_from_capture({"status": 402, "body": V1_BODY})
    assert (bare.url, bare.method) == ("", "")
    full = exchange_from_capture(
        {"status": 402, "body": V1_BODY, "url": "https://b.example.com/x", "method": "post"}
    )
    assert full.method == "POST"
    assert "resource-mismatch" in {finding.rule for finding in lint(full).findings}


@pytest.mark.parametrize(
    "capture",
    [
        None,
        [],
        "402",
        {},
        {"status": "402.5"},
        {"status": "4020"},
        {"status": "٤٠٢"},
        {"status": True},
        {"status": 42},
        {"status": 402, "headers": "a: b"},
        {"status": 402, "headers": [["a"]]},
        {"status": 402, "headers": {"a": 1}},
        {"status": 402, "headers": [[1, "b"]]},
        {"status": 402, "body": 5},
        {"status": 402, "body": {"a": 2**70}},
        {"status": 402, "url": 5},
        {"status": 402, "method": []},
    ],
)
def test_malformed_capture_is_refused_with_a_hint(capture: object) -> None:
    with pytest.raises(TollgaugeError) as caught:
        exchange_from_capture(capture)
    assert "status" in caught.value.hint


@pytest.mark.parametrize("status", ["402", " 402 ", "402 Payment Required"])
def test_status_may_be_a_text(status: str) -> None:
    exchange = exchange_from_capture({"status": status, "body": V1_BODY})
    assert answer_of(exchange).status == 402
    assert lint(exchange).payable


HEADERS = "Content-Type: application/json\nX-Twice: 1\nx-twice: 2\nX-Empty:\nLong: a\n  b"
EARLIER = {
    "nothing": "",
    "continue": "HTTP/1.1 100 Continue\n\n",
    "proxy": "HTTP/1.0 200 Connection established\nVia: proxy\n\n",
    "redirects": "HTTP/1.1 301 Moved\nLocation: /x\n\nHTTP/2 302 \nlocation: /y\n\n",
    "hints": "HTTP/2 103 \nlink: </a>\n\n",
}


@pytest.mark.parametrize("earlier", EARLIER)
@pytest.mark.parametrize("status", ["HTTP/1.1 402 Payment Required", "HTTP/2 402 ", "HTTP/3 402"])
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_reads_curl_output_and_uses_the_last_head(earlier: str, status: str, end: str) -> None:
    head = f"{EARLIER[earlier]}{status}\n{HEADERS}\n\n".replace("\n", end)
    body = json.dumps(V1_BODY, indent=1).encode()
    exchange = read_capture(head.encode() + body)
    answer = answer_of(exchange)
    assert (answer.status, answer.body) == (402, body)
    assert answer.headers == (
        ("content-type", "application/json"),
        ("x-twice", "1"),
        ("x-twice", "2"),
        ("x-empty", ""),
        ("long", "a b"),
    )
    assert (exchange.url, exchange.method) == ("", "")
    assert lint(exchange).payable


def test_head_without_a_body_is_read() -> None:
    for text in (b"HTTP/2 402 \r\na: b\r\n\r\n", b"HTTP/2 402 \r\na: b\r\n", b"HTTP/2 402\na: b"):
        assert answer_of(read_capture(text)).headers == (("a", "b"),)
        assert answer_of(read_capture(text)).body == b""


def test_body_keeps_its_bytes() -> None:
    body = b"\xff\x00\r\n\r\nHTTP is what this says\n"
    assert answer_of(read_capture(b"HTTP/1.1 402 X\r\n\r\n" + body)).body == body


def test_white_space_before_it_changes_nothing() -> None:
    as_json = json.dumps({"status": 402, "body": V1_BODY}).encode()
    as_http = b"HTTP/1.1 402 Payment Required\r\n\r\n" + json.dumps(V1_BODY).encode()
    for text in (as_json, as_http):
        assert lint(read_capture(b"\r\n  " + text)).payable


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"HTTP",
        b"HTTP/1.1",
        b"HTTP/1.1 4020 X\r\n\r\n",
        b"HTTP/1.1 042 X\r\n\r\n",
        b"HTTP/1.1 402 X\r\nno colon\r\n\r\n",
        b"HTTP/1.1 402 X\r\n folded: before any\r\n\r\n",
        b"> GET / HTTP/1.1\r\n\r\n",
        b"[" * 100_000,
    ],
)
def test_rejects_input_that_is_neither_json_nor_http_with_a_hint(text: bytes) -> None:
    with pytest.raises(TollgaugeError) as caught:
        read_capture(text)
    assert "curl -i" in caught.value.hint


@given(st.binary(max_size=80) | st.builds(lambda tail: b"HTTP/1.1 402\r\n" + tail, st.binary()))
def test_any_bytes_are_either_read_or_refused(data: bytes) -> None:
    try:
        exchange = read_capture(data)
    except TollgaugeError:
        return
    assert diagnose(exchange, lint(exchange))


@given(JSON | st.fixed_dictionaries({"status": st.just(402), "headers": JSON, "body": JSON}))
def test_anything_is_either_read_or_refused(capture: Any) -> None:
    try:
        exchange = exchange_from_capture(capture)
    except TollgaugeError:
        return
    assert diagnose(exchange, lint(exchange))


V2_ENVELOPE: dict[str, Any] = {
    "x402Version": 2,
    "resource": {"url": "https://a.example.com/x", "description": "x"},
    "accepts": [
        {
            "scheme": "exact",
            "network": "eip155:8453",
            "amount": "10000",
            "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
            "payTo": "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
            "maxTimeoutSeconds": 60,
            "extra": {"name": "USD Coin", "version": "2"},
        }
    ],
}
HEADER = base64.b64encode(json.dumps(V2_ENVELOPE).encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        HEADER,
        f"  {HEADER}\n",
        f"PAYMENT-REQUIRED: {HEADER}",
        f"payment-required : {HEADER}\r\ncache-control: no-store\r\n",
        f"Payment-Required: {HEADER[:60]}\n{HEADER[60:]}",
        json.dumps(V2_ENVELOPE),
        json.dumps(V2_ENVELOPE, indent=2),
    ],
)
def test_bare_envelope_is_read_with_correct_headers(text: str) -> None:
    judged = lint(read_capture(text.encode()))
    assert {finding.rule for finding in judged.findings} <= {"bazaar-absent", "header-whitespace"}
    assert (judged.payable, judged.version, judged.terms[0].amount) == (True, 2, 10_000)


@pytest.mark.parametrize("version", [1, "1"])
def test_bare_version_1_envelope_is_read_as_a_body(version: object) -> None:
    judged = lint(read_capture(json.dumps(V1_BODY | {"x402Version": version}).encode()))
    assert judged.version == 1
    assert "v1-only" in {finding.rule for finding in judged.findings}


def test_body_with_a_status_member_is_an_envelope_and_not_an_exchange() -> None:
    assert lint(read_capture(json.dumps(V1_BODY | {"status": 402}).encode())).payable


def test_requirements_without_an_envelope_are_called_so_in_each_form() -> None:
    (bare,) = V2_ENVELOPE["accepts"]
    encoded = base64.b64encode(json.dumps(bare).encode()).decode()
    for text in (json.dumps(bare), encoded, f"payment-required: {encoded}"):
        judged = lint(read_capture(text.encode()))
        assert [finding.rule for finding in judged.findings] == ["header-requirements"], text


def test_named_header_is_linted_with_any_content() -> None:
    rules = {
        finding.rule for finding in lint(read_capture(b"payment-required: {not base64}")).findings
    }
    assert "header-base64" in rules


@pytest.mark.parametrize("text", ["hello", "402", "bm90IGpzb24=", "payment required", "{", ""])
def test_text_in_no_known_form_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(TollgaugeError) as caught:
        read_capture(text.encode())
    assert "curl -i" in caught.value.hint
    assert "PAYMENT-REQUIRED" in caught.value.hint


@given(st.binary(max_size=200))
def test_any_bytes_are_an_exchange_or_refused(text: bytes) -> None:
    with contextlib.suppress(TollgaugeError):
        assert isinstance(read_capture(text), Exchange)
