"""The outbox: one delivery per alert and destination, from queued to its end.

- A delivery's ID is derived from destination and event, so queueing it again has no effect.
- Deliveries of cancelled watches and to removed destinations are dropped.
- After the last attempt a delivery is dead. It stays listed and the operator can resend it.

store/watches/delivery_queue assigns deliveries to workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.watch.watch_rules import DELIVERIES_MS, WatchState
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import ForeignText, metadata, partial_index
from tollgauge.store import rows
from tollgauge.store.watches.watches import destination, watch

QUEUED: Final = "queued"
SENT: Final = "sent"
DEAD: Final = "dead"
DROPPED: Final = "dropped"

_ENDED: Final = sa.text("done_at IS NOT NULL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert to one destination. Receivers recognise repeats by `event_id`, which is the same for
    all destinations of the watch. `body` is the event as JSON.
    """

    id: str
    watch_id: str
    destination_id: str
    event_id: str
    type: str
    body: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxDelivery:
    """An alert and its delivery state. `due` and `done_at` are ms UTC. `last_error` is one of this
    service's error codes, never the receiver's text.
    """

    alert: Alert
    state: str
    attempts: int
    due: int
    last_status: int | None = None
    last_error: str = ""
    done_at: int | None = None


delivery = sa.Table(
    "delivery",
    metadata,
    *columns_of(Alert, key=("id",), body=ForeignText),
    *columns_of(OutboxDelivery, without=("alert",)),
    sa.Index("ix_delivery_state_due", "state", "due"),
    sa.Index("ix_delivery_destination_id_state", "destination_id", "state"),
    sa.Index("ix_delivery_watch_id", "watch_id"),
    partial_index("ix_delivery_done_at", "done_at", where=_ENDED),
)

_NEWEST: Final = sa.select(delivery).order_by(delivery.c.created_at.desc(), delivery.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """Number of queued deliveries, the due time of the oldest (ms UTC), and the number of dead
    ones.
    """

    queued: int
    oldest_due: int | None
    dead: int


def put(tx: Connection, alerts: Sequence[Alert], *, now: int) -> None:
    """Queue deliveries. Existing ones are not changed."""
    queued = [
        rows.to_columns(alert, state=QUEUED, attempts=0, due=now, last_error="") for alert in alerts
    ]
    rows.add_missing(tx, delivery, queued)


def drop(tx: Connection, watch_id: str, *, now: int, to: Iterable[str] | None = None) -> None:
    """Drop a watch's queued deliveries, to the destinations `to` or to all."""
    queued = [delivery.c.watch_id == watch_id, delivery.c.state == QUEUED]
    if to is not None:
        queued.append(delivery.c.destination_id.in_(list(to)))
    tx.execute(delivery.update().where(*queued).values(state=DROPPED, done_at=now))


def sweep(tx: Connection, *, now: int) -> int:
    """End deliveries that can no longer be sent; return their number.

    Their watch was cancelled, or their destination removed or disabled, while they were being
    queued.
    """
    queued = (delivery.c.state == QUEUED, delivery.c.due <= now)
    own_destination = sa.select(destination.c.id).where(
        destination.c.id == delivery.c.destination_id
    )
    own_watch = sa.select(watch.c.id).where(watch.c.id == delivery.c.watch_id)
    unwanted = sa.or_(
        ~own_destination.where(destination.c.removed_at.is_(None)).exists(),
        ~own_watch.where(watch.c.state != WatchState.CANCELLED).exists(),
    )
    drop_unwanted = delivery.update().where(*queued, unwanted).values(state=DROPPED, done_at=now)
    disabled = own_destination.where(destination.c.disabled_at.is_not(None)).exists()
    values = {"state": DEAD, "last_error": "disabled", "done_at": now}
    kill_disabled = delivery.update().where(*queued, disabled).values(**values)
    return tx.execute(drop_unwanted).rowcount + tx.execute(kill_disabled).rowcount


def is_any_due(tx: Connection, *, now: int) -> bool:
    """Return whether any delivery is due."""
    return rows.exist(tx, delivery.c.state == QUEUED, delivery.c.due <= now)


def dead(tx: Connection, *, limit: int, watch_id: str | None = None) -> tuple[OutboxDelivery, ...]:
    """Return the newest dead deliveries, of one watch or of all."""
    query = _NEWEST.where(delivery.c.state == DEAD).limit(limit)
    if watch_id is not None:
        query = query.where(delivery.c.watch_id == watch_id)
    return tuple(delivery_from_row(row) for row in tx.execute(query))


def of_watch(tx: Connection, watch_id: str, *, limit: int) -> tuple[OutboxDelivery, ...]:
    """Return the newest deliveries of a watch."""
    query = _NEWEST.where(delivery.c.watch_id == watch_id).limit(limit)
    return tuple(delivery_from_row(row) for row in tx.execute(query))


def resend(tx: Connection, ids: Iterable[str], *, now: int) -> int:
    """Queue dead deliveries again with zero attempts and enable their destinations; return their
    number.

    Deliveries to removed destinations and of cancelled watches are not resent.
    """
    not_removed = sa.select(destination.c.id).where(destination.c.removed_at.is_(None))
    not_cancelled = sa.select(watch.c.id).where(watch.c.state != WatchState.CANCELLED)
    wanted = (
        delivery.c.id.in_(list(ids)),
        delivery.c.state == DEAD,
        delivery.c.destination_id.in_(not_removed),
        delivery.c.watch_id.in_(not_cancelled),
    )
    queued = tx.execute(
        delivery.update()
        .where(*wanted)
        .values(state=QUEUED, attempts=0, due=now, done_at=None)
        .returning(delivery.c.destination_id)
    )
    targets = list(queued.scalars())
    tx.execute(
        destination.update()
        .where(destination.c.id.in_(targets))
        .values(disabled_at=None, disabled_reason="", failures=0)
    )
    return len(targets)


def depth(tx: Connection) -> Depth:
    """Count the queued and the dead deliveries."""
    query = sa.select(delivery.c.state, sa.func.count(), sa.func.min(delivery.c.due))
    query = query.where(delivery.c.state.in_((QUEUED, DEAD))).group_by(delivery.c.state)
    by_state = {state: (count, due) for state, count, due in tx.execute(query)}
    queued, oldest = by_state.get(QUEUED, (0, None))
    return Depth(queued=queued, oldest_due=oldest, dead=by_state.get(DEAD, (0, None))[0])


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` deliveries that ended long ago, including dead ones; return their
    number.
    """
    old = (delivery.c.done_at < now - DELIVERIES_MS, delivery.c.state != QUEUED)
    return rows.delete_batch(tx, delivery, *old, order_by=(delivery.c.done_at,), limit=limit)


def delivery_from_row(row: Any) -> OutboxDelivery:
    """Build a delivery from a row."""
    return rows.from_columns(OutboxDelivery, row, alert=rows.from_columns(Alert, row))
