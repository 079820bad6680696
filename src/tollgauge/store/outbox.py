"""The outbox: one row a notice and destination, from the decision to the receiver's yes.

Rules:
- a delivery's id comes from its destination and its event: making it twice makes it once;
- a claim leases the destination, so that one never gets two at once; a lease that ran out is free
  again, and its delivery is made again under the same id;
- destinations that answered last are served before those that failed, and the failing have a
  share of their own; one host gets no more than its share either: a slow receiver delays no other;
- a delivery waits while its watch's payment has not settled;
- after the last try it is a dead letter: kept, listed, and sent again when the operator says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.units import DAY_MS
from tollgauge.core.watch import State as WatchState
from tollgauge.core.watch import masked_host
from tollgauge.store import destinations, upsert
from tollgauge.store.destinations import Destination, destination
from tollgauge.store.schema import ForeignText, metadata
from tollgauge.store.transaction import step
from tollgauge.store.watches import watch

QUEUED: Final = "queued"
SENT: Final = "sent"
DEAD: Final = "dead"
DROPPED: Final = "dropped"
KEEP_MS: Final = 30 * DAY_MS
_NONE: Final[Mapping[str, int]] = MappingProxyType({})
_TELLING: Final = (WatchState.ACTIVE.value, WatchState.EXPIRED.value)
"""An expired watch still says that it is, and what happened before."""

delivery = sa.Table(
    "delivery",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("watch_id", sa.Text, nullable=False),
    sa.Column("destination_id", sa.Text, nullable=False),
    # The id that receivers tell repeats by; the same for every destination of the watch.
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    # The event as JSON, from which each format is made.
    sa.Column("body", ForeignText, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due", sa.BigInteger, nullable=False),
    sa.Column("last_status", sa.Integer),
    sa.Column("last_error", sa.Text, nullable=False),
    sa.Column("done_at", sa.BigInteger),
    sa.Index("ix_delivery_state_due", "state", "due"),
    sa.Index("ix_delivery_destination_id_state", "destination_id", "state"),
    sa.Index("ix_delivery_watch_id", "watch_id"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A delivery that is to be made."""

    id: str
    watch_id: str
    destination_id: str
    event_id: str
    type: str
    body: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A delivery as it stands. `last_error` is a word of ours, never the receiver's."""

    notice: Notice
    state: str
    attempts: int
    due: int
    last_status: int | None = None
    last_error: str = ""
    done_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A delivery under our lease, with where it goes and what signs it: the watch's sealed key
    and its secret's hash.
    """

    delivery: Delivery
    destination: Destination
    sealed_key: bytes | None
    secret_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How an attempt ended: the next state, when to try again where it is still queued, and
    `disabled`, a reason to send nothing more there. An attempt that failed on our side is `ours`:
    it is no try and says nothing of the destination.
    """

    claimed: Claimed
    state: str
    at: int
    due: int = 0
    status: int | None = None
    error: str = ""
    disabled: str = ""
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """What waits: how many deliveries are queued, since when the oldest is due (ms UTC, None
    without one), how many are dead.
    """

    queued: int
    oldest_due: int | None
    dead: int


@step
def put(tx: Connection, notices: Sequence[Notice], *, now: int) -> None:
    """Queue deliveries; those that are there already stay as they are."""
    if not notices:
        return
    rows = [
        {
            "id": each.id,
            "watch_id": each.watch_id,
            "destination_id": each.destination_id,
            "event_id": each.event_id,
            "type": each.type,
            "body": each.body,
            "created_at": each.created_at,
            "state": QUEUED,
            "attempts": 0,
            "due": now,
            "last_status": None,
            "last_error": "",
            "done_at": None,
        }
        for each in notices
    ]
    tx.execute(upsert.insert(tx, delivery).on_conflict_do_nothing(), rows)


@step
def claim(
    tx: Connection,
    *,
    owner: str,
    now: int,
    limit: int,
    failing: int,
    lease_ms: int,
    flying: Mapping[str, int] = _NONE,
    host_max: int | None = None,
) -> tuple[Claimed, ...]:
    """Due deliveries, at most one a destination, at most `failing` of them to destinations that
    failed last. Together with what is `flying` to a host, at most `host_max` go to it.
    """
    hosts = Counter(flying)
    full = () if host_max is None else [host for host in hosts if hosts[host] >= host_max]
    found = _due(tx, now=now, limit=limit, healthy=True, without=full)
    share = min(failing, limit - len(found))
    if share > 0:
        found += _due(tx, now=now, limit=share, healthy=False, without=full)
    taken: dict[str, Claimed] = {}
    for each in found:
        host = each.destination.host
        if each.destination.id not in taken and (host_max is None or hosts[host] < host_max):
            taken[each.destination.id] = each
            hosts[host] += 1
    if taken:
        tx.execute(
            destination.update()
            .where(destination.c.id.in_(taken))
            .values(lease_owner=owner, lease_until=now + lease_ms)
        )
    return tuple(taken.values())


@step
def conclude(tx: Connection, results: Sequence[Result], *, owner: str) -> tuple[Result, ...]:
    """Write how attempts ended and give the destinations back; the results that counted. One
    whose lease was taken over by another worker is not written: that worker's is.
    """
    sent = {each.claimed.destination.id: each for each in results if each.state == SENT}
    counted = _conclude_sent(tx, sent, owner=owner)
    for result in results:
        if result.state != SENT and _conclude_failed(tx, result, owner=owner):
            counted.append(result)
    return tuple(counted)


def _conclude_sent(tx: Connection, sent: Mapping[str, Result], *, owner: str) -> list[Result]:
    """All that were taken, in two statements."""
    if not sent:
        return []
    at = max(result.at for result in sent.values())
    back = tx.execute(
        destination.update()
        .where(destination.c.id.in_(sent), destination.c.lease_owner == owner)
        .values(failures=0, last_ok_at=at, lease_owner=None, lease_until=0)
        .returning(destination.c.id)
    )
    counted = [sent[id_] for id_ in back.scalars()]
    ids = [result.claimed.delivery.notice.id for result in counted]
    tx.execute(
        delivery.update()
        .where(delivery.c.id.in_(ids), delivery.c.state == QUEUED)
        .values(state=SENT, attempts=delivery.c.attempts + 1, last_error="", done_at=at)
    )
    return counted


def _conclude_failed(tx: Connection, result: Result, *, owner: str) -> bool:
    target = result.claimed.destination
    failures = target.failures + (not result.ours)
    values: dict[str, Any] = {"failures": failures, "lease_owner": None, "lease_until": 0}
    if result.disabled:
        values |= {"disabled_at": result.at, "disabled_reason": result.disabled}
    mine = (destination.c.id == target.id, destination.c.lease_owner == owner)
    done = tx.execute(destination.update().where(*mine).values(**values))
    if done.rowcount != 1:
        return False
    _write(tx, result)
    if result.disabled:
        _bury(tx, target.id, result.disabled, now=result.at)
    return True


@step
def drop(tx: Connection, watch_id: str, *, now: int, to: Iterable[str] | None = None) -> None:
    """Nothing more of what a watch has queued is sent; `to` names destinations, else all."""
    queued = [delivery.c.watch_id == watch_id, delivery.c.state == QUEUED]
    if to is not None:
        queued.append(delivery.c.destination_id.in_(list(to)))
    tx.execute(delivery.update().where(*queued).values(state=DROPPED, done_at=now))


@step
def sweep(tx: Connection, *, now: int) -> int:
    """End deliveries that nothing will ever send, because their watch was cancelled or their
    destination removed or disabled while they were being queued; how many.
    """
    queued = (delivery.c.state == QUEUED, delivery.c.due <= now)
    to = sa.select(destination.c.id).where(destination.c.id == delivery.c.destination_id)
    of = sa.select(watch.c.id).where(watch.c.id == delivery.c.watch_id)
    gone = sa.or_(
        ~to.where(destination.c.removed_at.is_(None)).exists(),
        ~of.where(watch.c.state != WatchState.CANCELLED.value).exists(),
    )
    dropped = delivery.update().where(*queued, gone).values(state=DROPPED, done_at=now)
    off = to.where(destination.c.disabled_at.is_not(None)).exists()
    values = {"state": DEAD, "last_error": "disabled", "done_at": now}
    buried = delivery.update().where(*queued, off).values(**values)
    return tx.execute(dropped).rowcount + tx.execute(buried).rowcount


@step
def waiting(tx: Connection, *, now: int) -> bool:
    """Whether any delivery is due."""
    query = sa.select(sa.literal(1)).where(delivery.c.state == QUEUED, delivery.c.due <= now)
    return tx.execute(query.limit(1)).first() is not None


@step
def dead(tx: Connection, *, limit: int, watch_id: str | None = None) -> tuple[Delivery, ...]:
    """The newest dead letters, of one watch or of all."""
    query = sa.select(delivery).where(delivery.c.state == DEAD)
    if watch_id is not None:
        query = query.where(delivery.c.watch_id == watch_id)
    query = query.order_by(delivery.c.created_at.desc(), delivery.c.id).limit(limit)
    return tuple(_delivery(row) for row in tx.execute(query).mappings())


@step
def of_watch(tx: Connection, watch_id: str, *, limit: int) -> tuple[Delivery, ...]:
    """The newest deliveries of a watch."""
    query = (
        sa.select(delivery)
        .where(delivery.c.watch_id == watch_id)
        .order_by(delivery.c.created_at.desc(), delivery.c.id)
        .limit(limit)
    )
    return tuple(_delivery(row) for row in tx.execute(query).mappings())


@step
def resend(tx: Connection, ids: Iterable[str], *, now: int) -> int:
    """Queue dead letters again, with all their tries, and enable their destinations; how many.
    What its owner removed or cancelled stays unsent.
    """
    kept = sa.select(destination.c.id).where(destination.c.removed_at.is_(None))
    live = sa.select(watch.c.id).where(watch.c.state != WatchState.CANCELLED.value)
    wanted = (
        delivery.c.id.in_(list(ids)),
        delivery.c.state == DEAD,
        delivery.c.destination_id.in_(kept),
        delivery.c.watch_id.in_(live),
    )
    again = tx.execute(
        delivery.update()
        .where(*wanted)
        .values(state=QUEUED, attempts=0, due=now, done_at=None)
        .returning(delivery.c.destination_id)
    )
    targets = list(again.scalars())
    tx.execute(
        destination.update()
        .where(destination.c.id.in_(targets))
        .values(disabled_at=None, disabled_reason="", failures=0)
    )
    return len(targets)


@step
def depth(tx: Connection) -> Depth:
    """What waits in the outbox."""
    query = sa.select(delivery.c.state, sa.func.count(), sa.func.min(delivery.c.due))
    query = query.where(delivery.c.state.in_((QUEUED, DEAD))).group_by(delivery.c.state)
    found = {state: (count, due) for state, count, due in tx.execute(query)}
    queued, oldest = found.get(QUEUED, (0, None))
    return Depth(queued=queued, oldest_due=oldest, dead=found.get(DEAD, (0, None))[0])


@step
def forget(tx: Connection, *, now: int) -> int:
    """Remove deliveries that were done with 30 days ago; dead letters too."""
    old = (delivery.c.state != QUEUED, delivery.c.done_at < now - KEEP_MS)
    return tx.execute(delivery.delete().where(*old)).rowcount


def _due(
    tx: Connection, *, now: int, limit: int, healthy: bool, without: Sequence[str]
) -> list[Claimed]:
    columns = [column.label(f"d_{column.name}") for column in delivery.c]
    query = (
        sa.select(*columns, destination, watch.c.sealed_key, watch.c.secret_hash)
        .join(destination, destination.c.id == delivery.c.destination_id)
        .join(watch, watch.c.id == delivery.c.watch_id)
        .where(
            delivery.c.state == QUEUED,
            delivery.c.due <= now,
            destination.c.lease_until <= now,
            destination.c.disabled_at.is_(None),
            destination.c.removed_at.is_(None),
            watch.c.state.in_(_TELLING),
            *(
                ~destination.c.masked.startswith(masked_host(host), autoescape=True)
                for host in without
            ),
        )
        # The delivery too: PostgreSQL looks again only at rows that it locks, and what another
        # worker sent and gave back since this statement began would still seem queued.
        .with_for_update(skip_locked=True, of=(destination, delivery))
    )
    if healthy:
        query = query.where(destination.c.failures == 0)
        query = query.order_by(delivery.c.due, delivery.c.id).limit(limit)
    else:
        # By destination, so that a long queue of the healthy is not read through for them.
        ids = _failing(tx, now=now, limit=limit)
        if not ids:
            return []
        query = query.where(delivery.c.destination_id.in_(ids)).limit(limit)
    rows = tx.execute(query).mappings().all()
    return [
        Claimed(
            delivery=_delivery({name[2:]: row[name] for name in row if name.startswith("d_")}),
            destination=destinations.from_row(row),
            sealed_key=row["sealed_key"],
            secret_hash=row["secret_hash"],
        )
        for row in rows
    ]


def _failing(tx: Connection, *, now: int, limit: int) -> list[str]:
    """Destinations that failed last and have a delivery due, longest overdue first."""
    oldest = sa.func.min(delivery.c.due)
    query = (
        sa.select(destination.c.id)
        .join(delivery, delivery.c.destination_id == destination.c.id)
        .where(sa.text("failures > 0"), destination.c.lease_until <= now)
        .where(delivery.c.state == QUEUED, delivery.c.due <= now)
        .group_by(destination.c.id)
        .order_by(oldest)
        .limit(limit)
    )
    return list(tx.execute(query).scalars())


def _write(tx: Connection, result: Result) -> None:
    tried = result.claimed.delivery
    tx.execute(
        delivery.update()
        .where(delivery.c.id == tried.notice.id, delivery.c.state == QUEUED)
        .values(
            state=result.state,
            attempts=tried.attempts + (not result.ours),
            due=result.due or tried.due,
            last_status=result.status,
            last_error=result.error,
            done_at=None if result.state == QUEUED else result.at,
        )
    )


def _bury(tx: Connection, destination_id: str, reason: str, *, now: int) -> None:
    """What is still queued for a destination that takes nothing more is dead."""
    queued = (delivery.c.destination_id == destination_id, delivery.c.state == QUEUED)
    values = {"state": DEAD, "last_error": reason, "done_at": now}
    tx.execute(delivery.update().where(*queued).values(**values))


def _delivery(row: Any) -> Delivery:
    return Delivery(
        notice=Notice(
            id=row["id"],
            watch_id=row["watch_id"],
            destination_id=row["destination_id"],
            event_id=row["event_id"],
            type=row["type"],
            body=row["body"],
            created_at=row["created_at"],
        ),
        state=row["state"],
        attempts=row["attempts"],
        due=row["due"],
        last_status=row["last_status"],
        last_error=row["last_error"],
        done_at=row["done_at"],
    )
