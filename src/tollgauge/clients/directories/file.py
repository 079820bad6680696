"""A directory in a file: a crawl, a page or an OpenAPI document as JSON, or one of the texts that
clients/directories/lines reads; each may be gzipped.

Rules:
- the content determines the format, not the file's name;
- a line that cannot be read becomes a SkippedItem;
- a file is complete unless it states `partial` or a larger total than it contains;
- a JSON list, and JSON lines, may be larger than memory: the file is read once to determine its
  format, and again for its entries. Of truncated JSON, the complete entries are read.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tollgauge.clients.directories import lines, openapi
from tollgauge.clients.directories.document import (
    STEP_SIZE,
    VALUE_MAX,
    DirectoryError,
    NotJsonError,
    Outline,
    Step,
    looks_like_json,
    parse_document,
    read_items,
    read_outline,
)
from tollgauge.core.base.text import clean_text
from tollgauge.core.directory.listing import EXCERPT_MAX, SkippedItem
from tollgauge.core.directory.page import LISTS, DirectoryPage, is_page, iterate_entries, read_page
from tollgauge.core.lint.parsing import members

SIZE_MAX: Final = 1024 * 1024 * 1024
"""Maximum unpacked size of a file in bytes; that of a text other than JSON is VALUE_MAX."""
Stamp = tuple[int, ...]
_Reopen = Callable[[], io.BufferedReader]
_HEAD: Final = 1_024
_CHUNK: Final = 64 * 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFile:
    """The content of a directory file.

    Attributes:
        items: Its entries, groups opened; may be iterated repeatedly.
        count: Number of entries.
        complete: Whether they are all entries of its directory.
        origin: The URL where the file states that it was read, or the base of its entries.
        taken_at: The time that the file states for its content (ms UTC).
        problem: Where a truncated file ends; empty otherwise.
    """

    items: Iterable[object]
    count: int
    complete: bool
    origin: str | None = None
    taken_at: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Reread:
    """Items that are read from a file at each iteration."""

    read: Callable[[], Iterator[object]]

    def __iter__(self) -> Iterator[object]:
        return self.read()


async def steps(listing: DirectoryFile) -> AsyncGenerator[Step, None]:
    """Yield a file's entries in steps of STEP_SIZE, each with the total. Raises DirectoryError if
    the file changed since it was read.
    """
    entries, count, end = iter(listing.items), listing.count, 0
    while True:
        items = await asyncio.to_thread(lambda: tuple(islice(entries, STEP_SIZE)))
        end += len(items)
        if end < count and not items:
            raise DirectoryError("The file changed while it was read.")
        complete = listing.complete if end == count else None
        yield Step(page=DirectoryPage(items=items, total=count, complete=complete), next_offset=end)
        if end >= count:
            return


def read(path: Path, *, size_max: int = SIZE_MAX) -> DirectoryFile:
    """Return the content of a file. Raises DirectoryError if it cannot be read, unpacks to more
    than `size_max` bytes, or has no list of entries.
    """
    stamp = _stamp(path)
    with _open_file(path, size_max=size_max) as file:
        head = file.peek(_HEAD)
        if not looks_like_json(head) or lines.starts_with_link(head[:_HEAD]):
            items = lines.read(_text(file, path), name=path.name)
            return DirectoryFile(items=items, count=len(items), complete=True)
        try:
            outline = read_outline(file)
        except NotJsonError as error:
            problem = error
        else:
            reopen = partial(_open_file, path, size_max=size_max, stamp=stamp)
            return _read_document(outline, path.name, reopen)
    json_lines = partial(_json_lines, path, size_max=size_max, stamp=stamp)
    count = readable = 0
    for item in json_lines():
        count += 1
        readable += not isinstance(item, SkippedItem)
    if not readable:
        raise problem
    return DirectoryFile(items=_Reread(json_lines), count=count, complete=True)


def _read_document(outline: Outline, name: str, reopen: _Reopen) -> DirectoryFile:
    """Return the content of a JSON document; of a truncated one, its complete entries."""
    if outline.ends_at is None:
        return _list_document(outline, name, reopen)
    cut = DirectoryError(
        f"The JSON ends early at line {outline.ends_at}.",
        hint="Save the whole document again.",
    )
    try:
        listing = _list_document(outline, name, reopen)
    except DirectoryError:
        raise cut from None
    if not listing.count:
        raise cut
    problem = f"{cut} Its complete entries are listed; nothing is delisted."
    return replace(listing, complete=False, problem=problem)


def _list_document(outline: Outline, name: str, reopen: _Reopen) -> DirectoryFile:
    document = outline.document
    if openapi.is_openapi(document):
        return _openapi(members(document), name=name)
    if not is_page(document):
        if isinstance(document, dict) and ({"resource", "url"} & document.keys()):
            entries = tuple(iterate_entries((document,), base=""))
            return DirectoryFile(items=entries, count=len(entries), complete=True)
        raise DirectoryError(
            f"The JSON of {name} has no list of entries.",
            hint=f"It should be an array, an object with one of {', '.join(LISTS)}, or OpenAPI.",
        )
    page = read_page(document)
    items: Iterable[object] = tuple(iterate_entries(page.items, base=page.base))
    item_count = len(page.items)
    lists = {"": document} if isinstance(document, list) else document
    for list_name, item_count_of in outline.counts.items():
        held = lists.get(list_name)
        if held and page.items and page.items[0] is held[0]:
            item_count = item_count_of
            items = _Reread(partial(_entries, list_name, page.base, reopen))
    count = sum(1 for _ in items)
    whole = page.total is None or page.total <= max(count, item_count)
    return DirectoryFile(
        items=items,
        count=count,
        complete=whole and page.complete is not False,
        origin=page.origin or page.base or None,
        taken_at=page.taken_at,
    )


def _entries(name: str, base: str, reopen: _Reopen) -> Iterator[object]:
    """Yield the entries of a list of a JSON document."""
    with reopen() as file:
        yield from iterate_entries(read_items(file, name), base=base)


def _json_lines(path: Path, *, size_max: int, stamp: Stamp) -> Iterator[object]:
    """Yield the entries of JSON objects, one per line."""
    with _open_file(path, size_max=size_max, stamp=stamp) as file:
        while text := file.readline(VALUE_MAX):
            for line in text.splitlines():
                if line.strip():
                    yield from iterate_entries((_json_line(line),), base="")


def _json_line(line: bytes) -> object:
    try:
        return parse_document(line)
    except DirectoryError:
        excerpt = clean_text(line[:EXCERPT_MAX].decode("utf-8", "replace"), EXCERPT_MAX)
        return SkippedItem(reason="unreadable", excerpt=excerpt)


def _openapi(document: Mapping[str, object], *, name: str) -> DirectoryFile:
    origin = openapi.find_server(document)
    if origin is None:
        raise DirectoryError(
            f"{name} is an OpenAPI document without a server, so its paths have no host.",
            hint='Add the server: "servers": [{"url": "https://…"}].',
        )
    items = openapi.from_openapi(document, origin)
    if not openapi.sells(items):
        raise DirectoryError(
            f"{name} is an OpenAPI document in which no operation is for sale "
            f"({len(items)} marked as free).",
            hint="An operation for sale has x-payment-info, or declares the response 402.",
        )
    whole, opened_items = openapi.is_whole(items), tuple(iterate_entries(items, base=""))
    return DirectoryFile(items=opened_items, count=len(opened_items), complete=whole, origin=origin)


def _text(file: io.BufferedReader, path: Path) -> bytes:
    data = file.read(VALUE_MAX + 1)
    if len(data) > VALUE_MAX:
        raise _too_large(path.name, VALUE_MAX)
    return data


def _open_file(path: Path, *, size_max: int, stamp: Stamp | None = None) -> io.BufferedReader:
    """Open a file, unpacked. Opening and reading raise DirectoryError; so does a file that changed
    since it had the given `stamp`.
    """
    if stamp is not None and _stamp(path) != stamp:
        raise DirectoryError(f"{path.name} changed while it was read.")
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        source = gzip.open(path, "rb") if packed else path.open("rb")  # noqa: SIM115 - closed by its reader
    except OSError as error:
        raise DirectoryError(f"{path.name} cannot be read: {error.strerror}.") from error
    return io.BufferedReader(_Capped(source, path.name, size_max), buffer_size=_CHUNK)


def _stamp(path: Path) -> Stamp:
    """Return values that change when a file is written. Raises DirectoryError."""
    try:
        stat = path.stat()
    except OSError as error:
        raise DirectoryError(f"{path.name} cannot be read: {error.strerror}.") from error
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class _Capped(io.RawIOBase):
    """The bytes of a file, at most `size_max`. Reading raises DirectoryError."""

    def __init__(self, source: Any, name: str, size_max: int) -> None:
        super().__init__()
        self._source, self._name = source, name
        self._size_max = self._left = size_max

    def readable(self) -> bool:
        """The file can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; 0 at the end."""
        try:
            count: int = self._source.readinto(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DirectoryError(f"{self._name} is not a complete gzip file.") from error
        except OSError as error:
            raise DirectoryError(f"{self._name} cannot be read: {error.strerror}.") from error
        self._left -= count
        if self._left < 0:
            raise _too_large(self._name, self._size_max)
        return count

    def close(self) -> None:
        """Close the file."""
        self._source.close()
        super().close()


def _too_large(name: str, size_max: int) -> DirectoryError:
    return DirectoryError(
        f"{name} unpacks to more than {size_max} bytes.", hint="Split it into parts."
    )
