"""Rows of listings and discovery events: who lists an endpoint, since when, and at what price.

A listing belongs to one source. Transactions that change listings take turns (LISTINGS_TURN), so
that two sources merge into one endpoint. What an entry of a directory means for these rows is
decided in monitor/discovery; crawls themselves are in store/endpoints/crawls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy import Connection

from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.endpoint.terms import Advertised
from tollgauge.core.score.prices import Price
from tollgauge.core.watch.watch_rules import DISCOVERY_EVENTS_MS
from tollgauge.db import schema
from tollgauge.db.codec import terms_from_json, terms_to_json
from tollgauge.store import rows
from tollgauge.store.endpoint_rows import from_row, to_row
from tollgauge.store.endpoints import endpoints
from tollgauge.store.endpoints.crawls import Crawl

LISTINGS_TURN: Final = "listings"
"""The turn of whoever adds or removes endpoints or changes listings."""

_SCORE: Final = ("score_due", "score_next")
_event: Final = schema.discovery_event
_EVENT_FIELDS: Final = ("at", "event", "source", "before", "after", "announced", "price")
_PRICE: Final = TypeAdapter(Price)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryEvent:
    """Something that happened to an endpoint's listing or price. `announced`: it is a change of
    payTo that the seller announced ahead (core/directory/seller_file). `price`, only of a changed
    price: what was usual then (core/score/prices).
    """

    at: int
    event: str
    source: str
    before: str
    after: str
    announced: bool = False
    price: Price | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedEndpoint:
    """An endpoint whose row is locked until the transaction ends. `quote_source` is who named its
    price; its score is due at `score_due` (`score_next`: see the columns in db/schema.py).
    """

    endpoint: Endpoint
    quote_source: str | None
    score_due: int
    score_next: int | None

    def owing_score(self, now: int) -> LockedEndpoint:
        """The same endpoint, owing a score from `now` on."""
        return replace(self, score_due=min(self.score_due, now), score_next=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredListing:
    """What one source says of one endpoint. `crawl_id` is the last crawl that saw it, `gone_at`
    when a complete crawl did not; `terms` are None while the source named none.
    """

    endpoint_id: str
    source: str
    crawl_id: int
    first_seen: int
    last_seen: int
    gone_at: int | None
    terms: Advertised | None


def lock(tx: Connection, ids: Iterable[str]) -> dict[str, LockedEndpoint]:
    """Endpoints by id, locked in the order of their ids; unknown ids are left out."""
    return {
        id_: rows.from_columns(LockedEndpoint, row, endpoint=from_row(row))
        for id_, row in endpoints.lock(tx, ids).items()
    }


def of_source(tx: Connection, source: str, ids: Iterable[str]) -> dict[str, StoredListing]:
    """What a source says of endpoints, by their ids; those that it never listed are left out."""
    query = sa.select(schema.listing).where(schema.listing.c.source == source)
    return {
        row.endpoint_id: rows.from_columns(StoredListing, row, terms=terms_from_json(row.quote))
        for row in rows.with_any(tx, query, schema.listing.c.endpoint_id, ids)
    }


def save(tx: Connection, listings: Sequence[StoredListing]) -> None:
    """Insert or replace listings; one that exists keeps its `first_seen`."""
    columns = [
        rows.to_columns(listing, "terms", quote=terms_to_json(listing.terms))
        for listing in listings
    ]
    rows.put(tx, schema.listing, columns, keep=("first_seen",))


def save_seen(tx: Connection, crawl: Crawl, ids: Iterable[str], *, at: int) -> None:
    """Note that a crawl saw listings of its source that are as they were."""
    listing = schema.listing
    for chunk in rows.chunks(ids):
        tx.execute(
            listing.update()
            .where(listing.c.source == crawl.source, listing.c.endpoint_id.in_(chunk))
            .values(crawl_id=crawl.id, last_seen=at)
        )


def save_listed(tx: Connection, listed: Sequence[LockedEndpoint]) -> None:
    """Write every column of endpoints that a directory lists, except those that only probes and
    scores write.
    """
    others = {"id", "up_at", "down_since", "payable", "unconfirmed_at"}
    others |= {"failing_since", "payable_since"}
    others |= {"paused_until", "forms", "payto_history"} | {
        column.name for column in schema.FIGURES
    }
    names = [column.name for column in schema.endpoint.c if column.name not in others]
    _update(tx, listed, names)


def save_last_seen(
    tx: Connection, ids: Iterable[str], *, now: int, quote_at: int | None = None
) -> None:
    """Note that a directory lists endpoints, and that their price was named at `quote_at`, if it
    was; nothing else about them changed.
    """
    values = {"last_seen": now} | ({} if quote_at is None else {"quote_at": quote_at})
    for chunk in rows.chunks(ids):
        tx.execute(schema.endpoint.update().where(schema.endpoint.c.id.in_(chunk)).values(values))


def save_sources(tx: Connection, changed: Sequence[LockedEndpoint]) -> None:
    """Write which sources list endpoints, whether any does, and the score that is owed."""
    _update(tx, changed, ("sources", "status", *_SCORE))


def save_quotes(tx: Connection, quoted: Sequence[LockedEndpoint]) -> None:
    """Write the prices of endpoints, who named them, and the score that is owed."""
    quote = ("quote_network", "quote_asset", "quote_amount", "quote_pay_to")
    _update(tx, quoted, (*quote, "quote_at", "quote_source", "payto_history", *_SCORE))


def save_confirmed(tx: Connection, confirmed: Sequence[LockedEndpoint]) -> None:
    """Write when the prices of endpoints were named and by whom, but not the prices: they are as
    they were, and an index that holds them would be written with them.
    """
    _update(tx, confirmed, ("quote_at", "quote_source", "payto_history"))


def unseen(tx: Connection, crawl: Crawl) -> tuple[str, ...]:
    """The ids of the endpoints that the source of a crawl listed before and the crawl did not see,
    sorted.
    """
    query = sa.select(schema.listing.c.endpoint_id).where(*_not_seen_by(crawl))
    return tuple(sorted(tx.execute(query).scalars()))


def remove_unseen(tx: Connection, crawl: Crawl, ids: Sequence[str], *, at: int) -> tuple[str, ...]:
    """Mark the listings of some endpoints as gone that the crawl of their source did not see;
    returns the ids of those.
    """
    listing = schema.listing
    gone = tx.execute(
        listing.update()
        .where(listing.c.endpoint_id.in_(ids), *_not_seen_by(crawl))
        .values(gone_at=at)
        .returning(listing.c.endpoint_id)
    )
    return tuple(gone.scalars())


def _not_seen_by(crawl: Crawl) -> tuple[sa.ColumnElement[bool], ...]:
    listing = schema.listing.c
    return (
        listing.source == crawl.source,
        listing.crawl_id < crawl.id,
        listing.gone_at.is_(None),
    )


def add_events(tx: Connection, events: Sequence[tuple[str, DiscoveryEvent]]) -> None:
    """Append events, each with the id of its endpoint."""
    columns = [
        rows.to_columns(event, endpoint_id=endpoint_id, price=_price_to_json(event.price))
        for endpoint_id, event in events
    ]
    if columns:
        tx.execute(_event.insert(), columns)


def events(
    tx: Connection, endpoint_id: str, *, since: int, until: int
) -> tuple[DiscoveryEvent, ...]:
    """What happened to an endpoint with `since < at <= until` (ms UTC), oldest first."""
    return tuple(events_of(tx, (endpoint_id,), since=since, until=until).get(endpoint_id, ()))


def events_of(
    tx: Connection, endpoint_ids: Sequence[str], *, since: int, until: int
) -> dict[str, list[DiscoveryEvent]]:
    """What happened to endpoints with `since < at <= until` (ms UTC), oldest first, by id."""
    query = (
        sa.select(*_event.c["endpoint_id", *_EVENT_FIELDS])
        .where(_event.c.at > since, _event.c.at <= until)
        .order_by(_event.c.at, _event.c.id)
    )
    events: dict[str, list[DiscoveryEvent]] = {}
    for row in rows.with_any(tx, query, _event.c.endpoint_id, endpoint_ids):
        event = rows.from_columns(DiscoveryEvent, row, price=_price_from_json(row.price))
        events.setdefault(row.endpoint_id, []).append(event)
    return events


def _price_to_json(price: Price | None) -> str | None:
    return None if price is None else _PRICE.dump_json(price).decode()


def _price_from_json(text: str | None) -> Price | None:
    return None if text is None else _PRICE.validate_json(text)


def has_changed(
    tx: Connection, endpoint_id: str, *, source: str, before: str, after: str, since: int
) -> bool:
    """Whether a source saw this change of an endpoint's payTo at an instant (ms UTC) or later."""
    return rows.exist(
        tx,
        _event.c.endpoint_id == endpoint_id,
        _event.c.at >= since,
        _event.c.event == PAYTO_CHANGED,
        _event.c.source == source,
        _event.c.before == before,
        _event.c.after == after,
    )


def forget_events(tx: Connection, *, now: int, limit: int) -> int:
    """Remove up to `limit` events that are too old, the oldest first; returns how many."""
    old = (
        sa.select(_event.c.id)
        .where(_event.c.at < now - DISCOVERY_EVENTS_MS)
        .order_by(_event.c.at)
        .limit(limit)
    )
    return tx.execute(_event.delete().where(_event.c.id.in_(old))).rowcount


def _update(tx: Connection, changed: Sequence[LockedEndpoint], names: Sequence[str]) -> None:
    """Write some columns of endpoints, by their ids."""
    if not changed:
        return
    columns = schema.endpoint.c
    statement = (
        schema.endpoint.update()
        .where(columns.id == sa.bindparam("id_"))
        .values({name: sa.bindparam(f"{name}_", type_=columns[name].type) for name in names})
    )
    updates = [_columns(locked) for locked in changed]
    tx.execute(statement, [{f"{name}_": row[name] for name in ("id", *names)} for row in updates])


def _columns(locked: LockedEndpoint) -> dict[str, Any]:
    """The columns of an endpoint that a directory lists."""
    own = rows.to_columns(locked, "endpoint", adopted=False)
    return to_row(locked.endpoint) | own
