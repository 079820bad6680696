"""What the ledger forgets: old answers, and payments that were rejected (docs/payments.md)."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.payment import CONCLUDED, State
from tollgauge.core.units import DAY_MS
from tollgauge.store.ledger.attempts import payment_attempt
from tollgauge.store.ledger.payments import payment, payment_answer

KEEP_ANSWER_MS: Final = 30 * DAY_MS
KEEP_REJECTED_MS: Final = DAY_MS
FORGET_BATCH: Final = 5_000


def forget_answers(tx: Connection, *, now: int) -> int:
    """Delete answers whose payment's outcome has been known for 30 days, and return how many; the
    payments stay.
    """
    old = (
        sa.select(payment_answer.c.payment_id)
        .join(payment, payment.c.id == payment_answer.c.payment_id)
        .where(payment.c.state.in_(CONCLUDED), payment.c.updated_at < now - KEEP_ANSWER_MS)
    )
    deletion = payment_answer.delete().where(payment_answer.c.payment_id.in_(old))
    return tx.execute(deletion).rowcount


def forget_rejected(tx: Connection, *, now: int) -> int:
    """Delete up to FORGET_BATCH payments that were rejected a day ago, with their attempts, and
    return how many: nothing was charged, they have expired, and anyone can have any number of them
    rejected.
    """
    old = (
        sa.select(payment.c.id)
        .where(
            payment.c.state == State.REJECTED.value,
            payment.c.lease_until.between(1, now - KEEP_REJECTED_MS),
        )
        .limit(FORGET_BATCH)
    )
    deletion = (
        payment.delete()
        .where(payment.c.id.in_(old), payment.c.state == State.REJECTED.value)
        .returning(payment.c.id)
    )
    ids = tx.execute(deletion).scalars().all()
    tx.execute(payment_attempt.delete().where(payment_attempt.c.payment_id.in_(ids)))
    return len(ids)
