"""Watches: paid subscriptions to the changes of one endpoint, each until an instant.

Rules:
- the bearer secret is stored as its SHA-256, the signing key encrypted, as the caller sealed it;
- what happens to a watch is appended to its events under the lock of its row (`note`);
- an endpoint is probed densely until the last of its active watches ends.

Where notices go is store/watches/destinations's, what happened to a watch
store/watches/watch_events's, its payments store/watches/watch_payments's, and deliveries
store/watches/outbox's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.watch_rules import WatchRequest, WatchState
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import metadata
from tollgauge.store import rows
from tollgauge.store.schedule import hosts
from tollgauge.store.watches import destinations, watch_events
from tollgauge.store.watches.destinations import Destination

LIVE: Final = (WatchState.PENDING.value, WatchState.ACTIVE.value)
_BATCH: Final = 500

watch = sa.Table(
    "watch",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("secret_hash", sa.Text, nullable=False, unique=True),
    # The key of the signatures, sealed; NULL while no destination wants any.
    sa.Column("sealed_key", sa.LargeBinary),
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("events", sa.Text, nullable=False),
    sa.Column("sensitivity", sa.Integer, nullable=False),
    sa.Column("digest", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    # When it was cancelled or expired; events after it are not its own.
    sa.Column("ended_at", sa.BigInteger),
    # When something is to be done about it next: the notice, the digest, the end.
    sa.Column("due", sa.BigInteger, nullable=False),
    sa.Column("expiring_told", sa.Boolean, nullable=False),
    sa.Column("digest_at", sa.BigInteger, nullable=False),
    # When the payer last signed for a new secret.
    sa.Column("rotated_at", sa.BigInteger),
    # How many of its endpoint's probes, and of the scored ones, are too old to be kept.
    sa.Column("old_probes", sa.Integer, nullable=False, server_default="0"),
    sa.Column("old_scored", sa.Integer, nullable=False, server_default="0"),
    sa.Index("ix_watch_endpoint_id_state", "endpoint_id", "state"),
    sa.Index("ix_watch_state_due", "state", "due"),
    sa.Index("ix_watch_expires_at", "expires_at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One watch. Instants are ms UTC. `old_probes` and `old_scored` count the probes of the time
    that was paid for which are too old to be kept.
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
        """The last instant (ms UTC) whose changes the watch reports."""
        return self.expires_at if self.ended_at is None else min(self.ended_at, self.expires_at)


def add(tx: Connection, added: Watch) -> None:
    """Add a watch."""
    columns = rows.to_columns(
        added,
        "watch_request",
        state=added.state.value,
        due=_due(added),
        digest_at=added.digest_at or added.created_at + DAY_MS,
        **_request_values(added.watch_request),
    )
    tx.execute(watch.insert().values(columns))


def get(tx: Connection, watch_id: str, *, lock: bool = False) -> Watch | None:
    """One watch, or None. `lock` keeps others from changing it until the transaction ends."""
    query = sa.select(watch).where(watch.c.id == watch_id)
    row = tx.execute(query.with_for_update() if lock else query).first()
    return _watch(row) if row else None


def by_secret(tx: Connection, secret_hash: str) -> Watch | None:
    """The watch of a bearer secret's hash, or None."""
    query = sa.select(watch).where(watch.c.secret_hash == secret_hash)
    row = tx.execute(query).first()
    return _watch(row) if row else None


def listeners(tx: Connection, endpoint_ids: Iterable[str], *, since: int) -> tuple[Watch, ...]:
    """The watches of some endpoints that may report what happened at `since` or later: pending and
    active ones, and those that expired after it.
    """
    expired = (watch.c.state == WatchState.EXPIRED.value, watch.c.expires_at >= since)
    query = sa.select(watch).where(
        watch.c.endpoint_id.in_(list(endpoint_ids)),
        sa.or_(watch.c.state.in_(LIVE), sa.and_(*expired)),
    )
    return tuple(_watch(row) for row in tx.execute(query))


def of_endpoints(tx: Connection, endpoint_ids: Iterable[str]) -> tuple[Watch, ...]:
    """Every watch of some endpoints."""
    query = sa.select(watch)
    return tuple(map(_watch, rows.with_any(tx, query, watch.c.endpoint_id, endpoint_ids)))


def count_old(tx: Connection, subject: Watch, *, probes: int, scored: int) -> None:
    """Add probes that are removed now to the counts of a watch."""
    counts = {"old_probes": watch.c.old_probes + probes, "old_scored": watch.c.old_scored + scored}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(counts))


def sensitivities(tx: Connection, endpoint_id: str) -> frozenset[int]:
    """The sensitivities of an endpoint's watches: how many failed probes each waits for."""
    query = (
        sa.select(watch.c.sensitivity)
        .distinct()
        .where(watch.c.endpoint_id == endpoint_id, watch.c.state.in_(LIVE))
    )
    return frozenset(tx.execute(query).scalars())


def latest(tx: Connection, *, limit: int) -> tuple[Watch, ...]:
    """The newest watches, for the operator."""
    query = sa.select(watch).order_by(watch.c.created_at.desc(), watch.c.id).limit(limit)
    return tuple(_watch(row) for row in tx.execute(query))


def start(tx: Connection, subject: Watch, *, now: int) -> None:
    """Start a pending watch, which the caller has locked."""
    values = {"state": WatchState.ACTIVE.value, "due": _due(subject)}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(**values))
    note(
        tx,
        subject.id,
        rules.CREATED,
        watch_events.request_json(subject.watch_request),
        now=subject.created_at,
    )
    _watched(tx, subject.endpoint_id, now=now)


def extend(tx: Connection, subject: Watch, *, paid_at: int, now: int) -> None:
    """Extend a watch, which the caller has locked, by a period that was paid at `paid_at`. An
    expired watch becomes active again.
    """
    until = rules.renewed_until(subject.expires_at, now=paid_at)
    values: dict[str, Any] = {"expires_at": until}
    if subject.state is not WatchState.CANCELLED:  # a cancelled watch stays cancelled
        active = {"state": WatchState.ACTIVE.value, "ended_at": None}
        values |= {**active, "expiring_told": False, "due": now}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(**values))
    note(tx, subject.id, rules.RENEWED, {"expiresAt": until}, now=now)
    _watched(tx, subject.endpoint_id, now=now)


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
    """Change what a watch, which the caller has locked, listens to and its destinations; an
    `edited` event says what changed.
    """
    before, after = (
        watch_events.request_json(subject.watch_request),
        watch_events.request_json(watch_request),
    )
    changes: dict[str, Any] = {key: after[key] for key in after if after[key] != before[key]}
    changes |= {"destinations_added": [new.masked for new in added]} if added else {}
    changes |= {"destinations_removed": len(removed)} if removed else {}
    started = subject.digest_at if subject.watch_request.digest else now + DAY_MS
    values = {**_request_values(watch_request), "sealed_key": sealed_key, "digest_at": started}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(**values, due=now))
    destinations.add(tx, added)
    destinations.remove(tx, removed, now=now)
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
    """Give a watch another secret. The request was signed at `signed_at`; False, and nothing
    changed, if a signature of that instant or a later one was used before.
    """
    newer = sa.or_(watch.c.rotated_at.is_(None), watch.c.rotated_at < signed_at)
    values = {"secret_hash": secret_hash, "sealed_key": sealed_key, "rotated_at": signed_at}
    done = tx.execute(watch.update().where(watch.c.id == watch_id, newer).values(**values))
    if done.rowcount != 1:
        return False
    note(tx, watch_id, rules.EDITED, {"secret_rotated": True}, now=now)
    return True


def end(tx: Connection, subject: Watch, state: WatchState, *, now: int) -> int | None:
    """Cancel or expire a watch. After its last active watch an endpoint is probed at the normal
    cadence again. Returns the event's id, None if the watch had ended before.
    """
    done = tx.execute(
        watch.update()
        .where(watch.c.id == subject.id, watch.c.state == WatchState.ACTIVE.value)
        .values(state=state.value, ended_at=now)
    )
    if done.rowcount != 1:
        return None
    event = note(tx, subject.id, state.value, {}, now=now)
    _watched(tx, subject.endpoint_id, now=now)
    return event


def due(tx: Connection, *, now: int, limit: int = _BATCH) -> tuple[Watch, ...]:
    """Active watches with a notice, digest or end due, locked until the transaction ends."""
    query = (
        sa.select(watch)
        .where(watch.c.state == WatchState.ACTIVE.value, watch.c.due <= now)
        .order_by(watch.c.due)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return tuple(_watch(row) for row in tx.execute(query))


def any_due(tx: Connection, *, now: int) -> bool:
    """Whether an active watch is due."""
    return rows.exist(tx, watch.c.state == WatchState.ACTIVE.value, watch.c.due <= now)


def reschedule(tx: Connection, subject: Watch, *, expiring_told: bool, digest_at: int) -> None:
    """Record which notices have been sent, and when the watch is due next."""
    due_next = _due(replace(subject, expiring_told=expiring_told, digest_at=digest_at))
    values = {"expiring_told": expiring_told, "digest_at": digest_at, "due": due_next}
    tx.execute(watch.update().where(watch.c.id == subject.id).values(values))


def note(tx: Connection, watch_id: str, type_: str, detail: Mapping[str, Any], *, now: int) -> int:
    """Append an event to a watch and return the event's id."""
    # The lock keeps the ids of one watch in the order in which they become visible.
    tx.execute(sa.select(watch.c.id).where(watch.c.id == watch_id).with_for_update())
    return watch_events.append(tx, watch_id, type_, detail, now=now)


def _watched(tx: Connection, endpoint_id: str, *, now: int) -> None:
    """From now on, probe an endpoint densely until the last of its active watches ends."""
    until = (
        sa.select(sa.func.coalesce(sa.func.max(watch.c.expires_at), 0))
        .where(watch.c.endpoint_id == endpoint_id, watch.c.state == WatchState.ACTIVE.value)
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
    """When a watch is due next (ms UTC)."""
    instants = [subject.expires_at]
    if not subject.expiring_told:
        instants.append(subject.expires_at - rules.EXPIRING_MS)
    if subject.watch_request.digest:
        instants.append(subject.digest_at)
    return min(instants)


def _request_values(watch_request: WatchRequest) -> dict[str, Any]:
    return {
        "events": orjson.dumps(watch_request.events).decode(),
        "sensitivity": watch_request.sensitivity,
        "digest": watch_request.digest,
    }


def _watch(row: Any) -> Watch:
    return rows.from_columns(
        Watch,
        row,
        state=WatchState(row.state),
        watch_request=WatchRequest(
            events=tuple(orjson.loads(row.events)), sensitivity=row.sensitivity, digest=row.digest
        ),
    )
