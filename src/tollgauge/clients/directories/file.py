"""A directory in a file: a crawl, a page or an OpenAPI document as JSON, or one of the texts that
clients/directories/lines reads; all of them also gzipped.

Rules: the content decides the format, not the file's name; a line that cannot be read becomes an
entry that says so; a file is whole unless it says `partial` or names a total that it does not hold.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tollgauge.clients.directories import lines, openapi
from tollgauge.clients.directories.document import (
    DirectoryError,
    Step,
    looks_like_json,
    parse_document,
)
from tollgauge.core.declared import as_mapping
from tollgauge.core.listing import EXCERPT_MAX, SkippedItem
from tollgauge.core.page import LISTS, Page, entries, is_page, read_page
from tollgauge.core.text import clean_text

SIZE_MAX: Final = 64 * 1024 * 1024
"""The largest file that is read, unpacked, in bytes."""
STEP: Final = 500


async def parts(whole: Page) -> AsyncGenerator[Step, None]:
    """A file's page in steps of STEP, each with the count of all entries."""
    count = len(whole.items)
    for start in range(0, max(count, 1), STEP):
        end = min(start + STEP, count)
        yield Step(
            page=replace(
                whole,
                items=whole.items[start:end],
                total=count,
                complete=whole.complete if end == count else None,
            ),
            next_offset=end,
        )


def read(path: Path, *, size_max: int = SIZE_MAX) -> Page:
    """The file as one page whose `complete` is known, groups opened. Raises DirectoryError when the
    file cannot be read, unpacks to more than `size_max` bytes, or holds no list of entries.
    """
    data = _bytes(path, size_max=size_max)
    if not looks_like_json(data) or lines.starts_with_link(data):
        return Page(items=lines.read(data, name=path.name), complete=True)
    page = _json_page(data, name=path.name)
    items = entries(page)
    held = page.total is None or page.total <= max(len(items), len(page.items))
    return replace(page, items=items, complete=held and page.complete is not False)


def _bytes(path: Path, *, size_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    data = unpacked.read(size_max + 1)
            else:
                data = file.read(size_max + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DirectoryError(f"{path.name} is not a whole gzip file.") from error
    except OSError as error:
        raise DirectoryError(f"{path.name} cannot be read: {error.strerror}.") from error
    if len(data) > size_max:
        raise DirectoryError(
            f"{path.name} unpacks to more than {size_max} bytes.", hint="Split it into parts."
        )
    return data


def _json_page(data: bytes, *, name: str) -> Page:
    """A JSON document, or one JSON object a line."""
    try:
        document = parse_document(data)
    except DirectoryError:
        items = tuple(_json_line(line) for line in data.splitlines() if line.strip())
        if all(isinstance(item, SkippedItem) for item in items):
            raise
        return Page(items=items)
    if openapi.is_openapi(document):
        return _openapi_page(as_mapping(document), name=name)
    if is_page(document):
        return read_page(document)
    if isinstance(document, dict) and ({"resource", "url"} & document.keys()):
        return Page(items=(document,))
    raise DirectoryError(
        f"The JSON of {name} holds no list of entries.",
        hint=f"It should be an array, an object with one of {', '.join(LISTS)}, or OpenAPI.",
    )


def _openapi_page(document: Mapping[str, object], *, name: str) -> Page:
    origin = openapi.server_of(document)
    if origin is None:
        raise DirectoryError(
            f"{name} is an OpenAPI document that names no server, so its paths are no URLs.",
            hint='Add the server: "servers": [{"url": "https://…"}].',
        )
    items = openapi.from_openapi(document, origin)
    if not openapi.sells(items):
        raise DirectoryError(
            f"{name} is an OpenAPI document in which no operation is for sale "
            f"({len(items)} marked as free).",
            hint="An operation for sale carries x-payment-info.",
        )
    return Page(items=items, origin=origin)


def _json_line(line: bytes) -> object:
    try:
        return parse_document(line)
    except DirectoryError:
        excerpt = clean_text(line[:EXCERPT_MAX].decode("utf-8", "replace"), EXCERPT_MAX)
        return SkippedItem(reason="unreadable", excerpt=excerpt)
