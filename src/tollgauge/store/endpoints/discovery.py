"""Listings and discovery events: who lists an endpoint, since when, and at what price.

Rules:
- a listing belongs to one source; an endpoint is listed while any source lists it;
- only a complete crawl takes listings away: those of its source that it did not see; whether a
  whole crawl is complete or suspicious is core/discovery's decision;
- a resource that one crawl names twice counts once, as it was named first;
- an endpoint that was adopted on request has no listing and is never delisted;
- transactions that change listings take turns, so that two sources merge into one endpoint.

What an item means for an endpoint is store/endpoints/merging's, what counts as a change
core/discovery's decision; counting it twice because two sources saw it is prevented in `changes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core import discovery
from tollgauge.core.changes import term_changes
from tollgauge.core.endpoint import Endpoint, Listing, Resource
from tollgauge.core.evidence import Change
from tollgauge.core.listing import ListedItem
from tollgauge.core.terms import Quote
from tollgauge.core.units import MINUTE_MS
from tollgauge.db import meta, schema, upsert
from tollgauge.db.codec import clean_quote, clean_terms, terms_from_json, texts_to_json
from tollgauge.db.transaction import step
from tollgauge.store.endpoints import crawls, endpoints
from tollgauge.store.endpoints.crawls import Crawl
from tollgauge.store.endpoints.endpoint_rows import from_row, quote_columns, quote_from_row
from tollgauge.store.endpoints.merging import (
    DELISTED,
    LISTED,
    PROBE,
    RELISTED,
    Page,
    event_row,
    merge,
    new_endpoint,
)
from tollgauge.store.probes import changes as changes_rows

SPREAD_MS: Final = 30 * MINUTE_MS
"""Over how long the first probes of new endpoints are spread: the normal cadence."""

LISTINGS_TURN: Final = "listings"
"""The turn of whoever adds or removes endpoints or changes listings."""
_E: Final = schema.endpoint
_L: Final = schema.listing
_C: Final = schema.crawl
_V: Final = schema.discovery_event
_EVENTS: Final = (
    sa.select(_V.c.at, _V.c.event, _V.c.source, _V.c.before, _V.c.after)
    .where(
        _V.c.endpoint_id == sa.bindparam("id"),
        _V.c.at > sa.bindparam("since"),
        _V.c.at <= sa.bindparam("until"),
    )
    .order_by(_V.c.at, _V.c.id)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTally:
    """What a page brought: distinct resources `seen`, endpoints that were `new`, `events` and how
    many there were of each kind.
    """

    new: int
    seen: int
    events: int
    kinds: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryEvent:
    """Something that happened to an endpoint's listing or price."""

    at: int
    event: str
    source: str
    before: str
    after: str


@step
def record_page(
    tx: Connection,
    crawl: Crawl,
    items: Sequence[ListedItem],
    *,
    next_offset: int,
    now: int,
    spread_ms: int = SPREAD_MS,
) -> PageTally:
    """Merge a page of a crawl into endpoints and listings, and remember how far it came.

    First probes of new endpoints are spread over `spread_ms` by their ids; 0 makes them due now.
    Recording a page again changes nothing.
    """
    at = crawl.at(now)
    meta.take_turn(tx, LISTINGS_TURN)
    by_id: dict[str, ListedItem] = {}
    for item in items:
        by_id.setdefault(item.resource.id, item)
    rows = endpoints.lock(tx, by_id)
    known = _listing_rows(tx, crawl.source, by_id)
    page = Page()
    for id_, item in sorted(by_id.items()):
        listing = known.get(id_)
        if listing is None or listing["gone_at"] is not None or listing["crawl_id"] < crawl.id:
            merge(
                page,
                item,
                source=crawl.source,
                crawl_id=crawl.id,
                row=rows.get(id_),
                listing=listing,
                now=now,
                at=at,
                spread_ms=spread_ms,
            )
    _write(tx, page)
    _flip_terms(tx, crawl.source, by_id, rows, known, at=at)
    tx.execute(_C.update().where(_C.c.id == crawl.id).values(offset=next_offset))
    kinds = Counter(str(event["event"]) for event in page.events)
    return PageTally(new=len(page.new), seen=len(by_id), events=len(page.events), kinds=kinds)


@step
def finish_crawl(
    tx: Connection, crawl: Crawl, *, complete: bool, now: int, suspicious: bool = False
) -> int:
    """End a crawl. A complete one takes away the listings of its source that it did not see;
    returns how many endpoints no source lists any more.
    """
    meta.take_turn(tx, LISTINGS_TURN)
    listed = crawls.seen_by(tx, crawl.source, crawl.id)
    tx.execute(
        _C.update()
        .where(_C.c.id == crawl.id)
        .values(finished_at=now, complete=complete, suspicious=suspicious, listed=listed)
    )
    if not complete:
        return 0
    at = crawl.at(now)
    unseen = (_L.c.source == crawl.source, _L.c.crawl_id < crawl.id, _L.c.gone_at.is_(None))
    gone = tx.execute(_L.update().where(*unseen).values(gone_at=at).returning(_L.c.endpoint_id))
    delisted = 0
    for chunk in endpoints.chunks(sorted(gone.scalars())):
        delisted += _without(tx, chunk, crawl.source, now=now, at=at)
    return delisted


@step
def adopt(tx: Connection, resource: Resource, *, source: str, now: int) -> Endpoint:
    """The endpoint of a resource; a new one, due within the normal cadence, if nobody listed it
    yet.
    """
    meta.take_turn(tx, LISTINGS_TURN)
    known = endpoints.get(tx, resource.id)
    if known is not None:
        return known
    fresh = new_endpoint(resource, now=now, spread_ms=SPREAD_MS)
    endpoint = replace(fresh, sources=(source,), status=Listing.UNLISTED)
    endpoints.insert(tx, endpoint, adopted=True)
    return endpoint


@step
def observe_quote(
    tx: Connection, endpoint: Endpoint, quote: Quote, *, at: int
) -> tuple[Change, ...]:
    """Take a probe's terms as the endpoint's price. What differs from the terms that probes saw
    before becomes events; a directory's price is no such ground, and neither is an older probe.
    """
    return observe_quotes(tx, {endpoint.id: (quote, at)})


@step
def observe_quotes(tx: Connection, seen: Mapping[str, tuple[Quote, int]]) -> tuple[Change, ...]:
    """Take what probes saw, (terms, instant) by endpoint's id, as `observe_quote` does for one."""
    updates: list[dict[str, Any]] = []
    news: list[dict[str, Any]] = []
    changes: list[Change] = []
    for id_, row in endpoints.lock(tx, seen).items():
        quote, at = seen[id_]
        probed = row["quote_source"] == PROBE
        if probed and row["quote_at"] >= at:
            continue
        after = clean_quote(quote)
        found = discovery.changes(quote_from_row(row) if probed else None, after)
        update = {"id": id_, "quote_at": at, "quote_source": PROBE, **quote_columns(after)}
        owed = {"score_due": row["score_due"], "score_next": row["score_next"]}
        if found:
            owed = {"score_due": min(row["score_due"], at), "score_next": None}
        updates.append(update | owed)
        news += [event_row(id_, kind, PROBE, at, *texts) for kind, *texts in found]
        changes += [Change(at=at, kind=k, source=PROBE, before=b, after=a) for k, b, a in found]
    if updates:
        _update_many(tx, updates)
    if news:
        tx.execute(_V.insert(), news)
    return tuple(changes)


@step
def events(
    tx: Connection, endpoint_id: str, *, since: int, until: int
) -> tuple[DiscoveryEvent, ...]:
    """What happened to an endpoint with `since < at <= until`, oldest first."""
    asked = {"id": endpoint_id, "since": since, "until": until}
    return tuple(DiscoveryEvent(**row) for row in tx.execute(_EVENTS, asked).mappings())


@step
def changes(tx: Connection, endpoint_id: str, *, since: int, until: int) -> tuple[Change, ...]:
    """Changes of price, payTo and network with `since < at <= until`, oldest first. One that
    several sources saw is told once, by the first: a transition happened as often as the source
    that saw it most often says.
    """
    told: dict[tuple[str, str, str], int] = {}
    seen: dict[tuple[str, str, str, str], int] = {}
    found: list[Change] = []
    for event in events(tx, endpoint_id, since=since, until=until):
        if event.event in (LISTED, DELISTED, RELISTED):
            continue
        transition = (event.event, event.before, event.after)
        number = seen[event.source, *transition] = seen.get((event.source, *transition), 0) + 1
        if number > told.get(transition, 0):
            told[transition] = number
            found.append(
                Change(
                    at=event.at,
                    kind=event.event,
                    source=event.source,
                    before=event.before,
                    after=event.after,
                )
            )
    return tuple(found)


def _listing_rows(tx: Connection, source: str, ids: Iterable[str]) -> dict[str, sa.RowMapping]:
    found: dict[str, sa.RowMapping] = {}
    for chunk in endpoints.chunks(ids):
        query = sa.select(_L).where(_L.c.endpoint_id.in_(chunk), _L.c.source == source)
        found.update((row["endpoint_id"], row) for row in tx.execute(query).mappings())
    return found


def _write(tx: Connection, page: Page) -> None:
    endpoints.insert_many(tx, page.new)
    if page.changed:
        _update_many(tx, page.changed)
    if page.listings:
        statement = upsert.insert(tx, _L)
        kept = ("crawl_id", "last_seen", "gone_at", "quote")
        tx.execute(
            statement.on_conflict_do_update(
                index_elements=["endpoint_id", "source"],
                set_={name: statement.excluded[name] for name in kept},
            ),
            page.listings,
        )
    if page.events:
        tx.execute(_V.insert(), page.events)


def _flip_terms(
    tx: Connection,
    source: str,
    items: Mapping[str, ListedItem],
    rows: Mapping[str, sa.RowMapping],
    listings: Mapping[str, sa.RowMapping],
    *,
    at: int,
) -> None:
    """Changed terms are news to watchers, unless a probe saw terms of its own or another source
    speaks for the endpoint.
    """
    for id_ in sorted(items.keys() & rows.keys() & listings.keys()):
        row, item = rows[id_], items[id_]
        before = terms_from_json(listings[id_]["quote"])
        after = discovery.carried(before, clean_terms(item.quote or item.unpriced))
        speaks = from_row(row).sources[:1] == (source,) and row["quote_source"] != PROBE
        if speaks and before is not None and after is not None:
            found = term_changes(before, after, at=at, source=source)
            changes_rows.add(tx, id_, found)


def _update_many(tx: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    names = [name for name in rows[0] if name != "id"]
    statement = (
        _E.update()
        .where(_E.c.id == sa.bindparam("id_"))
        .values({name: sa.bindparam(f"{name}_", type_=_E.c[name].type) for name in names})
    )
    tx.execute(statement, [{f"{name}_": row[name] for name in row} for row in rows])


def _without(tx: Connection, ids: Sequence[str], source: str, *, now: int, at: int) -> int:
    """Take a source from endpoints; how many have none left and are delisted now."""
    changed: list[dict[str, Any]] = []
    delisted: list[dict[str, Any]] = []
    for id_, row in endpoints.lock(tx, ids).items():
        left = tuple(name for name in from_row(row).sources if name != source)
        gone = not left and row["status"] == Listing.LISTED.value
        changed.append(
            {
                "id": id_,
                "sources": texts_to_json(left),
                "status": Listing.LISTED.value if left else Listing.DELISTED.value,
                "score_due": min(row["score_due"], now) if gone else row["score_due"],
                "score_next": None if gone else row["score_next"],
            }
        )
        if gone:
            delisted.append(event_row(id_, DELISTED, source, at, "", ""))
    _update_many(tx, changed)
    if delisted:
        tx.execute(_V.insert(), delisted)
        ids = [str(event["endpoint_id"]) for event in delisted]
        changes_rows.delisted(tx, ids, source=source, at=at)
    return len(delisted)
