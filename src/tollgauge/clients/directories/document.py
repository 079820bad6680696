"""Shared by directory clients: a step of a crawl, the error of a source, tolerant JSON readers.

A directory is untrusted. One odd text (lone surrogates, NaN, very long numbers) must not stop a
crawl, and depth is checked before parsing. Documents of any size are read with ijson: an outline
first, then the items of one list. Memory is bounded by VALUE_MAX: only the first item of each list
is held with the outline. A truncated document is read up to its end. Bytes that are not UTF-8
become U+FFFD. core/directory interprets the entries.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, BinaryIO, Final

import ijson
from ijson.common import ObjectBuilder

from tollgauge.clients.egress.client import Egress, RequestError
from tollgauge.clients.egress.request import Request
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.strictjson import depth
from tollgauge.core.directory.page import LISTS, DirectoryPage
from tollgauge.core.endpoint.identity import ResourceError
from tollgauge.core.probe.exchange import Answer, Fault

DEPTH_MAX: Final = 200
STEP_SIZE: Final = 1_000
"""Entries per transaction. Each transaction writes most pages of a large database's indexes, so
smaller ones cost more; larger ones would delay other writers.
"""
_DIGITS_MAX: Final = 400


class DirectoryError(TollgaugeError):
    """A source could not be read completely. The message states the position and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One page of a crawl. A crawl that stops after it continues at `next_offset`; `page.complete`
    of the last step states whether the whole listing was read.
    """

    page: DirectoryPage
    next_offset: int


async def ask(egress: Egress, url: str, *, at: int) -> Answer | Fault:
    """Return the result of a GET of a directory's URL. Raises DirectoryError for a URL that egress
    refuses, because directories must have public https URLs.
    """
    request = Request(url=url, method="GET", headers=(("accept", "application/json"),))
    try:
        return (await egress.fetch(request, at=at)).result
    except (ResourceError, RequestError) as error:
        raise DirectoryError(f"The source's URL is not allowed: {error}") from error


def parse_document(data: bytes) -> object:
    """Return the value of a JSON text. Raises DirectoryError for any other text, or one nested
    deeper than DEPTH_MAX.
    """
    if depth(data) > DEPTH_MAX:
        raise DirectoryError(f"The JSON is nested deeper than {DEPTH_MAX} levels.")
    try:
        return json.loads(data.decode("utf-8-sig", "replace"), parse_int=integer)
    except (ValueError, RecursionError) as error:
        raise DirectoryError("The text is not JSON.") from error


def looks_like_json(data: bytes) -> bool:
    """Return whether a text starts like a JSON object or array."""
    return data[:64].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def integer(text: str) -> int | float:
    """Return the integer in a text, or infinity if it has more digits than Python converts."""
    return int(text) if len(text) <= _DIGITS_MAX else float("inf")


VALUE_MAX: Final = 64 * 1024 * 1024  # bytes of one item, or of one member that is not a list
_CHUNK: Final = 64 * 1024
_PARTS: Final = frozenset({*LISTS, "paths"})  # members whose entries count without their end
_STARTS: Final = frozenset({"start_map", "start_array"})
_ENDS: Final = frozenset({"end_map", "end_array"})


class NotJsonError(DirectoryError):
    """A text that is not JSON, or is nested too deep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A JSON document in which each list of entries has only its first item.

    `counts` are the items of each list, by the member's name; "" is the document itself. `ends_at`
    is the line where the document ends early.
    """

    document: Any
    counts: Counter[str]
    ends_at: int | None = None


def read_outline(file: BinaryIO) -> Outline:
    """Read a document to its end, holding only the first item of each list.

    Raises:
        NotJsonError: for a text that is not JSON, or is nested deeper than DEPTH_MAX.
        DirectoryError: for a value of more than VALUE_MAX bytes.
    """
    text, builder = _JsonText(file, value_max=VALUE_MAX), ObjectBuilder()
    counts: Counter[str] = Counter()
    name, depth = "", 0
    item_depth: int | None = None  # of the items of the list that is open
    try:
        # Without the paths of ijson.parse, whose size is quadratic in the depth.
        for event, value in ijson.basic_parse(text, buf_size=_CHUNK):
            depth -= event in _ENDS
            if item_depth is not None and depth < item_depth:
                item_depth = None
            if depth == 1 and event == "map_key":
                name = value
                text.mark()
            elif depth == item_depth and event not in _ENDS:
                counts[name] += 1
                text.mark()
            if item_depth is None or counts[name] == 1:
                builder.event(event, _to_plain(value))
            depth += event in _STARTS
            if depth > DEPTH_MAX:
                raise NotJsonError(f"The JSON is nested deeper than {DEPTH_MAX} levels.")
            if event == "start_array" and (depth == 1 or (depth == 2 and name in LISTS)):
                item_depth = depth
    except (ijson.JSONError, ValueError) as error:
        if not text.ended or not depth:  # broken before its end
            raise NotJsonError("The text is not JSON.") from error
        _drop_open_entries(builder.containers)
        return Outline(document=builder.value, counts=counts, ends_at=text.line)
    return Outline(document=builder.value, counts=counts)


def read_items(file: BinaryIO, name: str) -> Iterator[object]:
    """Yield the complete items of a list in the outline; `read_outline` checks the limits."""
    text = _JsonText(file)
    try:
        for item in ijson.items(text, f"{name}.item" if name else "item", buf_size=_CHUNK):
            yield _to_plain(item)
    except ijson.JSONError:
        return  # a truncated document; the outline has its last line


def _to_plain(value: Any) -> Any:
    """Return a value with floats in place of ijson's decimals."""
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {key: _to_plain(item) for key, item in value.items()}
        case list():
            return [_to_plain(item) for item in value]
        case _:
            return value


def _drop_open_entries(containers: list[Any]) -> None:
    """Remove the incomplete entries from the open containers of a document, outermost first.

    The complete entries of an open list and of an object by paths are kept.
    """
    for outer in reversed(containers[:-1]):
        if isinstance(outer, dict):
            if next(reversed(outer)) not in _PARTS:
                outer.popitem()
        else:
            outer.pop()


class _JsonText:
    """A file for ijson: decoded as UTF-8, with a line count and a maximum size per value."""

    def __init__(self, file: BinaryIO, *, value_max: int | None = None) -> None:
        self._file, self._value_max = file, value_max
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._following = file.read(_CHUNK)
        self._unmarked = 0
        self.line = 1
        self.ended = False

    def mark(self) -> None:
        """Record that a value begins here."""
        self._unmarked = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes; empty at the end."""
        text = ""
        while size and not text and not self.ended:
            data, self._following = self._following, self._file.read(_CHUNK)
            self._unmarked += len(data)
            if self._value_max is not None and self._unmarked > self._value_max:
                raise DirectoryError(
                    f"The JSON has a value of more than {self._value_max} bytes.",
                    hint="List each endpoint as a separate entry.",
                )
            text = self._decoder.decode(data, final=not data)
            if not self._following:
                text = text.rstrip()  # a newline after the cut would be inside a string
            self.ended = not data
            self.line += text.count("\n")
        return text.encode()
