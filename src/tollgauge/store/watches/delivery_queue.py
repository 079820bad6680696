"""The delivery queue: claim due deliveries and record the results of attempts.

- A claim leases the destination, which therefore never receives two concurrent deliveries. When a
  lease expires, its delivery is sent again with the same ID.
- Destinations whose last delivery succeeded come first. Failing ones have a separate share of the
  slots, and each host has a limit, so that a slow receiver does not delay others.
- A delivery waits until its watch's payment has settled.
- A result is recorded only while the worker still holds the lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.watch.watch_rules import WatchState, masked_host
from tollgauge.store import rows
from tollgauge.store.watches.outbox import (
    DEAD,
    QUEUED,
    SENT,
    OutboxDelivery,
    delivery,
    delivery_from_row,
)
from tollgauge.store.watches.watches import Destination, destination, watch

_OF_DESTINATION: Final = (
    *(column for column in destination.c if column.name not in delivery.c),
    destination.c.created_at.label("destination_created_at"),
)
_DELIVERING: Final = (WatchState.ACTIVE, WatchState.EXPIRED)
"""An expired watch still delivers its expiry event and earlier events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A leased delivery with its destination and the watch's sealed signing key."""

    delivery: OutboxDelivery
    destination: Destination
    sealed_key: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """The result of an attempt.

    - `state` is the delivery's next state, `at` the end of the attempt, `due` the next attempt if
      it stays queued (ms UTC).
    - `disabled` is a reason to disable the destination.
    - `ours`: the attempt failed on this side. It counts neither as an attempt nor as a failure of
      the destination.
    """

    claimed: ClaimedDelivery
    state: str
    at: int
    due: int = 0
    status: int | None = None
    error: str = ""
    disabled: str = ""
    ours: bool = False


def claim(
    tx: Connection,
    *,
    owner: str,
    now: int,
    limit: int,
    failing: int,
    lease_ms: int,
    in_flight: Mapping[str, int] | None = None,
    host_max: int | None = None,
) -> tuple[ClaimedDelivery, ...]:
    """Claim due deliveries, at most one per destination.

    At most `failing` of them are for destinations whose last delivery failed, and at most
    `host_max` for one host, including its `in_flight` ones.
    """
    hosts = Counter(in_flight)
    full = () if host_max is None else [host for host in hosts if hosts[host] >= host_max]
    candidates = _due(tx, now=now, limit=limit, healthy=True, without=full)
    share = min(failing, limit - len(candidates))
    if share > 0:
        candidates += _due(tx, now=now, limit=share, healthy=False, without=full)
    claimed: dict[str, ClaimedDelivery] = {}
    for candidate in candidates:
        id_, host = candidate.destination.id, candidate.destination.host
        if id_ not in claimed and (host_max is None or hosts[host] < host_max):
            claimed[id_] = candidate
            hosts[host] += 1
    if claimed:
        tx.execute(
            destination.update()
            .where(destination.c.id.in_(claimed))
            .values(lease_owner=owner, lease_until=now + lease_ms)
        )
    return tuple(claimed.values())


def conclude(
    tx: Connection, results: Sequence[DeliveryResult], *, owner: str
) -> tuple[DeliveryResult, ...]:
    """Record results and release the destinations; return the recorded results.

    Results of a worker that lost its lease are dropped.
    """
    sent = {result.claimed.destination.id: result for result in results if result.state == SENT}
    counted = _conclude_sent(tx, sent, owner=owner)
    for result in results:
        if result.state != SENT and _conclude_failed(tx, result, owner=owner):
            counted.append(result)
    return tuple(counted)


def _conclude_sent(
    tx: Connection, sent: Mapping[str, DeliveryResult], *, owner: str
) -> list[DeliveryResult]:
    """Record all successes in two statements."""
    if not sent:
        return []
    at = max(result.at for result in sent.values())
    released = tx.execute(
        destination.update()
        .where(destination.c.id.in_(sent), destination.c.lease_owner == owner)
        .values(failures=0, lease_owner=None, lease_until=0)
        .returning(destination.c.id)
    )
    counted = [sent[id_] for id_ in released.scalars()]
    ids = [result.claimed.delivery.alert.id for result in counted]
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
    leased = (destination.c.id == target.id, destination.c.lease_owner == owner)
    if tx.execute(destination.update().where(*leased).values(**values)).rowcount != 1:
        return False
    _record_attempt(tx, result)
    if result.disabled:
        _kill_queued(tx, target.id, result.disabled, now=result.at)
    return True


def _due(
    tx: Connection, *, now: int, limit: int, healthy: bool, without: Sequence[str]
) -> list[ClaimedDelivery]:
    query = (
        sa.select(delivery, *_OF_DESTINATION, watch.c.sealed_key)
        .join(destination, destination.c.id == delivery.c.destination_id)
        .join(watch, watch.c.id == delivery.c.watch_id)
        .where(
            delivery.c.state == QUEUED,
            delivery.c.due <= now,
            destination.c.lease_until <= now,
            destination.c.disabled_at.is_(None),
            destination.c.removed_at.is_(None),
            watch.c.state.in_(_DELIVERING),
            *(
                ~destination.c.masked.startswith(masked_host(host), autoescape=True)
                for host in without
            ),
        )
        # The delivery is locked too: PostgreSQL re-reads only locked rows, and a delivery that
        # another worker sent since this statement began would still look queued.
        .with_for_update(skip_locked=True, of=(destination, delivery))
    )
    if healthy:
        query = query.where(destination.c.failures == 0)
        query = query.order_by(delivery.c.due, delivery.c.id).limit(limit)
    else:
        # By destination, to avoid scanning a long queue of healthy destinations.
        ids = _select_failing(tx, now=now, limit=limit)
        if not ids:
            return []
        query = query.where(delivery.c.destination_id.in_(ids)).limit(limit)
    return [_claimed_delivery(row) for row in tx.execute(query)]


def _claimed_delivery(row: Any) -> ClaimedDelivery:
    receiver = rows.from_columns(
        Destination, row, id=row.destination_id, created_at=row.destination_created_at
    )
    return rows.from_columns(
        ClaimedDelivery, row, delivery=delivery_from_row(row), destination=receiver
    )


def _select_failing(tx: Connection, *, now: int, limit: int) -> list[str]:
    """Return failing destinations with a due delivery, longest overdue first."""
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


def _record_attempt(tx: Connection, result: DeliveryResult) -> None:
    attempted = result.claimed.delivery
    tx.execute(
        delivery.update()
        .where(delivery.c.id == attempted.alert.id, delivery.c.state == QUEUED)
        .values(
            state=result.state,
            attempts=attempted.attempts + (not result.ours),
            due=result.due or attempted.due,
            last_status=result.status,
            last_error=result.error,
            done_at=None if result.state == QUEUED else result.at,
        )
    )


def _kill_queued(tx: Connection, destination_id: str, reason: str, *, now: int) -> None:
    """Mark the queued deliveries of a disabled destination as dead."""
    queued = (delivery.c.destination_id == destination_id, delivery.c.state == QUEUED)
    values = {"state": DEAD, "last_error": reason, "done_at": now}
    tx.execute(delivery.update().where(*queued).values(**values))
