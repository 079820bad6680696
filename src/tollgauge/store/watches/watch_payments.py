"""Payments of watches: which payment creates or renews which watch once it has settled.

A new watch is `pending` until its payment has settled. `apply` reads only the ledger: a settlement
that is proven late starts the watch late, and a payment that fails leaves no watch behind. A
payment creates or renews one watch, once. A watch that a pending payment may renew is not deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.sale.payment_state import CONCLUDED
from tollgauge.core.sale.payment_state import State as PaymentState
from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.watch_rules import WATCHES_MS, WatchState
from tollgauge.db.schema import metadata
from tollgauge.store import rows
from tollgauge.store.ledger.payments import payment
from tollgauge.store.watches import watches
from tollgauge.store.watches.watch_events import watch_event
from tollgauge.store.watches.watches import LIVE, Destination, Watch, destination, watch

CREATE: Final = "create"
RENEW: Final = "renew"
_BATCH: Final = 500

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


def create(
    tx: Connection,
    pending_watch: Watch,
    watch_destinations: Sequence[Destination],
    *,
    payment_id: str,
) -> None:
    """Add a pending watch and its destinations; it starts when the payment settles.

    A watch that an interrupted request added for the same payment is replaced.
    """
    _undo_pending(tx, payment_id)
    watches.add(tx, pending_watch)
    watches.add_destinations(tx, watch_destinations)
    _add(tx, payment_id, pending_watch.id, CREATE, at=pending_watch.created_at)


def renew(tx: Connection, watch_id: str, *, payment_id: str, now: int) -> int:
    """Store a renewal that takes effect when the payment settles.

    Returns:
        The end of the watch after the renewal (ms UTC).

    Raises:
        LookupError: The watch does not exist.
    """
    _undo_pending(tx, payment_id)
    renewed = watches.get(tx, watch_id)
    if renewed is None:
        raise LookupError(watch_id)
    others = rows.count(
        tx,
        watch_payment.c.watch_id == watch_id,
        watch_payment.c.kind == RENEW,
        watch_payment.c.applied.is_(False),
    )
    _add(tx, payment_id, watch_id, RENEW, at=now)
    return rules.compute_renewal(renewed.expires_at, now=now) + others * rules.PERIOD_MS


def apply(tx: Connection, *, now: int, watch_id: str | None = None) -> int:
    """Start and renew watches whose payments settled, and delete pending ones whose payments
    failed.

    `watch_id` restricts this to one watch. Returns the number of started and renewed watches.
    """
    query = (
        sa.select(watch_payment, payment.c.state.label("paid"))
        .join(payment, payment.c.id == watch_payment.c.payment_id)
        .where(watch_payment.c.applied.is_(False), payment.c.state.in_(CONCLUDED))
        .order_by(watch_payment.c.at)
        .limit(_BATCH)
        # The lock makes concurrent workers apply a payment once.
        .with_for_update(of=watch_payment)
    )
    if watch_id is not None:
        query = query.where(watch_payment.c.watch_id == watch_id)
    applied = 0
    for row in tx.execute(query).all():
        if row.paid is PaymentState.SETTLED:
            _apply(tx, row, now=now)
            applied += 1
        else:
            _undo_pending(tx, row.payment_id)
    return applied


def payer(tx: Connection, watch_id: str) -> tuple[str, str] | None:
    """Return (network, address) of the payer that created a watch, or None."""
    query = (
        sa.select(payment.c.network, payment.c.payer)
        .join(watch_payment, watch_payment.c.payment_id == payment.c.id)
        .where(watch_payment.c.watch_id == watch_id, watch_payment.c.kind == CREATE)
    )
    row = tx.execute(query).first()
    return None if row is None else (row.network, row.payer)


def ready(tx: Connection) -> bool:
    """Return whether `apply` has work to do."""
    same_payment = payment.c.id == watch_payment.c.payment_id
    concluded = payment.c.state.in_(CONCLUDED)
    return rows.exist(tx, watch_payment.c.applied.is_(False), same_payment, concluded)


def has_unapplied(tx: Connection, watch_id: str) -> bool:
    """Return whether a payment of a watch is not applied yet."""
    unapplied = watch_payment.c.applied.is_(False)
    return rows.exist(tx, watch_payment.c.watch_id == watch_id, unapplied)


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Delete watches that their owners can no longer read, with all related rows.

    Watches that a pending payment may renew are kept. Returns the number of deleted watches.
    """
    unapplied = sa.select(watch_payment.c.watch_id).where(watch_payment.c.applied.is_(False))
    old = (
        watch.c.state.not_in(LIVE),
        watch.c.expires_at < now - WATCHES_MS,
        watch.c.id.not_in(unapplied),
    )
    ids = list(tx.execute(sa.select(watch.c.id).where(*old).limit(limit)).scalars())
    for table in (watch_event, destination, watch_payment):
        tx.execute(table.delete().where(table.c.watch_id.in_(ids)))
    tx.execute(watch.delete().where(watch.c.id.in_(ids)))
    return len(ids)


def _apply(tx: Connection, row: sa.Row[Any], *, now: int) -> None:
    same_payment = watch_payment.c.payment_id == row.payment_id
    tx.execute(watch_payment.update().where(same_payment).values(applied=True))
    paid_watch = watches.get(tx, row.watch_id, lock=True)
    if paid_watch is None:
        return
    if row.kind == CREATE:
        watches.start(tx, paid_watch, now=now)
    else:
        watches.extend(tx, paid_watch, paid_at=row.at, now=now)


def _add(tx: Connection, payment_id: str, watch_id: str, kind: str, *, at: int) -> None:
    values = {"payment_id": payment_id, "watch_id": watch_id, "kind": kind, "at": at}
    tx.execute(watch_payment.insert().values(**values, applied=False))


def _undo_pending(tx: Connection, payment_id: str) -> None:
    """Delete a payment's pending effect, including the pending watch that it was to create."""
    unapplied = (watch_payment.c.payment_id == payment_id, watch_payment.c.applied.is_(False))
    removed = tx.execute(
        watch_payment.delete().where(*unapplied).returning(watch_payment.c.watch_id)
    )
    for watch_id in removed.scalars().all():
        pending = (watch.c.id == watch_id, watch.c.state == WatchState.PENDING)
        if tx.execute(watch.delete().where(*pending)).rowcount:
            tx.execute(destination.delete().where(destination.c.watch_id == watch_id))
