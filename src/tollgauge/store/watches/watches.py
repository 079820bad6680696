"""Watches: paid subscriptions to the changes of one endpoint until an end time, and destinations,
the URLs to which their alerts are sent.

The bearer secret is stored as SHA-256 and the signing key encrypted by the caller. Events of a
watch are appended under its row lock (`note`). An endpoint is probed at the watched rate until its
last active watch ends.

The caller encrypts the URLs of destinations; only `masked` may be shown. A removed destination
receives nothing more and keeps its row until its watch is deleted. A destination receives one
delivery at a time, from the worker that holds its lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.watch_rules import DestinationKind, WatchRequest, WatchState
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import metadata, partial_index
from tollgauge.store import rows
from tollgauge.store.schedule import hosts
from tollgauge.store.watches import watch_events
from tollgauge.store.watches.watch_events import watch_event

LIVE: Final = (WatchState.PENDING, WatchState.ACTIVE)
_BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One watch. Times are ms UTC.

    Attributes:
        sealed_key: The encrypted signing key; None while no destination needs one.
        ended_at: When it was cancelled or expired; it does not report later events.
        rotated_at: When the payer last signed a request for a new secret.
        old_probes, old_scored: Probes, and scored probes, in its paid time that have been deleted.
    """

    id: str
    secret_hash: str
    endpoint_id: str
    created_at: int
    expires_at: int
    watch_request: WatchRequest = field(default_factory=WatchRequest)
    state: WatchState = WatchState.PENDING
    sealed_key: bytes | None = None
    ended_at: int | None = None
    expiring_told: bool = False
    digest_at: int = 0
    rotated_at: int | None = None
    old_probes: int = 0
    old_scored: int = 0

    @property
    def reports_until(self) -> int:
        """The end of the changes that the watch reports (ms UTC)."""
        return self.expires_at if self.ended_at is None else min(self.ended_at, self.expires_at)


watch = sa.Table(
    "watch",
    metadata,
    *columns_of(Watch, key=("id",), without=("watch_request",)),
    *columns_of(WatchRequest),
    # When its next expiry warning, digest or end is due.
    sa.Column("due", sa.BigInteger, nullable=False),
    sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"]),
    sa.UniqueConstraint("secret_hash"),
    sa.Index("ix_watch_endpoint_id_state", "endpoint_id", "state"),
    sa.Index("ix_watch_state_due", "state", "due"),
    sa.Index("ix_watch_expires_at", "expires_at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A destination of a watch's alerts. `masked` may be shown; the URL in `sealed_url` must not.
    `failures` are consecutive: healthy destinations are served before failing ones. Times are ms
    UTC.
    """

    id: str
    watch_id: str
    kind: DestinationKind
    sealed_url: bytes
    masked: str
    created_at: int
    removed_at: int | None = None
    disabled_at: int | None = None
    disabled_reason: str = ""
    failures: int = 0

    @property
    def host(self) -> str:
        """The URL's host, the only part that is known without decrypting it."""
        return urlsplit(self.masked).hostname or ""


destination = sa.Table(
    "destination",
    metadata,
    *columns_of(Destination, key=("id",)),
    # Lease for one delivery at a time: worker and expiry.
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sa.Index("ix_destination_watch_id", "watch_id"),
    partial_index("ix_destination_failing", "id", where=sa.text("failures > 0")),
)


def add(tx: Connection, added: Watch) -> None:
    """Add a watch."""
    columns = rows.to_columns(
        added,
        "watch_request",
        due=_due(added),
        digest_at=added.digest_at or added.created_at + DAY_MS,
        **rows.to_columns(added.watch_request),
    )
    tx.execute(watch.insert().values(columns))


def add_destinations(tx: Connection, destinations: Sequence[Destination]) -> None:
    """Add destinations to their watches."""
    if destinations:
        columns = [rows.to_columns(added, lease_until=0) for added in destinations]
        tx.execute(destination.insert(), columns)


def load_destinations(
    tx: Connection, watch_ids: Iterable[str]
) -> dict[str, tuple[Destination, ...]]:
    """Return the destinations of watches by watch ID, oldest first, without removed ones."""
    ids = list(watch_ids)
    query = (
        sa.select(destination)
        .where(rows.any_of(destination.c.watch_id), destination.c.removed_at.is_(None))
        .order_by(destination.c.created_at, destination.c.id)
    )
    known = rows.with_any(tx, query, ids)
    by_watch = rows.group((row.watch_id, rows.from_columns(Destination, row)) for row in known)
    return {watch_id: tuple(by_watch.get(watch_id, ())) for watch_id in ids}


def get(tx: Connection, watch_id: str, *, lock: bool = False) -> Watch | None:
    """Return a watch, or None. `lock` locks its row until the transaction ends."""
    query = sa.select(watch).where(watch.c.id == watch_id)
    row = tx.execute(query.with_for_update() if lock else query).first()
    return _watch(row) if row else None


def by_secret(tx: Connection, secret_hash: str) -> Watch | None:
    """Return the watch of a bearer secret's hash, or None."""
    query = sa.select(watch).where(watch.c.secret_hash == secret_hash)
    row = tx.execute(query).first()
    return _watch(row) if row else None


def listeners(tx: Connection, endpoint_ids: Iterable[str], *, since: int) -> tuple[Watch, ...]:
    """Return the watches of endpoints that may report changes since `since`: pending and active
    ones, and those that expired later.
    """
    expired = (watch.c.state == WatchState.EXPIRED, watch.c.expires_at >= since)
    query = sa.select(watch).where(
        watch.c.endpoint_id.in_(list(endpoint_ids)),
        sa.or_(watch.c.state.in_(LIVE), sa.and_(*expired)),
    )
    return tuple(_watch(row) for row in tx.execute(query))


def of_endpoints(tx: Connection, endpoint_ids: Iterable[str]) -> tuple[Watch, ...]:
    """Return all watches of endpoints."""
    query = sa.select(watch).where(rows.any_of(watch.c.endpoint_id))
    return tuple(map(_watch, rows.with_any(tx, query, endpoint_ids)))


def count_old(tx: Connection, subject: Watch, *, probes: int, scored: int) -> None:
    """Add `probes` that are being deleted, `scored` of them with a verdict, to a watch's counts."""
    counts = {"old_probes": watch.c.old_probes + probes, "old_scored": watch.c.old_scored + scored}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(counts))


def sensitivities(tx: Connection, endpoint_id: str) -> frozenset[int]:
    """Return the sensitivities of an endpoint's watches: the numbers of consecutive failures they
    wait for.
    """
    query = (
        sa.select(watch.c.sensitivity)
        .distinct()
        .where(watch.c.endpoint_id == endpoint_id, watch.c.state.in_(LIVE))
    )
    return frozenset(tx.execute(query).scalars())


def latest(tx: Connection, *, limit: int) -> tuple[Watch, ...]:
    """Return the newest watches, for the operator."""
    query = sa.select(watch).order_by(watch.c.created_at.desc(), watch.c.id).limit(limit)
    return tuple(_watch(row) for row in tx.execute(query))


def start(tx: Connection, subject: Watch, *, now: int) -> None:
    """Start a pending watch that the caller has locked."""
    values = {"state": WatchState.ACTIVE, "due": _due(subject)}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(**values))
    settings = watch_events.request_json(subject.watch_request)
    note(tx, subject.id, rules.CREATED, settings, now=subject.created_at)
    _update_watched_until(tx, subject.endpoint_id, now=now)


def extend(tx: Connection, subject: Watch, *, paid_at: int, now: int) -> None:
    """Extend a watch, locked by the caller, by a period paid at `paid_at`. An expired watch becomes
    active again.
    """
    until = rules.compute_renewal(subject.expires_at, now=paid_at)
    values: dict[str, Any] = {"expires_at": until}
    # A watch that was cancelled while its renewal was being paid stays cancelled.
    if subject.state is not WatchState.CANCELLED:
        values |= {"state": WatchState.ACTIVE, "ended_at": None, "expiring_told": False, "due": now}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(**values))
    note(tx, subject.id, rules.RENEWED, {"expiresAt": until}, now=now)
    _update_watched_until(tx, subject.endpoint_id, now=now)


def edit(
    tx: Connection,
    subject: Watch,
    *,
    watch_request: WatchRequest,
    sealed_key: bytes | None,
    added: Sequence[Destination],
    removed: Sequence[str],
    now: int,
) -> None:
    """Change the settings and destinations of a watch that the caller has locked, and append an
    `edited` event with the changes.
    """
    before = watch_events.request_json(subject.watch_request)
    after = watch_events.request_json(watch_request)
    changes: dict[str, Any] = {key: after[key] for key in after if after[key] != before[key]}
    changes |= {"destinations_added": [new.masked for new in added]} if added else {}
    changes |= {"destinations_removed": len(removed)} if removed else {}
    started = subject.digest_at if subject.watch_request.digest else now + DAY_MS
    values = {**rows.to_columns(watch_request), "sealed_key": sealed_key, "digest_at": started}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(**values, due=now))
    add_destinations(tx, added)
    gone = destination.update().where(destination.c.id.in_(removed))
    tx.execute(gone.values(removed_at=now))
    if changes:
        note(tx, subject.id, rules.EDITED, changes, now=now)


def rotate(
    tx: Connection,
    watch_id: str,
    *,
    secret_hash: str,
    sealed_key: bytes | None,
    signed_at: int,
    now: int,
) -> bool:
    """Replace a watch's secret.

    Returns False without a change if a signature of `signed_at` or later was already used.
    """
    newer = sa.or_(watch.c.rotated_at.is_(None), watch.c.rotated_at < signed_at)
    values = {"secret_hash": secret_hash, "sealed_key": sealed_key, "rotated_at": signed_at}
    done = tx.execute(watch.update().where(watch.c.id == watch_id, newer).values(**values))
    if done.rowcount != 1:
        return False
    note(tx, watch_id, rules.EDITED, {"secret_rotated": True}, now=now)
    return True


def end(tx: Connection, subject: Watch, state: WatchState, *, now: int) -> int | None:
    """Cancel or expire a watch; return the event's ID, or None if it had already ended.

    After its last active watch an endpoint is probed at the normal rate again.
    """
    done = tx.execute(
        watch.update()
        .where(watch.c.id == subject.id, watch.c.state == WatchState.ACTIVE)
        .values(state=state, ended_at=now)
    )
    if done.rowcount != 1:
        return None
    event = note(tx, subject.id, state.value, {}, now=now)
    _update_watched_until(tx, subject.endpoint_id, now=now)
    return event


def due(tx: Connection, *, now: int, limit: int = _BATCH) -> tuple[Watch, ...]:
    """Lock and return active watches with an expiry warning, digest or end due."""
    query = (
        sa.select(watch)
        .where(watch.c.state == WatchState.ACTIVE, watch.c.due <= now)
        .order_by(watch.c.due)
        .limit(limit)
        # SKIP LOCKED: another alert worker handles the locked ones.
        .with_for_update(skip_locked=True)
    )
    return tuple(_watch(row) for row in tx.execute(query))


def is_any_due(tx: Connection, *, now: int) -> bool:
    """Return whether an active watch is due."""
    return rows.exist(tx, watch.c.state == WatchState.ACTIVE, watch.c.due <= now)


def reschedule(tx: Connection, subject: Watch, *, expiring_told: bool, digest_at: int) -> None:
    """Record which messages were sent and compute when the watch is due next.

    Args:
        tx: A writing transaction.
        subject: The watch.
        expiring_told: Whether the reminder of its end was sent.
        digest_at: Time of the next digest (ms UTC).
    """
    due_next = _due(replace(subject, expiring_told=expiring_told, digest_at=digest_at))
    values = {"expiring_told": expiring_told, "digest_at": digest_at, "due": due_next}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(values))


def note(tx: Connection, watch_id: str, type_: str, detail: Mapping[str, Any], *, now: int) -> int:
    """Append an event to a watch and return the event's ID."""
    # Event IDs of a watch must become visible in order, or a reader's cursor would skip one.
    tx.execute(sa.select(watch.c.id).where(watch.c.id == watch_id).with_for_update())
    row = watch_event.insert().values(watch_id=watch_id, at=now, type=type_, detail=detail)
    return int(tx.execute(row.returning(watch_event.c.id)).scalar_one())


def _update_watched_until(tx: Connection, endpoint_id: str, *, now: int) -> None:
    """Probe an endpoint at the watched rate until its last active watch ends."""
    until = (
        sa.select(sa.func.coalesce(sa.func.max(watch.c.expires_at), 0))
        .where(watch.c.endpoint_id == endpoint_id, watch.c.state == WatchState.ACTIVE)
        .scalar_subquery()
    )
    tx.execute(
        endpoint_table.update()
        .where(endpoint_table.c.id == endpoint_id)
        .values(watched_until=until, asked_at=now)
    )
    soon = (
        endpoint_table.c.id == endpoint_id,
        endpoint_table.c.watched_until > now,
        endpoint_table.c.next_due > now,
    )
    tx.execute(endpoint_table.update().where(*soon).values(next_due=now))
    hosts.bring_watched_forward(tx, endpoint_id, now=now)


def _due(subject: Watch) -> int:
    """Return when a watch is due next (ms UTC)."""
    times = [subject.expires_at]
    if not subject.expiring_told:
        times.append(subject.expires_at - rules.EXPIRING_MS)
    if subject.watch_request.digest:
        times.append(subject.digest_at)
    return min(times)


def _watch(row: Any) -> Watch:
    return rows.from_columns(Watch, row, watch_request=rows.from_columns(WatchRequest, row))
