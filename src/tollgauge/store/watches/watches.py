"""Watches: who listens to which endpoint until when.

Rules:
- the bearer secret is stored as its SHA-256, the key of the signatures as the caller sealed it;
- what happens to a watch is appended to its events under the lock of its row (`note`);
- an endpoint is probed densely until the last of its active watches ends.

Where a watch tells is store/watches/destinations', what happened to it
store/watches/watch_events', what was paid for it store/watches/watch_payments'. The flips that it
is about are store/probes/changes', deliveries store/watches/outbox's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core import watch as rules
from tollgauge.core.units import DAY_MS
from tollgauge.core.watch import State, WatchRequest
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import metadata
from tollgauge.db.transaction import step
from tollgauge.store.watches import destinations, watch_events
from tollgauge.store.watches.destinations import Destination

LIVE: Final = (State.PENDING.value, State.ACTIVE.value)
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
    sa.Index("ix_watch_endpoint_id_state", "endpoint_id", "state"),
    sa.Index("ix_watch_state_due", "state", "due"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One watch. Instants are ms UTC."""

    id: str
    secret_hash: str
    endpoint_id: str
    created_at: int
    expires_at: int
    watch_request: WatchRequest = field(default_factory=WatchRequest)
    state: State = State.PENDING
    sealed_key: bytes | None = None
    ended_at: int | None = None
    expiring_told: bool = False
    digest_at: int = 0
    rotated_at: int | None = None

    @property
    def told_until(self) -> int:
        """What happens later than this is not its own."""
        return self.expires_at if self.ended_at is None else min(self.ended_at, self.expires_at)


def add(tx: Connection, made: Watch) -> None:
    """Add a watch."""
    tx.execute(watch.insert().values(**_values(made)))


@step
def get(tx: Connection, watch_id: str, *, lock: bool = False) -> Watch | None:
    """One watch, or None. `lock` keeps others from changing it until the transaction ends."""
    query = sa.select(watch).where(watch.c.id == watch_id)
    row = tx.execute(query.with_for_update() if lock else query).mappings().first()
    return _watch(row) if row else None


@step
def by_secret(tx: Connection, secret_hash: str) -> Watch | None:
    """The watch of a bearer secret's hash, or None."""
    query = sa.select(watch).where(watch.c.secret_hash == secret_hash)
    row = tx.execute(query).mappings().first()
    return _watch(row) if row else None


@step
def listeners(tx: Connection, endpoint_ids: Iterable[str], *, since: int) -> tuple[Watch, ...]:
    """The watches of some endpoints that could hear what happened at `since` or later: pending
    ones included, and those that expired after it.
    """
    ended = (watch.c.state == State.EXPIRED.value, watch.c.expires_at >= since)
    query = sa.select(watch).where(
        watch.c.endpoint_id.in_(list(endpoint_ids)),
        sa.or_(watch.c.state.in_(LIVE), sa.and_(*ended)),
    )
    return tuple(_watch(row) for row in tx.execute(query).mappings())


@step
def sensitivities(tx: Connection, endpoint_id: str) -> frozenset[int]:
    """How many misses the watches of an endpoint wait for."""
    query = (
        sa.select(watch.c.sensitivity)
        .distinct()
        .where(watch.c.endpoint_id == endpoint_id, watch.c.state.in_(LIVE))
    )
    return frozenset(tx.execute(query).scalars())


@step
def latest(tx: Connection, *, limit: int) -> tuple[Watch, ...]:
    """The newest watches, for the operator."""
    query = sa.select(watch).order_by(watch.c.created_at.desc(), watch.c.id).limit(limit)
    return tuple(_watch(row) for row in tx.execute(query).mappings())


def start(tx: Connection, found: Watch, *, now: int) -> None:
    """Let a watch begin, which the caller has locked."""
    values = {"state": State.ACTIVE.value, "due": _due(found)}
    tx.execute(watch.update().where(watch.c.id == found.id).values(**values))
    note(
        tx,
        found.id,
        rules.CREATED,
        watch_events.request_json(found.watch_request),
        now=found.created_at,
    )
    _watched(tx, found.endpoint_id, now=now)


def extend(tx: Connection, found: Watch, *, paid_at: int, now: int) -> None:
    """Add a period, paid at an instant, to a watch that the caller has locked. One that had
    expired goes on.
    """
    until = rules.renewed_until(found.expires_at, now=paid_at)
    values: dict[str, Any] = {"expires_at": until}
    if found.state is not State.CANCELLED:  # what its owner ended meanwhile stays ended
        active = {"state": State.ACTIVE.value, "ended_at": None}
        values |= {**active, "expiring_told": False, "due": now}
    tx.execute(watch.update().where(watch.c.id == found.id).values(**values))
    note(tx, found.id, rules.RENEWED, {"expiresAt": until}, now=now)
    _watched(tx, found.endpoint_id, now=now)


@step
def edit(
    tx: Connection,
    found: Watch,
    *,
    watch_request: WatchRequest,
    sealed_key: bytes | None,
    added: Sequence[Destination],
    removed: Sequence[str],
    now: int,
) -> None:
    """Write what a watch, which the caller has locked, listens to and where to; an `edited` event
    says what changed.
    """
    before, after = (
        watch_events.request_json(found.watch_request),
        watch_events.request_json(watch_request),
    )
    changes: dict[str, Any] = {key: after[key] for key in after if after[key] != before[key]}
    changes |= {"destinations_added": [each.masked for each in added]} if added else {}
    changes |= {"destinations_removed": len(removed)} if removed else {}
    started = found.digest_at if found.watch_request.digest else now + DAY_MS
    values = {**_request_values(watch_request), "sealed_key": sealed_key, "digest_at": started}
    tx.execute(watch.update().where(watch.c.id == found.id).values(**values, due=now))
    destinations.add(tx, added)
    destinations.remove(tx, removed, now=now)
    if changes:
        note(tx, found.id, rules.EDITED, changes, now=now)


def rotate(
    tx: Connection,
    watch_id: str,
    *,
    secret_hash: str,
    sealed_key: bytes | None,
    signed_at: int,
    now: int,
) -> bool:
    """Give a watch another secret, asked for by a signature of an instant. False, and nothing
    changed, if a signature of that instant or of a later one was used before.
    """
    newer = sa.or_(watch.c.rotated_at.is_(None), watch.c.rotated_at < signed_at)
    values = {"secret_hash": secret_hash, "sealed_key": sealed_key, "rotated_at": signed_at}
    done = tx.execute(watch.update().where(watch.c.id == watch_id, newer).values(**values))
    if done.rowcount != 1:
        return False
    note(tx, watch_id, rules.EDITED, {"secret_rotated": True}, now=now)
    return True


@step
def end(tx: Connection, found: Watch, state: State, *, now: int) -> int | None:
    """Cancel or expire a watch; its endpoint falls back to the normal cadence with the last one.
    The event's id, None when it had ended before.
    """
    done = tx.execute(
        watch.update()
        .where(watch.c.id == found.id, watch.c.state == State.ACTIVE.value)
        .values(state=state.value, ended_at=now)
    )
    if done.rowcount != 1:
        return None
    event = note(tx, found.id, state.value, {}, now=now)
    _watched(tx, found.endpoint_id, now=now)
    return event


@step
def due(tx: Connection, *, now: int, limit: int = _BATCH) -> tuple[Watch, ...]:
    """Active watches that something is to be done about, locked until the transaction ends."""
    query = (
        sa.select(watch)
        .where(watch.c.state == State.ACTIVE.value, watch.c.due <= now)
        .order_by(watch.c.due)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return tuple(_watch(row) for row in tx.execute(query).mappings())


@step
def any_due(tx: Connection, *, now: int) -> bool:
    """Whether something is to be done about an active watch."""
    query = sa.select(sa.literal(1)).where(watch.c.state == State.ACTIVE.value, watch.c.due <= now)
    return tx.execute(query.limit(1)).first() is not None


@step
def reschedule(tx: Connection, found: Watch, *, expiring_told: bool, digest_at: int) -> None:
    """Remember what has been told, and when to look at the watch again."""
    values = {"expiring_told": expiring_told, "digest_at": digest_at}
    next_due = _due(found, expiring_told=expiring_told, digest_at=digest_at)
    tx.execute(watch.update().where(watch.c.id == found.id).values(**values, due=next_due))


@step
def note(tx: Connection, watch_id: str, type_: str, detail: Mapping[str, Any], *, now: int) -> int:
    """Append what happened to a watch; the event's id."""
    # The lock keeps the ids of one watch in the order in which they become visible.
    tx.execute(sa.select(watch.c.id).where(watch.c.id == watch_id).with_for_update())
    return watch_events.append(tx, watch_id, type_, detail, now=now)


def _watched(tx: Connection, endpoint_id: str, *, now: int) -> None:
    """Probe an endpoint densely until the last of its active watches ends, from now on."""
    until = (
        sa.select(sa.func.coalesce(sa.func.max(watch.c.expires_at), 0))
        .where(watch.c.endpoint_id == endpoint_id, watch.c.state == State.ACTIVE.value)
        .scalar_subquery()
    )
    tx.execute(
        endpoint_table.update()
        .where(endpoint_table.c.id == endpoint_id)
        .values(watched_until=until)
    )
    soon = (
        endpoint_table.c.id == endpoint_id,
        endpoint_table.c.watched_until > now,
        endpoint_table.c.next_due > now,
    )
    tx.execute(endpoint_table.update().where(*soon).values(next_due=now))


def _due(found: Watch, *, expiring_told: bool = False, digest_at: int | None = None) -> int:
    """When something is to be done about a watch next."""
    steps = [found.expires_at]
    if not expiring_told:
        steps.append(found.expires_at - rules.EXPIRING_MS)
    if found.watch_request.digest:
        steps.append(found.digest_at if digest_at is None else digest_at)
    return min(steps)


def _values(made: Watch) -> dict[str, Any]:
    return {
        "id": made.id,
        "secret_hash": made.secret_hash,
        "sealed_key": made.sealed_key,
        "endpoint_id": made.endpoint_id,
        "state": made.state.value,
        "created_at": made.created_at,
        "expires_at": made.expires_at,
        "ended_at": made.ended_at,
        "due": _due(made),
        "expiring_told": made.expiring_told,
        "digest_at": made.digest_at or made.created_at + DAY_MS,
        **_request_values(made.watch_request),
    }


def _request_values(watch_request: WatchRequest) -> dict[str, Any]:
    return {
        "events": orjson.dumps(watch_request.events).decode(),
        "sensitivity": watch_request.sensitivity,
        "digest": watch_request.digest,
    }


def _watch(row: sa.RowMapping) -> Watch:
    return Watch(
        id=row["id"],
        secret_hash=row["secret_hash"],
        endpoint_id=row["endpoint_id"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        watch_request=WatchRequest(
            events=tuple(orjson.loads(row["events"])),
            sensitivity=row["sensitivity"],
            digest=row["digest"],
        ),
        state=State(row["state"]),
        sealed_key=row["sealed_key"],
        ended_at=row["ended_at"],
        expiring_told=row["expiring_told"],
        digest_at=row["digest_at"],
        rotated_at=row["rotated_at"],
    )
