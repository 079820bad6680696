"""A directory as text: one URL per line, CSV, or Markdown.

Rules:
- one URL per line, also as `METHOD url`, or with a comment after a comma; blank lines and lines
  that start with `#` are ignored;
- CSV (RFC 4180, one row per line, separated by commas, semicolons or tabs) has a header with one of
  URL_COLUMNS;
- Markdown (CommonMark, and GitHub's tables): links to https URLs, and https URLs in lists and
  tables; images and fenced code are ignored.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Final

from tollgauge.clients.directories.document import DirectoryError
from tollgauge.core.base.text import clean_text
from tollgauge.core.directory.declared import read_method
from tollgauge.core.directory.listing import EXCERPT_MAX, SkippedItem

URL_COLUMNS: Final = ("resource", "url", "endpoint", "uri", "link", "href")
"""Names of the column with an entry's URL; the first one in the header is used."""

_SEPARATORS: Final = ",;\t"
_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_ROW: Final = re.compile(r"\s*(?:[-*+]\s+|\d{1,9}[.)]\s+|\|)")
_LINK: Final = re.compile(
    r"(!?)\[((?:!\[[^\]]{0,200}\]\([^)]{0,500}\)|[^\]]){0,300})\]\(\s*<?(https://[^\s)>]+)"
)
_FIRST_LINK: Final = re.compile(rb'\s*\[(?:!\[)?[^\]\n"]{1,300}\]\(')
_BARE: Final = re.compile(r"https://[^\s<>()\[\]|\"'`]+")
_METHOD: Final = re.compile(r"\b(GET|HEAD|POST|PUT|PATCH|DELETE)\b")
_YAML: Final = re.compile(r"^openapi\s*:", re.MULTILINE)


def starts_with_link(data: bytes) -> bool:
    """Return whether a text that could be a JSON array starts with a Markdown link instead."""
    return bool(_FIRST_LINK.match(data))


def read(data: bytes, *, name: str) -> tuple[object, ...]:
    """Return the entries of a text. Raises DirectoryError if it has none, or is a CSV without a URL
    column.
    """
    text = data.decode("utf-8-sig", "replace").replace("\x00", "")
    if _YAML.search(text[:4_096]):
        raise DirectoryError(
            f"{name} is an OpenAPI document in YAML, which is not supported.",
            hint="Convert it to JSON and load that.",
        )
    lines = [line for line in text.splitlines() if line.strip()]
    plain = [line.strip() for line in lines if not line.lstrip().startswith("#")]
    columns = _header(plain)
    if any(column in URL_COLUMNS for column in columns):
        items = tuple(_rows(plain, columns))
    elif any(map(_is_markdown, lines)):
        items = tuple(_links(lines))
    elif columns and not any(map(_starts_with_url, plain)):
        raise DirectoryError(
            f"{name} is a CSV without a URL column. Its columns: {', '.join(columns)}.",
            hint="Name the column with the URLs `url`.",
        )
    else:
        items = tuple(map(_line, plain))
    if not items:
        raise DirectoryError(f"{name} has no entries.", hint="Write one URL per line.")
    return items


def _header(lines: list[str]) -> tuple[str, ...]:
    """Return the lower-case names in a CSV's first line; empty if it is not a header."""
    first = lines[0] if lines else ""
    if "://" in first or first.startswith("|"):
        return ()
    try:
        names = next(csv.reader([first], delimiter=_separator(first)), [])
    except csv.Error:  # a field that is too long: text of another kind
        return ()
    columns = tuple(clean_text(name, EXCERPT_MAX).lower() for name in names)
    single = len(columns) == 1 and columns[0] not in URL_COLUMNS
    return () if single else columns


def _separator(header: str) -> str:
    return max(_SEPARATORS, key=header.count)


def _rows(lines: list[str], columns: tuple[str, ...]) -> Iterator[object]:
    """Yield CSV rows as entries: URL column, `method`, `description`, `service`, `tags`."""
    url = next(name for name in URL_COLUMNS if name in columns)
    separator = _separator(lines[0])
    for line in lines[1:]:
        try:
            cells = next(csv.reader([line], delimiter=separator), [])
        except csv.Error:
            yield SkippedItem(reason="unreadable", excerpt=clean_text(line, EXCERPT_MAX))
            continue
        row = dict(zip(columns, cells, strict=False))
        yield {
            "resource": row.get(url, ""),
            "method": row.get("method"),
            "description": row.get("description"),
            "serviceName": row.get("servicename") or row.get("service") or row.get("name"),
            "tags": [tag for tag in row.get("tags", "").replace(";", "|").split("|") if tag],
        }


def _starts_with_url(line: str) -> bool:
    first, _, rest = line.partition(" ")
    return "://" in (rest if read_method(first) else first).split(",", 1)[0]


def _line(line: str) -> str:
    """Return the URL of a line, without a comment after a comma."""
    url = line.split(",", 1)[0].rstrip()
    return url if "://" in url else line


def _is_markdown(line: str) -> bool:
    return bool(_LINK.search(line) or (_ROW.match(line) and _BARE.search(line)))


def _links(lines: list[str]) -> Iterator[object]:
    """Yield the links of a Markdown text as entries, with the link's text and the line's method."""
    fenced = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            methods = set(_METHOD.findall(line))
            method = methods.pop() if len(methods) == 1 else None
            for url, text in _urls(line):
                yield {"resource": url, "method": method, "serviceName": text}


def _urls(line: str) -> Iterator[tuple[str, str]]:
    """Yield the URLs of a line with the texts of their links."""
    for image, text, url in _LINK.findall(line):
        if not image:
            yield url, "" if "](" in text or "://" in text else text.strip("`* ")
    if _ROW.match(line):
        for url in _BARE.findall(_LINK.sub(" ", line)):
            yield url.rstrip(".,;:!*_"), ""
