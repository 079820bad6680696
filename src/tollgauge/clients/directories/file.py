"""A directory in a file: a crawl or a page as JSON (also gzipped), CSV, or one URL a line.

Rules: the content decides the format, not the file's name; a line that cannot be read becomes an
entry that says so; a file is whole unless it says `partial` or names a total that it does not hold.
Blank lines and lines that start with `#` are no entries.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import zlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tollgauge.clients.directories.document import (
    DirectoryError,
    Step,
    looks_like_json,
    parse_document,
)
from tollgauge.core.listing import SkippedItem
from tollgauge.core.page import Page, is_page, read_page
from tollgauge.core.text import clean_text

SIZE_MAX: Final = 64 * 1024 * 1024
"""The largest file that is read, unpacked, in bytes."""
STEP: Final = 500
_URL_COLUMNS: Final = ("resource", "url", "endpoint")
_EXCERPT: Final = 80


async def pages(path: Path, *, size_max: int = SIZE_MAX) -> AsyncGenerator[Step, None]:
    """The entries of a file in steps of STEP. Raises DirectoryError as `read` does."""
    whole = await asyncio.to_thread(read, path, size_max=size_max)
    for start in range(0, max(len(whole.items), 1), STEP):
        end = min(start + STEP, len(whole.items))
        last = end == len(whole.items)
        part = replace(
            whole, items=whole.items[start:end], complete=whole.complete if last else None
        )
        yield Step(page=part, next_offset=end)


def read(path: Path, *, size_max: int = SIZE_MAX) -> Page:
    """The file as one page whose `complete` is known. Raises DirectoryError when the file cannot
    be read, unpacks to more than `size_max` bytes, or holds no list of entries.
    """
    data = _bytes(path, size_max=size_max)
    page = _json_page(data) if looks_like_json(data) else Page(items=_text_items(data))
    if not page.items and not looks_like_json(data):
        raise DirectoryError(f"{path.name} holds no entries.", hint="Write one URL a line.")
    held = page.total is None or page.total <= len(page.items)
    return replace(page, complete=held and page.complete is not False)


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


def _json_page(data: bytes) -> Page:
    """A JSON document, or one JSON object a line."""
    try:
        document = parse_document(data)
    except DirectoryError:
        items = tuple(_json_line(line) for line in data.splitlines() if line.strip())
        if all(isinstance(item, SkippedItem) for item in items):
            raise
        return Page(items=items)
    if not is_page(document):
        if isinstance(document, dict) and ({"resource", "url"} & document.keys()):
            return Page(items=(document,))
        raise DirectoryError(
            "The JSON holds no list of entries.",
            hint="It should be an array, or an object with `items` or `resources`.",
        )
    return read_page(document)


def _json_line(line: bytes) -> object:
    try:
        return parse_document(line)
    except DirectoryError:
        excerpt = clean_text(line[:_EXCERPT].decode("utf-8", "replace"), _EXCERPT)
        return SkippedItem(reason="unreadable", excerpt=excerpt)


def _text_items(data: bytes) -> tuple[object, ...]:
    text = data.decode("utf-8-sig", "replace").replace("\x00", "")
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    header = next(csv.reader(lines[:1]), [])
    names = [name.strip().lower() for name in header]
    if any(column in names for column in _URL_COLUMNS):
        return _rows(lines[1:], tuple(names))
    return tuple(
        line.split(",", 1)[0] if "://" in line.split(",", 1)[0] else line for line in lines
    )


def _rows(lines: list[str], names: tuple[str, ...]) -> tuple[object, ...]:
    """CSV rows as entries: the URL column, and `method`, `description`, `service`, `tags`."""
    items: list[object] = []
    for line in lines:
        try:
            row = dict(zip(names, next(csv.reader(io.StringIO(line)), []), strict=False))
        except csv.Error:
            items.append(SkippedItem(reason="unreadable", excerpt=clean_text(line, _EXCERPT)))
            continue
        entry: dict[str, object] = {
            "resource": next((row[name] for name in _URL_COLUMNS if row.get(name)), ""),
            "method": row.get("method"),
            "description": row.get("description"),
            "serviceName": row.get("servicename") or row.get("service") or row.get("name"),
            "tags": [tag for tag in row.get("tags", "").replace(";", "|").split("|") if tag],
        }
        items.append(entry)
    return tuple(items)
