"""Rows of listings and discovery events: the sources that list an endpoint, since when and at what
price.

A listing belongs to one source. Transactions that change listings run one after another
(LISTINGS_TURN), so that two sources are merged into one endpoint. monitor/discovery decides what an
entry changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.directory.entry_record import EntryStatement
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.endpoint.terms import Advertised, KnownOffer, PayToHistory
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.watch.watch_rules import DISCOVERY_EVENTS_MS
from tollgauge.db import schema
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store import rows
from tollgauge.store.endpoints import endpoints
from tollgauge.store.endpoints.crawls import Crawl
from tollgauge.store.endpoints.endpoints import PUBLIC

# Taken by all transactions that add or delete endpoints or change listings.
LISTINGS_TURN: Final = "listings"

_SCORE: Final = ("score_due", "score_next")
_ROWS: Final = 1_000
_event: Final = schema.discovery_event
_OF_SOURCE: Final = sa.select(schema.listing).where(
    schema.listing.c.source == sa.bindparam("source"),
    rows.any_of(schema.listing.c.endpoint_id),
)
_COMPARABLE: Final = (
    sa.select(
        schema.listing,
        *endpoint_table.c["resource", "offers", "templated", "payto_history"],
        *endpoint_table.c["quote_at", "down_since"],
    )
    .join(endpoint_table, endpoint_table.c.id == schema.listing.c.endpoint_id)
    .where(PUBLIC)
)
_EVENTS: Final = (
    sa.select(_event)
    .where(
        rows.any_of(_event.c.endpoint_id),
        _event.c.at > sa.bindparam("since"),
        _event.c.at <= sa.bindparam("until"),
    )
    .order_by(_event.c.at, _event.c.id)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedEndpoint:
    """An endpoint whose row is locked until the transaction ends.

    `quote_source` is the source of its price. Its score is due at `score_due`; for `score_next` see
    the columns in db/schema.
    """

    endpoint: Endpoint
    quote_source: str | None
    score_due: int
    score_next: int | None

    def owing_score(self, now: int) -> LockedEndpoint:
        """Return the endpoint with its score due at `now` or earlier."""
        return replace(self, score_due=min(self.score_due, now), score_next=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredListing:
    """The entry of one source for one endpoint.

    `crawl_id` is the last crawl that saw it, `delisted_at` the time of a complete crawl that did
    not; the entry of a source that lists the endpoint again keeps its `first_seen`. `terms` is None
    until the source states some, `statement` if it states none.
    """

    endpoint_id: str
    source: str
    crawl_id: int
    first_seen: int
    last_seen: int
    delisted_at: int | None
    terms: Advertised | None
    scheme: str = ""
    statement: EntryStatement | None = None


def lock(tx: Connection, ids: Iterable[str]) -> dict[str, LockedEndpoint]:
    """Lock endpoints in the order of their IDs and return them by ID; unknown IDs are left out."""
    return {
        id_: rows.from_columns(LockedEndpoint, row, endpoint=rows.to_endpoint(row))
        for id_, row in endpoints.lock(tx, ids).items()
    }


def of_source(tx: Connection, source: str, ids: Iterable[str]) -> dict[str, StoredListing]:
    """Return a source's listings of endpoints by endpoint ID."""
    found = rows.with_any(tx, _OF_SOURCE, ids, source=source)
    return {row.endpoint_id: _stored_listing(row) for row in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparableListing:
    """The listing of a public endpoint, with what it is compared with: see the columns of the
    endpoint.
    """

    listing: StoredListing
    resource: str
    offers: tuple[KnownOffer, ...]
    templated: bool
    payto_history: PayToHistory | None
    quote_at: int | None
    down_since: int | None

    @property
    def pay_to_varies(self) -> bool:
        """Whether each offer names another payTo (core/endpoint/terms)."""
        history = self.payto_history
        return history is not None and history.is_varying(self.quote_at)


def of_endpoint(tx: Connection, endpoint_id: str) -> tuple[ComparableListing, ...]:
    """Return an endpoint's listings, present and former, in the order in which they began."""
    query = _COMPARABLE.where(schema.listing.c.endpoint_id == endpoint_id)
    order = schema.listing.c["first_seen", "source"]
    return tuple(map(_comparable, tx.execute(query.order_by(*order))))


def all_listed(tx: Connection) -> Iterator[ComparableListing]:
    """Yield the listings of all sources that still contain them."""
    query = _COMPARABLE.where(schema.listing.c.delisted_at.is_(None))
    return map(_comparable, tx.execute(query, execution_options={"yield_per": _ROWS}))


def dropped_last(tx: Connection, source: str, *, limit: int) -> tuple[ComparableListing, ...]:
    """Return the listings that a source dropped last, newest first."""
    query = _COMPARABLE.where(schema.listing.c.source == source, schema.DROPPED)
    query = query.order_by(schema.listing.c.delisted_at.desc()).limit(limit)
    return tuple(map(_comparable, tx.execute(query)))


def save(tx: Connection, listings: Sequence[StoredListing]) -> None:
    """Insert or replace listings. An existing one keeps its `first_seen`."""
    columns = [rows.to_columns(listing, "terms", quote=listing.terms) for listing in listings]
    rows.put(tx, schema.listing, columns, keep=("first_seen",))


def save_seen(tx: Connection, crawl: Crawl, ids: Iterable[str], *, at: int) -> None:
    """Record that a crawl saw unchanged listings of its source."""
    listing = schema.listing
    for chunk in rows.chunks(ids):
        tx.execute(
            listing.update()
            .where(listing.c.source == crawl.source, listing.c.endpoint_id.in_(chunk))
            .values(crawl_id=crawl.id, last_seen=at)
        )


def save_listed(tx: Connection, listed: Sequence[LockedEndpoint]) -> None:
    """Write all columns of listed endpoints, except those that only probes and scores write."""
    others = {column.name for column in schema.FIGURES} | {"id", "up_at", "down_since", "payable"}
    others |= {"unconfirmed_at", "failing_since", "payable_since"}
    others |= {"paused_until", "forms", "offers", "extensions", "version"}
    others |= {"payto_history"}
    names = [column.name for column in schema.endpoint.c if column.name not in others]
    _update(tx, listed, names)


def save_last_seen(
    tx: Connection, ids: Iterable[str], *, now: int, quote_at: int | None = None
) -> None:
    """Record that unchanged endpoints are listed, and the time of their price (`quote_at`), if
    listed.
    """
    values = {"last_seen": now} | ({} if quote_at is None else {"quote_at": quote_at})
    for chunk in rows.chunks(ids):
        tx.execute(schema.endpoint.update().where(schema.endpoint.c.id.in_(chunk)).values(values))


def save_sources(tx: Connection, changed: Sequence[LockedEndpoint]) -> None:
    """Write the sources and the listing status of endpoints, and when their score is due."""
    _update(tx, changed, ("sources", "status", *_SCORE))


def save_quotes(tx: Connection, quoted: Sequence[LockedEndpoint]) -> None:
    """Write the prices of endpoints with their sources, and when their score is due."""
    _update(tx, quoted, (*rows.QUOTE_COLUMNS, "quote_at", "quote_source", "payto_history", *_SCORE))


def save_confirmed(tx: Connection, confirmed: Sequence[LockedEndpoint]) -> None:
    """Write the time and source of unchanged prices.

    The prices are not written: that would also write the index entries that contain them.
    """
    _update(tx, confirmed, ("quote_at", "quote_source", "payto_history"))


def unseen(tx: Connection, crawl: Crawl, *, since: int) -> tuple[str, ...]:
    """Return the sorted IDs of endpoints that the crawl's source listed before, and that neither
    the crawl nor another one after `since` (ms UTC) saw.
    """
    query = sa.select(schema.listing.c.endpoint_id).where(
        *_not_seen_by(crawl), schema.listing.c.last_seen <= since
    )
    return tuple(sorted(tx.execute(query).scalars()))


def remove_unseen(
    tx: Connection, crawl: Crawl, ids: Sequence[str], *, at: int
) -> dict[str, EntryStatement | None]:
    """Mark the given listings as delisted that the crawl of their source did not see; return the
    last statements of the source about them by endpoint ID.
    """
    listing = schema.listing
    delisted = tx.execute(
        listing.update()
        .where(listing.c.endpoint_id.in_(ids), *_not_seen_by(crawl))
        .values(delisted_at=at)
        .returning(listing.c.endpoint_id, listing.c.statement)
    )
    return {row.endpoint_id: row.statement for row in delisted}


def _not_seen_by(crawl: Crawl) -> tuple[sa.ColumnElement[bool], ...]:
    listing = schema.listing.c
    return (
        listing.source == crawl.source,
        listing.crawl_id < crawl.id,
        listing.delisted_at.is_(None),
    )


def add_events(tx: Connection, events: Sequence[tuple[str, TermChange]]) -> None:
    """Append events, each with its endpoint's ID."""
    columns = [
        rows.to_columns(event, "kind", endpoint_id=id_, event=event.kind) for id_, event in events
    ]
    if columns:
        tx.execute(_event.insert(), columns)


def events(tx: Connection, endpoint_id: str, *, since: int, until: int) -> tuple[TermChange, ...]:
    """Return an endpoint's events with `since < at <= until` (ms UTC), oldest first."""
    return tuple(events_of(tx, (endpoint_id,), since=since, until=until).get(endpoint_id, ()))


def events_of(
    tx: Connection, endpoint_ids: Sequence[str], *, since: int, until: int
) -> dict[str, list[TermChange]]:
    """Return the events of endpoints with `since < at <= until` (ms UTC) by ID, oldest first."""
    return rows.group(
        (row.endpoint_id, rows.from_columns(TermChange, row, kind=row.event))
        for row in rows.with_any(tx, _EVENTS, endpoint_ids, since=since, until=until)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PayToChange:
    """A change of the payTo of a public endpoint."""

    endpoint_id: str
    resource: str
    host: str
    at: int
    source: str
    before: str
    after: str
    announced: bool


def payto_changes(tx: Connection, address: str, *, limit: int) -> tuple[PayToChange, ...]:
    """Return the latest changes to or from a payTo at public endpoints, newest first."""
    found: list[PayToChange] = []
    for side in (_event.c.before, _event.c.after):
        query = (
            sa.select(
                *_event.c["endpoint_id", "at", "source", "before", "after", "announced"],
                *endpoint_table.c["resource", "host"],
            )
            .join(endpoint_table, endpoint_table.c.id == _event.c.endpoint_id)
            .where(schema.PAYTO_EVENT, side == address, PUBLIC)
            .order_by(_event.c.at.desc())
            .limit(limit)
        )
        found += [rows.from_columns(PayToChange, row) for row in tx.execute(query)]
    return tuple(sorted(set(found), key=lambda one: (-one.at, one.endpoint_id))[:limit])


def has_changed(
    tx: Connection, endpoint_id: str, *, source: str, before: str, after: str, since: int
) -> bool:
    """Return whether a source saw this change of an endpoint's payTo at `since` (ms UTC) or
    later.
    """
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
    """Delete up to `limit` expired events, oldest first; return their number."""
    old = _event.c.at < now - DISCOVERY_EVENTS_MS
    return rows.delete_batch(tx, _event, old, order_by=(_event.c.at,), limit=limit)


def _stored_listing(row: Any) -> StoredListing:
    return rows.from_columns(StoredListing, row, terms=row.quote)


def _comparable(row: Any) -> ComparableListing:
    return rows.from_columns(ComparableListing, row, listing=_stored_listing(row))


def _update(tx: Connection, changed: Sequence[LockedEndpoint], names: Sequence[str]) -> None:
    """Write the named columns of endpoints."""
    updates = [
        rows.from_endpoint(locked.endpoint) | rows.to_columns(locked, "endpoint", adopted=False)
        for locked in changed
    ]
    columns = [{name: row[name] for name in ("id", *names)} for row in updates]
    rows.update_each(tx, schema.endpoint, columns)
