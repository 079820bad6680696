"""Delete expired answers and rejected payments (docs/payments.md)."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.sale.payment_state import CONCLUDED, State
from tollgauge.core.watch.watch_rules import ANSWERS_MS, REJECTED_MS
from tollgauge.store.ledger.attempts import payment_answer, payment_attempt
from tollgauge.store.ledger.payments import payment


def forget_answers(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` answers whose payment was concluded 30 days ago; return their number.

    The payments are kept.
    """
    before = now - ANSWERS_MS
    old = (
        sa.select(payment_answer.c.payment_id)
        .join(payment, payment.c.id == payment_answer.c.payment_id)
        .where(
            payment_answer.c.stored_at < before,
            payment.c.state.in_(CONCLUDED),
            payment.c.updated_at < before,
        )
        .order_by(payment_answer.c.stored_at)
        .limit(limit)
    )
    deletion = payment_answer.delete().where(payment_answer.c.payment_id.in_(old))
    return tx.execute(deletion).rowcount


def forget_rejected(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` payments that were rejected a day ago, with their attempts; return their
    number.

    Nothing was charged for them, they have expired, and anyone can create any number of them.
    """
    old = (
        sa.select(payment.c.id)
        .where(
            payment.c.state == State.REJECTED.value,
            payment.c.lease_until.between(1, now - REJECTED_MS),
        )
        .limit(limit)
    )
    deletion = (
        payment.delete()
        .where(payment.c.id.in_(old), payment.c.state == State.REJECTED.value)
        .returning(payment.c.id)
    )
    ids = tx.execute(deletion).scalars().all()
    tx.execute(payment_attempt.delete().where(payment_attempt.c.payment_id.in_(ids)))
    return len(ids)
