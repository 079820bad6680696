"""Watch payments: what a payment is to do with a watch, and doing it once it has settled.

Rules:
- a watch made by a paid request is `pending` until its payment has settled in the ledger; the
  ledger alone says so (`apply`), so a settlement that is proven late starts it late, and a payment
  that fails leaves nothing behind;
- a payment does one thing to one watch, once;
- a watch that a payment may yet renew is not forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core import watch as rules
from tollgauge.core.payment import State as PaymentState
from tollgauge.core.watch import State
from tollgauge.db.schema import metadata
from tollgauge.db.transaction import step
from tollgauge.store.ledger.payments import payment
from tollgauge.store.watches import destinations, watches
from tollgauge.store.watches.destinations import Destination, destination
from tollgauge.store.watches.watch_events import watch_event
from tollgauge.store.watches.watches import LIVE, Watch, watch

CREATE: Final = "create"
RENEW: Final = "renew"
_BATCH: Final = 500
_LOST: Final = (
    PaymentState.FAILED.value,
    PaymentState.EXPIRED.value,
    PaymentState.REJECTED.value,
)
_KNOWN: Final = (PaymentState.SETTLED.value, *_LOST)

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


@step
def create(tx: Connection, made: Watch, to: Sequence[Destination], *, payment_id: str) -> None:
    """Add a pending watch, and where it tells, that a payment will start. A watch that the same
    payment was to start before (its request broke off) is gone.
    """
    _take_back(tx, payment_id)
    watches.add(tx, made)
    destinations.add(tx, to)
    _note(tx, payment_id, made.id, CREATE, at=made.created_at)


@step
def renew(tx: Connection, watch_id: str, *, payment_id: str, now: int) -> int:
    """Note a renewal that a payment will apply; when the watch then ends. Raises LookupError."""
    _take_back(tx, payment_id)
    found = watches.get(tx, watch_id)
    if found is None:
        raise LookupError(watch_id)
    others = sa.select(sa.func.count()).where(
        watch_payment.c.watch_id == watch_id,
        watch_payment.c.kind == RENEW,
        watch_payment.c.applied.is_(False),
    )
    more = tx.execute(others).scalar_one()
    _note(tx, payment_id, watch_id, RENEW, at=now)
    return rules.renewed_until(found.expires_at, now=now) + more * rules.PERIOD_MS


@step
def apply(tx: Connection, *, now: int, watch_id: str | None = None) -> int:
    """Start and renew the watches whose payments have settled, forget those whose payments never
    will; how many were started or renewed. `watch_id` looks at one watch only.
    """
    query = (
        sa.select(watch_payment, payment.c.state.label("paid"))
        .join(payment, payment.c.id == watch_payment.c.payment_id)
        .where(watch_payment.c.applied.is_(False), payment.c.state.in_(_KNOWN))
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
            _take_back(tx, row["payment_id"])
    return applied


def payer(tx: Connection, watch_id: str) -> tuple[str, str] | None:
    """(network, address) of who bought a watch, or None."""
    query = (
        sa.select(payment.c.network, payment.c.payer)
        .join(watch_payment, watch_payment.c.payment_id == payment.c.id)
        .where(watch_payment.c.watch_id == watch_id, watch_payment.c.kind == CREATE)
    )
    row = tx.execute(query).first()
    return None if row is None else (row.network, row.payer)


@step
def ready(tx: Connection) -> bool:
    """Whether `apply` has anything to do."""
    known = watch_payment.join(payment, payment.c.id == watch_payment.c.payment_id)
    query = sa.select(sa.literal(1)).select_from(known)
    query = query.where(watch_payment.c.applied.is_(False), payment.c.state.in_(_KNOWN))
    return tx.execute(query.limit(1)).first() is not None


@step
def waiting(tx: Connection, watch_id: str) -> bool:
    """Whether a payment of a watch has yet to be applied."""
    query = sa.select(sa.literal(1)).where(
        watch_payment.c.watch_id == watch_id, watch_payment.c.applied.is_(False)
    )
    return tx.execute(query.limit(1)).first() is not None


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


def _apply(tx: Connection, row: sa.RowMapping, *, now: int) -> None:
    paid = watch_payment.c.payment_id == row["payment_id"]
    tx.execute(watch_payment.update().where(paid).values(applied=True))
    found = watches.get(tx, row["watch_id"], lock=True)
    if found is None:
        return
    if row["kind"] == CREATE:
        watches.start(tx, found, now=now)
    else:
        watches.extend(tx, found, paid_at=row["at"], now=now)


def _note(tx: Connection, payment_id: str, watch_id: str, kind: str, *, at: int) -> None:
    values = {"payment_id": payment_id, "watch_id": watch_id, "kind": kind, "at": at}
    tx.execute(watch_payment.insert().values(**values, applied=False))


def _take_back(tx: Connection, payment_id: str) -> None:
    """Take back what a payment was to do and has not done."""
    mine = (watch_payment.c.payment_id == payment_id, watch_payment.c.applied.is_(False))
    gone = tx.execute(watch_payment.delete().where(*mine).returning(watch_payment.c.watch_id))
    for watch_id in gone.scalars().all():
        pending = (watch.c.id == watch_id, watch.c.state == State.PENDING.value)
        done = tx.execute(watch.delete().where(*pending))
        if done.rowcount:
            tx.execute(destination.delete().where(destination.c.watch_id == watch_id))
