"""Conditional requests and requests for a part of a file (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from email.utils import formatdate, parsedate_to_datetime
from typing import Final

from starlette.datastructures import Headers

from tollgauge.core.base.units import SECOND_MS

_RANGE: Final = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.ASCII)


def names_tag(if_none_match: bytes, etag: bytes) -> bool:
    """Whether an `If-None-Match` names an entity tag, by weak comparison, or any (`*`)."""
    tags = [tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")]
    return etag in tags or tags == [b"*"]


def http_date(instant: int) -> str:
    """An instant (ms UTC) as `Last-Modified` has it, in whole seconds."""
    return formatdate(instant // SECOND_MS, usegmt=True)


def is_unmodified(headers: Headers, *, etag: str, modified: int) -> bool:
    """Whether a client has what was last modified at an instant (ms UTC). A date counts where it
    sends no `If-None-Match`.
    """
    tags = headers.get("if-none-match")
    if tags is not None:
        return names_tag(tags.encode("latin-1"), etag.encode("latin-1"))
    since = _seconds(headers.get("if-modified-since", ""))
    return since is not None and modified // SECOND_MS <= since


def asked_range(headers: Headers, size: int, *, etag: str, modified: int) -> range | None:
    """The positions of the bytes that a request asks for, of a file of `size` bytes; empty where
    the file has none of them. None is the whole file: there is no `Range`, it is one that may be
    ignored (several ranges, another unit, a mistake), or `If-Range` names another version.
    """
    match = _RANGE.fullmatch(headers.get("range", ""))
    if match is None or not _is_version(headers.get("if-range"), etag=etag, modified=modified):
        return None
    first, last = match[1], match[2]
    if not first:
        return range(max(0, size - int(last)), size) if last else None
    stop = int(last) + 1 if last else size
    return range(int(first), min(stop, size)) if int(first) < stop or not last else None


def _is_version(if_range: str | None, *, etag: str, modified: int) -> bool:
    return if_range is None or if_range == etag or if_range == http_date(modified)


def _seconds(date: str) -> float | None:
    """The unix seconds of an HTTP date, None for what is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
