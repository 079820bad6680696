"""A payment whose rows are gone from the ledger, as after the restore of an older backup."""

from __future__ import annotations

from sqlalchemy import Connection

from tollgauge.store.ledger.answers import payment_answer
from tollgauge.store.ledger.attempts import payment_attempt
from tollgauge.store.ledger.payments import payment


def forget_payment(tx: Connection, payment_id: str) -> None:
    """Delete a payment with its answer and its attempts."""
    tx.execute(payment_answer.delete().where(payment_answer.c.payment_id == payment_id))
    tx.execute(payment_attempt.delete().where(payment_attempt.c.payment_id == payment_id))
    tx.execute(payment.delete().where(payment.c.id == payment_id))
