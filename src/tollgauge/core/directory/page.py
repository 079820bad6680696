"""Pages: documents of directories in any form.

Rules (x402 specification, discovery):
- the list is the document itself, or a member that one of LISTS names, or an object whose keys are
  paths or URLs, with or without a method before them;
- an entry that contains such a list (a service with its endpoints) is a group: its entries are read
  in its place, at the group's base URL and with its name and tags;
- paging is `pagination` or `total`; a crawl file states with `partial` whether it is complete, and
  may state where and when it was read.

Parsing never raises. core/directory/listing interprets single entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from tollgauge.core.directory.declared import read_method
from tollgauge.core.endpoint.identity import URL_MAX
from tollgauge.core.lint.parsing import members

LISTS: Final = ("items", "resources", "services", "endpoints", "routes", "origins", "apis")
"""Names of a list of entries; the first non-empty list is used."""

_SECONDS_BELOW: Final = 10**11
"""A smaller number is in seconds since the epoch, a larger one in milliseconds."""
_TIME_MAX_MS: Final = 4_102_444_800_000  # 2100-01-01
_COUNT_MAX: Final = 10**9
_LEVELS_MAX: Final = 3
_BASE_KEYS: Final = (
    *("resourceServerUrl", "baseUrl", "base_url", "baseURL"),
    *("origin", "url", "resource", "host"),
)
_URL_KEYS: Final = ("resource", "url", "endpoint", "uri", "href", "path", "route")
_ORIGIN_KEYS: Final = ("facilitatorUrl", "directoryUrl", "sourceUrl", "source", "origin")
_TAKEN_KEYS: Final = (
    *("crawledAt", "crawled_at", "generatedAt", "generated_at", "fetchedAt", "fetched_at"),
    *("indexedAt", "capturedAt", "snapshotAt", "timestamp"),
)
_WEB: Final = re.compile(r"https?://[^/\s]", re.IGNORECASE)
_PATH_OR_URL: Final = re.compile(r"(?:[A-Za-z]{3,7} +)?(?:/|https?://)")
_RELATIVE: Final = re.compile(r"(?!//)(?:\.{0,2}/|[^\s.:/?#]+(?:[/?#]|$))")
"""A path, with or without a leading slash; not a URL, and not a host, which has a dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPage:
    """One document of a directory.

    Attributes:
        items: Its raw entries and groups; `list_entries` opens the groups.
        total: The directory's own count, or None.
        limit, offset: Its paging, or None.
        complete: Whether the listing ends with this page and no entry was missed; None if unknown.
        base: The URL that its paths are relative to; empty without one.
        origin: The URL that a crawl file was read from.
        taken_at: When it was read, in milliseconds UTC.
    """

    items: tuple[object, ...] = ()
    total: int | None = None
    limit: int | None = None
    offset: int | None = None
    complete: bool | None = None
    base: str = ""
    origin: str | None = None
    taken_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Values that an entry inherits from its group."""

    base: str = ""
    texts: Mapping[str, object] = field(default_factory=dict)

    def inner(self, entry: Mapping[str, object]) -> _Group:
        """Return the group that an entry of this group represents."""
        name = entry.get("serviceName") or entry.get("name") or entry.get("title")
        texts = {"serviceName": name, "tags": entry.get("tags")}
        own = {key: value for key, value in texts.items() if value}
        return _Group(base=_join_url(self.base, _find_base(entry)), texts={**self.texts, **own})


def read_page(document: object) -> DirectoryPage:
    """Parse one document. Never raises; a document without a list of entries is an empty page.

    It is an array, an object with one of LISTS and possibly `pagination` or `total`, or a crawl
    file (`partial`, `facilitatorUrl`, `crawledAt`; the latter two may be in its `meta`).
    """
    fields = members(document)
    paging = members(fields.get("pagination"))
    partial = fields.get("partial")
    return DirectoryPage(
        items=tuple(_find_list(document)),
        total=read_count(paging.get("total", fields.get("total"))),
        limit=read_count(paging.get("limit")),
        offset=read_count(paging.get("offset")),
        complete=not partial if isinstance(partial, bool) else None,
        base=_find_base(fields) or _find_base(members(fields.get("service"))),
        origin=next((str(url) for url in _list_values(fields, _ORIGIN_KEYS) if _is_web(url)), None),
        taken_at=next(filter(None, map(read_time, _list_values(fields, _TAKEN_KEYS))), None),
    )


def is_page(document: object) -> bool:
    """Return whether a document contains a list of entries in any form that `read_page` accepts."""
    fields = members(document)
    return isinstance(document, list) or any(
        isinstance(fields.get(key), list) or _read_by_path(fields.get(key)) for key in LISTS
    )


def list_entries(page: DirectoryPage) -> tuple[object, ...]:
    """Return the entries of a page for `read_item`, groups opened. Never raises, and is
    idempotent.
    """
    return tuple(iterate_entries(page.items, base=page.base))


def iterate_entries(items: Iterable[object], *, base: str) -> Iterator[object]:
    """Yield the entries of items as `list_entries` does, without holding the whole list."""
    return _open_groups(items, _Group(base=base), level=0)


def read_time(value: object) -> int | None:
    """Parse ISO 8601, Unix seconds or Unix milliseconds as milliseconds UTC.

    None unless the time is between 1970 and 2100. A time without a zone is UTC.
    """
    if isinstance(value, str):
        value = _parse_iso(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _TIME_MAX_MS:  # false for NaN too
        return None
    return int(value * 1_000) if value < _SECONDS_BELOW else int(value)


def _parse_iso(text: str) -> int | float | None:
    # Eight digits are a date in the basic form of ISO 8601; as seconds they would be before 1974.
    if text.isascii() and text.isdigit() and 8 < len(text) <= 13:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None


def _list_values(fields: Mapping[str, object], keys: Iterable[str]) -> Iterator[object]:
    """Yield the values of a document or its metadata under some names."""
    for holder in (fields, members(fields.get("meta")), members(fields.get("metadata"))):
        for key in keys:
            yield holder.get(key)


def _find_list(document: object) -> list[object]:
    """Return the entries of a document or a group: those of the first non-empty list."""
    if isinstance(document, list):
        return document
    fields = members(document)
    lists = (
        value if isinstance(value, list) else _read_by_path(value)
        for value in (fields.get(key) for key in LISTS)
    )
    return next(filter(None, lists), [])


def _read_by_path(value: object) -> list[object]:
    """Return the entries of an object whose keys are paths or URLs (`"GET /weather": {…}`)."""
    entries: list[object] = []
    for name, entry in members(value).items():
        if _PATH_OR_URL.match(name):
            method, _, url = name.strip().rpartition(" ")
            declared = {"method": method} if method else {}
            entries.append({**members(entry), "resource": url, **declared})
    return entries


def _open_groups(items: Iterable[object], group: _Group, *, level: int) -> Iterator[object]:
    for item in items:
        inner = _list_inner(item) if level < _LEVELS_MAX else []
        if inner:
            yield from _open_groups(inner, group.inner(members(item)), level=level + 1)
        else:
            yield _complete_entry(item, group)


def _list_inner(item: object) -> list[object]:
    """Return the entries of a group; empty for an entry, which has terms or no list."""
    if not isinstance(item, dict) or item.get("accepts"):
        return []
    return [
        inner
        for inner in _find_list(item)
        if isinstance(inner, dict) or (isinstance(inner, str) and _PATH_OR_URL.match(inner))
    ]


def _complete_entry(item: object, group: _Group) -> object:
    """Return an entry independent of its group: with a full URL, and the group's texts if it has
    none.
    """
    if isinstance(item, str):
        method, _, url = item.strip().rpartition(" ")
        relative = group.base and _RELATIVE.match(url) and (not method or read_method(method))
        if not group.texts and not relative:
            return item
        item = {"resource": url} | ({"method": method} if read_method(method) else {})
    if not isinstance(item, dict):
        return item
    added = {key: value for key, value in group.texts.items() if not item.get(key)}
    location = next((value for key in _URL_KEYS if (value := item.get(key))), None)
    if isinstance(location, dict) and isinstance(location.get("url"), str):
        url = _join_url(group.base, str(location["url"]).strip())
        if url != location["url"]:
            added["resource"] = {**location, "url": url}
    elif isinstance(location, str):
        url = _join_url(group.base, location.strip())
        if url and url not in (item.get("resource"), item.get("url")):
            added["resource"] = url
    elif location is None and not item.get("accepts") and (url := _find_base(item)):
        added["resource"] = url
    return {**item, **added} if added else item


def _find_base(fields: Mapping[str, object]) -> str:
    """Return the URL or path that the entries' paths are relative to; empty without one."""
    for key in _BASE_KEYS:
        value = fields.get(key)
        if isinstance(value, str) and (_is_web(value) or value.startswith("/")):
            return value[:URL_MAX].strip()
        if key == "host" and isinstance(value, str) and value and "/" not in value:
            return f"https://{value}"[:URL_MAX]
    return ""


def _join_url(base: str, url: str) -> str:
    """Return a URL, or a path appended to the base's path, as in OpenAPI's servers."""
    if not _RELATIVE.match(url):
        return url or base
    if not base:
        return "" if url.startswith("/") else url
    return base.rstrip("/") + "/" + url.removeprefix("./").lstrip("/")


def _is_web(value: object) -> bool:
    return isinstance(value, str) and len(value) <= URL_MAX and bool(_WEB.match(value))


def read_count(value: object, limit: int = _COUNT_MAX) -> int | None:
    """Return a whole number from 0 to a limit; None for any other value."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= limit else None
