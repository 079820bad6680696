"""Rows of changes, and of the state with which an endpoint's next result is compared.

monitor/watched_changes decides which changes a result causes; jobs/alert dispatches each change
once. The transaction that adds changes holds the endpoint's row lock, so that IDs of one endpoint
become visible in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.probe.rollup import Rollup
from tollgauge.core.watch.change_state import PUBLIC_N, ChangeState
from tollgauge.core.watch.changes import Change
from tollgauge.core.watch.watch_rules import CHANGES_MS
from tollgauge.db import schema
from tollgauge.db.codec import JsonObject, columns_of, json_of
from tollgauge.db.schema import ForeignText, Serial, metadata, partial_index
from tollgauge.store import rows
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.store.watches import watches

_WAITING: Final = sa.text("dispatched_at IS NULL")

change = sa.Table(
    "flip",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), nullable=False),
    *columns_of(
        Change, reason=ForeignText, before=JsonObject, after=JsonObject, evidence=JsonObject
    ),
    sa.Column("dispatched_at", sa.BigInteger),
    # The endpoint's host, so that the newest changes of a host are found by an index.
    sa.Column("host", sa.Text, nullable=False, server_default=""),
    sa.Index("ix_flip_host", "host", "id"),
    sa.Index("ix_flip_endpoint_id", "endpoint_id", "id"),
    sa.Index("ix_flip_at", "at"),
    sa.Index("ix_flip_type_at", "type", "at"),
    partial_index("ix_flip_waiting", "id", where=_WAITING),
)

change_state_row = sa.Table(
    "standing",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    sa.Column("state", json_of(ChangeState), nullable=False),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """A change with its ID and endpoint."""

    id: int
    endpoint_id: str
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident(StoredChange):
    """A public change with the endpoint's URL. `simulated`: the endpoint was created by the
    demo.
    """

    resource: str
    simulated: bool


_INCIDENTS: Final = (
    sa.select(change, *schema.endpoint.c["resource", "simulated"])
    .join(schema.endpoint, schema.endpoint.c.id == change.c.endpoint_id)
    .where(endpoints.PUBLIC)
    .where(sa.or_(change.c.sensitivity.is_(None), change.c.sensitivity == PUBLIC_N))
)
_HOSTS: Final = sa.select(*schema.endpoint.c["id", "host"]).where(rows.any_of(schema.endpoint.c.id))
_STATES: Final = sa.select(change_state_row).where(rows.any_of(change_state_row.c.endpoint_id))


def add(tx: Connection, changes: Sequence[tuple[str, Change]]) -> None:
    """Append changes with their endpoint IDs. The caller's transaction has locked the endpoints'
    rows.
    """
    if not changes:
        return
    known = rows.with_any(tx, _HOSTS, {id_ for id_, _ in changes})
    hosts = {row.id: row.host for row in known}
    columns = [rows.to_columns(new, endpoint_id=id_, host=hosts[id_]) for id_, new in changes]
    tx.execute(change.insert(), columns)


def change_states(tx: Connection, ids: Iterable[str]) -> dict[str, ChangeState]:
    """Return the stored states of endpoints by ID."""
    return {row.endpoint_id: row.state for row in rows.with_any(tx, _STATES, ids)}


def save_change_states(tx: Connection, states: Mapping[str, ChangeState]) -> None:
    """Store the states of endpoints by ID."""
    columns = [{"endpoint_id": id_, "state": states[id_]} for id_ in sorted(states)]
    rows.put(tx, change_state_row, columns)


def last_up(tx: Connection, endpoint_id: str, *, before: int) -> int | None:
    """Return when an endpoint was last up before a time, on that UTC day or the day before, or
    None.
    """
    probe = schema.probe.c
    return rows.highest(
        tx,
        probe.at,
        probe.day.in_([day_of(before) - 1, day_of(before)]),
        probe.endpoint_id == endpoint_id,
        probe.at < before,
        probe.up.is_(True),
        probe.attribution == Attribution.TARGET,
    )


def load_watched(
    tx: Connection,
    watch: watches.Watch,
    *,
    after: int = 0,
    since: int = 0,
    limit: int | None = None,
) -> tuple[StoredChange, ...]:
    """Return changes of a watch's endpoint in its paid time, after a change ID and a time (ms UTC),
    oldest first.
    """
    query = (
        sa.select(change)
        .where(
            change.c.endpoint_id == watch.endpoint_id,
            change.c.id > after,
            change.c.at > max(watch.created_at, since),
            change.c.at <= watch.reports_until,
        )
        .order_by(change.c.id)
        .limit(limit)
    )
    return tuple(_stored_change(row) for row in tx.execute(query))


def newest(tx: Connection) -> int:
    """Return the ID of the newest change, 0 without any. No cursor is ahead of it."""
    return rows.highest(tx, change.c.id) or 0


def public(
    tx: Connection,
    *,
    endpoint_id: str | None = None,
    host: str | None = None,
    limit: int = 50,
) -> tuple[Incident, ...]:
    """Return the newest public incidents of an endpoint or a host."""
    of_host = change.c.host == host
    subject = of_host if endpoint_id is None else change.c.endpoint_id == endpoint_id
    query = _INCIDENTS.where(subject).order_by(change.c.id.desc()).limit(limit)
    return tuple(map(_incident, tx.execute(query)))


def public_since(
    tx: Connection, *, since: int, kind: str | None = None, after: int | None = None, limit: int
) -> tuple[Incident, ...]:
    """Return the newest public incidents since a time (ms UTC), optionally of one `kind`.

    `after` is the last ID of the previous page; an unknown ID returns the first page.
    """
    newest_first = (change.c.at.desc(), change.c.id.desc())
    query = _INCIDENTS.where(change.c.at >= since).order_by(*newest_first).limit(limit)
    if kind is not None:
        query = query.where(change.c.type == kind)
    last = None
    if after is not None:
        last = tx.execute(sa.select(change.c.at, change.c.id).where(change.c.id == after)).first()
    if last is not None:
        query = query.where(sa.tuple_(change.c.at, change.c.id) < (last.at, last.id))
    return tuple(map(_incident, tx.execute(query)))


def lock_undispatched(tx: Connection, *, limit: int) -> tuple[StoredChange, ...]:
    """Lock and return the oldest changes that were not dispatched."""
    query = (
        sa.select(change)
        .where(change.c.dispatched_at.is_(None))
        .order_by(change.c.id)
        .limit(limit)
        # SKIP LOCKED: another alert worker dispatches the locked ones.
        .with_for_update(skip_locked=True)
    )
    return tuple(_stored_change(row) for row in tx.execute(query))


def has_undispatched(tx: Connection) -> bool:
    """Return whether a change is not dispatched yet."""
    return rows.exist(tx, change.c.dispatched_at.is_(None))


def mark_dispatched(tx: Connection, ids: Sequence[int], *, now: int) -> None:
    """Mark changes as dispatched."""
    tx.execute(change.update().where(change.c.id.in_(ids)).values(dispatched_at=now))


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` expired and dispatched changes; return their number.

    Changes that a readable watch reports are kept, and so is the newest change: cursors rely on
    growing IDs.
    """
    newest = sa.select(sa.func.max(change.alias().c.id)).scalar_subquery()
    seen_by_watch = sa.exists().where(
        watches.watch.c.endpoint_id == change.c.endpoint_id,
        watches.watch.c.created_at < change.c.at,
    )
    return rows.delete_batch(
        tx,
        change,
        change.c.at < now - CHANGES_MS,
        change.c.dispatched_at.is_not(None),
        change.c.id < newest,
        ~seen_by_watch,
        order_by=(change.c.at,),
        limit=limit,
    )


def checks(tx: Connection, watch: watches.Watch, *, since: int, until: int) -> tuple[int, int]:
    """Return (probes, scored probes) of a watch's endpoint with `since < at <= until`, without
    confirmation probes.

    Whole days are counted from their sums. Counts of deleted days come from the watch and cover it
    from its start.
    """
    first, last = day_of(since + 1), day_of(until)
    edge = min(until, (first + 1) * DAY_MS - 1)
    results = list(probes.history(tx, watch.endpoint_id, since=since, until=edge))
    days: tuple[Rollup, ...] = ()
    if last > first:
        results += probes.history(tx, watch.endpoint_id, since=last * DAY_MS - 1, until=until)
    if last > first + 1:
        days = probes.days(tx, watch.endpoint_id, first_day=first + 1, last_day=last - 1)
    counted = [result for result in results if not result.confirms]
    whole = since == watch.created_at
    return (
        len(counted) + sum(day.probes for day in days) + (watch.old_probes if whole else 0),
        sum(result.scored for result in counted)
        + sum(day.scored for day in days)
        + (watch.old_scored if whole else 0),
    )


def _stored_change(row: Any) -> StoredChange:
    return rows.from_columns(StoredChange, row, change=rows.from_columns(Change, row))


def _incident(row: Any) -> Incident:
    return rows.from_columns(Incident, row, change=rows.from_columns(Change, row))
