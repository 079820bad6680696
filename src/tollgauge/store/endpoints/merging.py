"""What a directory's item means for the endpoint and the listing that are there.

Rules:
- the first source that lists an endpoint speaks for it (its declared input, its texts, and its
  price until a probe saw one); the others fill in what it left out;
- the first directory to list an endpoint is the event `listed`, the first after it was delisted
  `relisted`; a further source is no news;
- terms are compared with what the same source said before;
- what happened is dated `at`, when the listing was taken; what is due counts from `now`.

Nothing is read or written here; store/endpoints/discovery does that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from tollgauge.core import discovery
from tollgauge.core.discovery import carried
from tollgauge.core.endpoint import Endpoint, Listing, Resource
from tollgauge.core.listing import ListedItem
from tollgauge.core.terms import Quote
from tollgauge.db.codec import clean_quote, clean_terms, terms_from_json, terms_to_json
from tollgauge.store.endpoints.endpoint_rows import from_row, to_row

LISTED: Final = "listed"
DELISTED: Final = "delisted"
RELISTED: Final = "relisted"
PROBE: Final = "probe"
"""The source of what our own probes saw."""

T = TypeVar("T")


@dataclass(slots=True)
class Page:
    """What a page makes of the rows it found, until it is written."""

    new: list[Endpoint] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    listings: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)


def merge(
    page: Page,
    item: ListedItem,
    *,
    source: str,
    crawl_id: int,
    row: sa.RowMapping | None,
    listing: sa.RowMapping | None,
    now: int,
    at: int,
    spread_ms: int,
) -> None:
    """Add to the page what an item means for the endpoint and the listing that are there."""
    id_ = item.resource.id
    fresh = new_endpoint(item.resource, now=now, spread_ms=spread_ms)
    before = terms_from_json(listing["quote"]) if listing is not None else None
    # A listing that names no price now keeps its last one: what comes back is compared with that.
    terms = carried(before, clean_terms(item.quote or item.unpriced))
    if item.unpriced is not None and isinstance(terms, Quote):
        item = replace(item, quote=terms)
    if row is None:
        page.new.append(_described(replace(fresh, sources=(source,)), item, at=at))
        kinds = [(LISTED, "", "")]
    else:
        kinds = _relisting(row)
        kinds += discovery.changes(before, terms)
        page.changed.append(
            _changed(row, item, source, now=now, at=at, due=fresh.next_due, owed=bool(kinds))
        )
    page.events += [event_row(id_, kind, source, at, *texts) for kind, *texts in kinds]
    page.listings.append(
        {
            "endpoint_id": id_,
            "source": source,
            "crawl_id": crawl_id,
            "first_seen": at,
            "last_seen": at,
            "gone_at": None,
            "quote": terms_to_json(terms),
        }
    )


def _relisting(row: sa.RowMapping) -> list[tuple[str, str, str]]:
    if row["adopted"]:
        return [(LISTED, "", "")]
    return [(RELISTED, "", "")] if row["status"] == Listing.DELISTED.value else []


def _changed(
    row: sa.RowMapping,
    item: ListedItem,
    source: str,
    *,
    now: int,
    at: int,
    due: int,
    owed: bool,
) -> dict[str, Any]:
    """The new column values of an endpoint that a source lists."""
    endpoint = from_row(row)
    sources = () if row["adopted"] else endpoint.sources
    listed = sources if source in sources else (*sources, source)
    back = endpoint.status is Listing.DELISTED
    endpoint = replace(
        endpoint,
        sources=listed,
        status=Listing.LISTED,
        last_seen=now,
        next_due=min(endpoint.next_due, due) if back else endpoint.next_due,
    )
    merged = _described(
        endpoint,
        item,
        at=at,
        speaks=listed[0] == source,
        priced=row["quote_source"] != PROBE,
    )
    requoted = merged.quote != endpoint.quote
    values = to_row(merged) | {
        "adopted": False,
        "quote_source": source if requoted else row["quote_source"],
        "score_due": row["score_due"],
        "score_next": row["score_next"],
    }
    if owed or requoted:
        values |= {"score_due": min(row["score_due"], now), "score_next": None}
    return values


def _described(
    endpoint: Endpoint, item: ListedItem, *, at: int, speaks: bool = True, priced: bool = True
) -> Endpoint:
    """The endpoint with a listing's words: all of them if its source speaks for the endpoint,
    else those that are still missing. `priced`: a listing's price counts.
    """
    described = replace(
        endpoint,
        service_name=_either(item.service_name, endpoint.service_name, first=speaks),
        description=_either(item.description, endpoint.description, first=speaks),
        tags=_either(item.tags, endpoint.tags, first=speaks),
        method=_either(item.method, endpoint.method, first=speaks),
        body=_either(item.body, endpoint.body, first=speaks),
        query=_either(item.resource.query, endpoint.query, first=speaks),
    )
    if priced and item.quote is not None and (speaks or endpoint.quote is None):
        return replace(described, quote=clean_quote(item.quote), quote_at=at)
    return described


def _either(new: T, old: T, *, first: bool) -> T:
    one, other = (new, old) if first else (old, new)
    return one or other


def new_endpoint(resource: Resource, *, now: int, spread_ms: int) -> Endpoint:
    """An endpoint that nobody knew, due at an instant of the next `spread_ms` that its id picks."""
    id_ = resource.id
    return Endpoint(
        id=id_,
        resource=resource.url,
        host=resource.host,
        query=resource.query,
        first_seen=now,
        last_seen=now,
        next_due=now + (int(id_[:8], 16) * spread_ms >> 32),
        templated=resource.templated,
    )


def event_row(
    endpoint_id: str, kind: str, source: str, at: int, before: str, after: str
) -> dict[str, Any]:
    """A discovery event as column values."""
    return {
        "endpoint_id": endpoint_id,
        "at": at,
        "event": kind,
        "source": source,
        "before": before,
        "after": after,
    }
