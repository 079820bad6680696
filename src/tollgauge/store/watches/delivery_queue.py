"""Claims: deliveries that a worker has taken to make them, and how each attempt ended.

Rules:
- a claim leases the destination, so that one never gets two at once; a lease that ran out is free
  again, and its delivery is made again under the same id;
- destinations that answered last are served before those that failed, and the failing have a
  share of their own; one host gets no more than its share either: a slow receiver delays no other;
- a delivery waits while its watch's payment has not settled;
- what a worker has to say of a delivery counts only while the lease is its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.watch import State as WatchState
from tollgauge.core.watch import masked_host
from tollgauge.db.transaction import step
from tollgauge.store.watches import destinations
from tollgauge.store.watches.destinations import Destination, destination
from tollgauge.store.watches.outbox import DEAD, QUEUED, SENT, Delivery, delivery, delivery_from_row
from tollgauge.store.watches.watches import watch

_NONE: Final[Mapping[str, int]] = MappingProxyType({})
_TELLING: Final = (WatchState.ACTIVE.value, WatchState.EXPIRED.value)
"""An expired watch still says that it is, and what happened before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A delivery under our lease, with where it goes and what signs it: the watch's sealed key
    and its secret's hash.
    """

    delivery: Delivery
    destination: Destination
    sealed_key: bytes | None
    secret_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """How an attempt ended: the next state, when to try again where it is still queued, and
    `disabled`, a reason to send nothing more there. An attempt that failed on our side is `ours`:
    it is no try and says nothing of the destination.
    """

    claimed: ClaimedDelivery
    state: str
    at: int
    due: int = 0
    status: int | None = None
    error: str = ""
    disabled: str = ""
    ours: bool = False


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
) -> tuple[ClaimedDelivery, ...]:
    """Due deliveries, at most one a destination, at most `failing` of them to destinations that
    failed last. Together with what is `flying` to a host, at most `host_max` go to it.
    """
    hosts = Counter(flying)
    full = () if host_max is None else [host for host in hosts if hosts[host] >= host_max]
    found = _due(tx, now=now, limit=limit, healthy=True, without=full)
    share = min(failing, limit - len(found))
    if share > 0:
        found += _due(tx, now=now, limit=share, healthy=False, without=full)
    taken: dict[str, ClaimedDelivery] = {}
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
def conclude(
    tx: Connection, results: Sequence[DeliveryResult], *, owner: str
) -> tuple[DeliveryResult, ...]:
    """Write how attempts ended and give the destinations back; the results that counted. One
    whose lease was taken over by another worker is not written: that worker's is.
    """
    sent = {each.claimed.destination.id: each for each in results if each.state == SENT}
    counted = _conclude_sent(tx, sent, owner=owner)
    for result in results:
        if result.state != SENT and _conclude_failed(tx, result, owner=owner):
            counted.append(result)
    return tuple(counted)


def _conclude_sent(
    tx: Connection, sent: Mapping[str, DeliveryResult], *, owner: str
) -> list[DeliveryResult]:
    """All that were taken, in two statements."""
    if not sent:
        return []
    at = max(result.at for result in sent.values())
    back = tx.execute(
        destination.update()
        .where(destination.c.id.in_(sent), destination.c.lease_owner == owner)
        .values(failures=0, lease_owner=None, lease_until=0)
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


def _conclude_failed(tx: Connection, result: DeliveryResult, *, owner: str) -> bool:
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


def _due(
    tx: Connection, *, now: int, limit: int, healthy: bool, without: Sequence[str]
) -> list[ClaimedDelivery]:
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
        ClaimedDelivery(
            delivery=delivery_from_row(
                {name[2:]: row[name] for name in row if name.startswith("d_")}
            ),
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


def _write(tx: Connection, result: DeliveryResult) -> None:
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
