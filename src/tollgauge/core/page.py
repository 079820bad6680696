"""Page: one document of a directory, whatever form it came in.

Rules (x402 specification, discovery): the list is `items` or `resources` or the document itself,
paging is `pagination` or `total`, and a crawl file says with `partial` whether it is whole. Reading
never raises. What one entry means is core/listing's reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tollgauge.core.declared import as_mapping
from tollgauge.core.endpoint import URL_MAX

_COUNT_MAX: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One document of a directory. `items` are raw entries for `read_item`.

    `total` is the directory's own count, `limit` and `offset` its paging, None where it says
    nothing. `complete` is whether the directory's listing ends with this page and nothing was
    missed on the way, None where the document does not tell. `facilitator` is the URL that a
    crawl file names as its origin.
    """

    items: tuple[object, ...] = ()
    total: int | None = None
    limit: int | None = None
    offset: int | None = None
    complete: bool | None = None
    facilitator: str | None = None


def read_page(document: object) -> Page:
    """One document: a bare array, or an object with `items` or `resources`, with `pagination` or
    `total` beside them, or a crawl file (`partial`, `facilitatorUrl`). Never raises; a document
    without a list of entries is a page without items.
    """
    if isinstance(document, list):
        return Page(items=tuple(document))
    fields = as_mapping(document)
    lists = (fields.get(key) for key in ("items", "resources"))
    paging = as_mapping(fields.get("pagination"))
    partial = fields.get("partial")
    facilitator = fields.get("facilitatorUrl")
    return Page(
        items=tuple(next((found for found in lists if isinstance(found, list)), ())),
        total=_count(paging.get("total", fields.get("total"))),
        limit=_count(paging.get("limit")),
        offset=_count(paging.get("offset")),
        complete=not partial if isinstance(partial, bool) else None,
        facilitator=facilitator[:URL_MAX] if isinstance(facilitator, str) else None,
    )


def is_page(document: object) -> bool:
    """Whether a document holds a list of entries in any form that `read_page` knows."""
    fields = as_mapping(document)
    return isinstance(document, list) or any(
        isinstance(fields.get(key), list) for key in ("items", "resources")
    )


def _count(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _COUNT_MAX else None
