"""Watches: who listens to which endpoint until when, where to, and what was paid for it.

Rules:
- a watch made by a paid request is `pending` until its payment has settled in the ledger; the
  ledger alone says so (`apply_payments`), so a settlement that is proven late starts it late, and
  a payment that fails leaves nothing behind;
- the bearer secret is stored as its SHA-256; destinations' URLs and the signing key are stored as
  the caller sealed them;
- what happens to a watch is appended to `watch_event`, under the lock of its row, so that a
  cursor over its ids misses nothing; what it listened to at any time is read from there;
- an endpoint is probed densely until the last of its active watches ends.

The flips that a watch is about are store/flips', deliveries store/outbox's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core import watch as rules
from tollgauge.core.payment import State as PaymentState
from tollgauge.core.units import DAY_MS
from tollgauge.core.watch import Kind, State, Wish
from tollgauge.store import payments, schema
from tollgauge.store.endpoints import chunks
from tollgauge.store.schema import Serial, metadata
from tollgauge.store.transaction import step

CREATE: Final = "create"
RENEW: Final = "renew"
LIVE: Final = (State.PENDING.value, State.ACTIVE.value)
_BATCH: Final = 500
_FAILING: Final = sa.text("failures > 0")
_LOST: Final = (
    PaymentState.FAILED.value,
    PaymentState.EXPIRED.value,
    PaymentState.REJECTED.value,
)
_KNOWN: Final = (PaymentState.SETTLED.value, *_LOST)
_E: Final = schema.endpoint
_P: Final = payments.payment

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
    sa.Index("ix_watch_endpoint_id_state", "endpoint_id", "state"),
    sa.Index("ix_watch_state_due", "state", "due"),
)

watch_payment = sa.Table(
    "watch_payment",
    metadata,
    sa.Column("payment_id", sa.Text, primary_key=True),
    sa.Column("watch_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("applied", sa.Boolean, nullable=False),
    sa.Index("ix_watch_payment_applied", "applied"),
    sa.Index("ix_watch_payment_watch_id", "watch_id"),
)

watch_event = sa.Table(
    "watch_event",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("watch_id", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Index("ix_watch_event_watch_id", "watch_id", "id"),
)

destination = sa.Table(
    "destination",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("watch_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("sealed_url", sa.LargeBinary, nullable=False),
    sa.Column("masked", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("removed_at", sa.BigInteger),
    sa.Column("disabled_at", sa.BigInteger),
    sa.Column("disabled_reason", sa.Text, nullable=False),
    # Failures in a row; a healthy destination is served before one that fails.
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("last_ok_at", sa.BigInteger),
    # One delivery at a time to a destination: who makes it, and until when.
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sa.Index("ix_destination_watch_id", "watch_id"),
    sa.Index("ix_destination_failing", "id", sqlite_where=_FAILING, postgresql_where=_FAILING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a watch's notices go. `masked` may be shown, `sealed_url` never is."""

    id: str
    watch_id: str
    kind: Kind
    sealed_url: bytes
    masked: str
    created_at: int
    removed_at: int | None = None
    disabled_at: int | None = None
    disabled_reason: str = ""
    failures: int = 0
    last_ok_at: int | None = None

    @property
    def host(self) -> str:
        """Where it is; only this of its URL is known without opening it."""
        return urlsplit(self.masked).hostname or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One watch. Instants are ms UTC."""

    id: str
    secret_hash: str
    endpoint_id: str
    created_at: int
    expires_at: int
    wish: Wish = field(default_factory=Wish)
    state: State = State.PENDING
    sealed_key: bytes | None = None
    ended_at: int | None = None
    expiring_told: bool = False
    digest_at: int = 0

    @property
    def told_until(self) -> int:
        """What happens later than this is not its own."""
        return self.expires_at if self.ended_at is None else min(self.ended_at, self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """Something that happened to a watch itself."""

    id: int
    watch_id: str
    at: int
    type: str
    detail: Mapping[str, Any]


@step
def create(
    tx: Connection, made: Watch, destinations: Sequence[Destination], *, payment_id: str
) -> None:
    """Add a pending watch that a payment will start. A watch that the same payment was to start
    before (its request broke off) is gone.
    """
    _forget(tx, payment_id)
    tx.execute(watch.insert().values(**_values(made)))
    if destinations:
        tx.execute(destination.insert(), [_destination_values(d) for d in destinations])
    tx.execute(
        watch_payment.insert().values(
            payment_id=payment_id,
            watch_id=made.id,
            kind=CREATE,
            at=made.created_at,
            applied=False,
        )
    )


@step
def renew(tx: Connection, watch_id: str, *, payment_id: str, now: int) -> int:
    """Note a renewal that a payment will apply; when the watch then ends."""
    _forget(tx, payment_id)
    found = get(tx, watch_id)
    if found is None:
        raise LookupError(watch_id)
    waiting = sa.select(sa.func.count()).where(
        watch_payment.c.watch_id == watch_id,
        watch_payment.c.kind == RENEW,
        watch_payment.c.applied.is_(False),
    )
    more = tx.execute(waiting).scalar_one()
    values = {"payment_id": payment_id, "watch_id": watch_id, "kind": RENEW, "at": now}
    tx.execute(watch_payment.insert().values(**values, applied=False))
    return rules.renewed_until(found.expires_at, now=now) + more * rules.PERIOD_MS


@step
def apply_payments(tx: Connection, *, now: int, watch_id: str | None = None) -> int:
    """Start and renew the watches whose payments have settled, forget those whose payments never
    will; how many were started or renewed. `watch_id` looks at one watch only.
    """
    query = (
        sa.select(watch_payment, _P.c.state.label("paid"))
        .join(_P, _P.c.id == watch_payment.c.payment_id)
        .where(watch_payment.c.applied.is_(False), _P.c.state.in_(_KNOWN))
        .order_by(watch_payment.c.at)
        .limit(_BATCH)
        .with_for_update(of=watch_payment)
    )
    if watch_id is not None:
        query = query.where(watch_payment.c.watch_id == watch_id)
    applied = 0
    for row in tx.execute(query).mappings().all():
        if row["paid"] == PaymentState.SETTLED.value:
            _apply(tx, row, now=now)
            applied += 1
        else:
            _forget(tx, row["payment_id"])
    return applied


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
def waiting(tx: Connection, watch_id: str) -> bool:
    """Whether a payment of a watch has yet to be applied."""
    query = sa.select(sa.literal(1)).where(
        watch_payment.c.watch_id == watch_id, watch_payment.c.applied.is_(False)
    )
    return tx.execute(query.limit(1)).first() is not None


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
def wishes(tx: Connection, watch_ids: Iterable[str]) -> dict[str, tuple[tuple[int, Wish], ...]]:
    """What some watches listened to, each with the instant from which on, oldest first."""
    found: dict[str, list[tuple[int, Wish]]] = {}
    for chunk in chunks(watch_ids):
        query = (
            sa.select(watch_event)
            .where(watch_event.c.watch_id.in_(chunk))
            .where(watch_event.c.type.in_((rules.CREATED, rules.EDITED)))
            .order_by(watch_event.c.id)
        )
        for row in tx.execute(query).mappings():
            known = found.setdefault(row["watch_id"], [])
            last = known[-1][1] if known else Wish()
            wish = _wish_after(last, orjson.loads(row["detail"]))
            if not known or wish != last:
                known.append((row["at"], wish))
    return {watch_id: tuple(known) for watch_id, known in found.items()}


@step
def edited_since(tx: Connection, watch_ids: Iterable[str], *, since: int) -> set[str]:
    """Those of some watches that were edited at `since` or later."""
    found: set[str] = set()
    for chunk in chunks(watch_ids):
        query = sa.select(watch_event.c.watch_id).where(
            watch_event.c.watch_id.in_(chunk),
            watch_event.c.type == rules.EDITED,
            watch_event.c.at >= since,
        )
        found.update(tx.execute(query).scalars())
    return found


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
def edit(
    tx: Connection,
    found: Watch,
    *,
    wish: Wish,
    sealed_key: bytes | None,
    added: Sequence[Destination],
    removed: Sequence[str],
    now: int,
) -> None:
    """Write what a watch, which the caller has locked, listens to and where to; an `edited` event
    says what changed.
    """
    before, after = _told_wish(found.wish), _told_wish(wish)
    changes: dict[str, Any] = {key: after[key] for key in after if after[key] != before[key]}
    changes |= {"destinations_added": [each.masked for each in added]} if added else {}
    changes |= {"destinations_removed": len(removed)} if removed else {}
    started = found.digest_at if found.wish.digest else now + DAY_MS
    values = {**_wish_values(wish), "sealed_key": sealed_key, "digest_at": started}
    tx.execute(watch.update().where(watch.c.id == found.id).values(**values, due=now))
    if added:
        tx.execute(destination.insert(), [_destination_values(d) for d in added])
    if removed:
        tx.execute(destination.update().where(destination.c.id.in_(removed)).values(removed_at=now))
    if changes:
        note(tx, found.id, rules.EDITED, changes, now=now)


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
def reschedule(tx: Connection, found: Watch, *, expiring_told: bool, digest_at: int) -> None:
    """Remember what has been told, and when to look at the watch again."""
    values = {"expiring_told": expiring_told, "digest_at": digest_at}
    next_due = _due(found, expiring_told=expiring_told, digest_at=digest_at)
    tx.execute(watch.update().where(watch.c.id == found.id).values(**values, due=next_due))


@step
def work_waits(tx: Connection, *, now: int) -> bool:
    """Whether a payment is to be applied, or something is to be done about a watch."""
    known = watch_payment.join(_P, _P.c.id == watch_payment.c.payment_id)
    unpaid = sa.select(sa.literal(1)).select_from(known).limit(1)
    unpaid = unpaid.where(watch_payment.c.applied.is_(False), _P.c.state.in_(_KNOWN))
    ripe = (watch.c.state == State.ACTIVE.value, watch.c.due <= now)
    timed = sa.select(sa.literal(1)).where(*ripe).limit(1)
    return any(tx.execute(query).first() is not None for query in (unpaid, timed))


@step
def forget(tx: Connection, *, now: int, limit: int = _BATCH) -> int:
    """Remove watches that nobody can read any more, with all that belongs to them; one that a
    payment may yet renew stays.
    """
    unpaid = sa.select(watch_payment.c.watch_id).where(watch_payment.c.applied.is_(False))
    old = (
        watch.c.state.not_in(LIVE),
        watch.c.expires_at < now - rules.READABLE_MS,
        watch.c.id.not_in(unpaid),
    )
    ids = list(tx.execute(sa.select(watch.c.id).where(*old).limit(limit)).scalars())
    for table in (watch_event, destination, watch_payment):
        tx.execute(table.delete().where(table.c.watch_id.in_(ids)))
    tx.execute(watch.delete().where(watch.c.id.in_(ids)))
    return len(ids)


@step
def note(tx: Connection, watch_id: str, type_: str, detail: Mapping[str, Any], *, now: int) -> int:
    """Append what happened to a watch; the event's id."""
    # The lock keeps the ids of one watch in the order in which they become visible.
    tx.execute(sa.select(watch.c.id).where(watch.c.id == watch_id).with_for_update())
    text = orjson.dumps(detail).decode()
    row = watch_event.insert().values(watch_id=watch_id, at=now, type=type_, detail=text)
    done = tx.execute(row.returning(watch_event.c.id))
    return int(done.scalar_one())


@step
def newest_event(tx: Connection) -> int:
    """The id of the newest event of any watch, 0 without any: no cursor is ahead of it."""
    return tx.execute(sa.select(sa.func.max(watch_event.c.id))).scalar_one() or 0


@step
def events(tx: Connection, watch_id: str, *, after: int, limit: int) -> tuple[WatchEvent, ...]:
    """What happened to a watch after an event id, oldest first."""
    query = (
        sa.select(watch_event)
        .where(watch_event.c.watch_id == watch_id, watch_event.c.id > after)
        .order_by(watch_event.c.id)
        .limit(limit)
    )
    return tuple(
        WatchEvent(**{**row, "detail": orjson.loads(row["detail"])})
        for row in tx.execute(query).mappings()
    )


@step
def destinations(tx: Connection, watch_ids: Iterable[str]) -> dict[str, tuple[Destination, ...]]:
    """The destinations of some watches that were not removed, oldest first."""
    ids = list(watch_ids)
    found: dict[str, list[Destination]] = {each: [] for each in ids}
    for chunk in chunks(ids):
        query = (
            sa.select(destination)
            .where(destination.c.watch_id.in_(chunk), destination.c.removed_at.is_(None))
            .order_by(destination.c.created_at, destination.c.id)
        )
        for row in tx.execute(query).mappings():
            found[row["watch_id"]].append(destination_from_row(row))
    return {each: tuple(rows) for each, rows in found.items()}


@step
def latest(tx: Connection, *, limit: int) -> tuple[Watch, ...]:
    """The newest watches, for the operator."""
    query = sa.select(watch).order_by(watch.c.created_at.desc(), watch.c.id).limit(limit)
    return tuple(_watch(row) for row in tx.execute(query).mappings())


def _apply(tx: Connection, row: sa.RowMapping, *, now: int) -> None:
    paid = watch_payment.c.payment_id == row["payment_id"]
    tx.execute(watch_payment.update().where(paid).values(applied=True))
    found = get(tx, row["watch_id"], lock=True)
    if found is None:
        return
    active = {"state": State.ACTIVE.value}
    if row["kind"] == CREATE:
        values: dict[str, Any] = {"due": _due(found), **active}
    else:
        values = {"expires_at": rules.renewed_until(found.expires_at, now=row["at"])}
        if found.state is not State.CANCELLED:  # what its owner ended meanwhile stays ended
            values |= {"ended_at": None, "expiring_told": False, "due": now, **active}
    tx.execute(watch.update().where(watch.c.id == found.id).values(**values))
    if row["kind"] == CREATE:
        note(tx, found.id, rules.CREATED, _told_wish(found.wish), now=found.created_at)
    else:
        note(tx, found.id, rules.RENEWED, {"expiresAt": values["expires_at"]}, now=now)
    _watched(tx, found.endpoint_id, now=now)


def _forget(tx: Connection, payment_id: str) -> None:
    """Take back what a payment was to do and has not done."""
    mine = (watch_payment.c.payment_id == payment_id, watch_payment.c.applied.is_(False))
    gone = tx.execute(watch_payment.delete().where(*mine).returning(watch_payment.c.watch_id))
    for watch_id in gone.scalars().all():
        pending = (watch.c.id == watch_id, watch.c.state == State.PENDING.value)
        done = tx.execute(watch.delete().where(*pending))
        if done.rowcount:
            tx.execute(destination.delete().where(destination.c.watch_id == watch_id))


def _watched(tx: Connection, endpoint_id: str, *, now: int) -> None:
    """Probe an endpoint densely until the last of its active watches ends, from now on."""
    until = (
        sa.select(sa.func.coalesce(sa.func.max(watch.c.expires_at), 0))
        .where(watch.c.endpoint_id == endpoint_id, watch.c.state == State.ACTIVE.value)
        .scalar_subquery()
    )
    tx.execute(_E.update().where(_E.c.id == endpoint_id).values(watched_until=until))
    soon = (_E.c.id == endpoint_id, _E.c.watched_until > now, _E.c.next_due > now)
    tx.execute(_E.update().where(*soon).values(next_due=now))


def _due(found: Watch, *, expiring_told: bool = False, digest_at: int | None = None) -> int:
    """When something is to be done about a watch next."""
    steps = [found.expires_at]
    if not expiring_told:
        steps.append(found.expires_at - rules.EXPIRING_MS)
    if found.wish.digest:
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
        **_wish_values(made.wish),
    }


def _told_wish(wish: Wish) -> dict[str, Any]:
    """A wish in the words of the request."""
    return {
        "events": list(wish.events),
        "liveness_sensitivity_n": wish.sensitivity,
        "digest": wish.digest,
    }


def _wish_after(wish: Wish, detail: Mapping[str, Any]) -> Wish:
    """The inverse: a wish after what an event says of it."""
    return Wish(
        events=tuple(detail.get("events", wish.events)),
        sensitivity=detail.get("liveness_sensitivity_n", wish.sensitivity),
        digest=detail.get("digest", wish.digest),
    )


def _wish_values(wish: Wish) -> dict[str, Any]:
    return {
        "events": orjson.dumps(wish.events).decode(),
        "sensitivity": wish.sensitivity,
        "digest": wish.digest,
    }


def _destination_values(made: Destination) -> dict[str, Any]:
    return {**asdict(made), "kind": made.kind.value, "lease_owner": None, "lease_until": 0}


def destination_from_row(row: sa.RowMapping) -> Destination:
    """A row of the table `destination`."""
    names = (each.name for each in fields(Destination))
    return Destination(**{name: row[name] for name in names} | {"kind": Kind(row["kind"])})


def _watch(row: sa.RowMapping) -> Watch:
    return Watch(
        id=row["id"],
        secret_hash=row["secret_hash"],
        endpoint_id=row["endpoint_id"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        wish=Wish(
            events=tuple(orjson.loads(row["events"])),
            sensitivity=row["sensitivity"],
            digest=row["digest"],
        ),
        state=State(row["state"]),
        sealed_key=row["sealed_key"],
        ended_at=row["ended_at"],
        expiring_told=row["expiring_told"],
        digest_at=row["digest_at"],
    )
