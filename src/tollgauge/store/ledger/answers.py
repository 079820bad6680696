"""The answers that payments bought: one row each, written before the payment is settled and kept
until 30 days after its outcome is known (store/ledger/retention).
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db.schema import metadata

payment_answer = sa.Table(
    "payment_answer",
    metadata,
    sa.Column("payment_id", sa.String(32), primary_key=True),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    # When an answer that holds a secret was shown to a buyer who repeats no ticket.
    sa.Column("shown_at", sa.BigInteger),
    sa.Column("stored_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("ix_payment_answer_stored_at", "stored_at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """The answer that a payment bought: HTTP status and body. `shown_at` is when its secret was
    shown to a buyer who repeats no ticket (ms UTC), None if it was not.
    """

    status: int
    body: bytes
    shown_at: int | None = None


def store(tx: Connection, payment_id: str, answer: StoredAnswer, *, now: int) -> None:
    """Store the answer of a payment, which has none yet."""
    values = {"payment_id": payment_id, "status": answer.status, "body": answer.body}
    tx.execute(payment_answer.insert(), values | {"stored_at": now})


def show_secret(tx: Connection, payment_id: str, *, now: int) -> bool:
    """Record that the secret in an answer is shown now. False, and nothing changed, if it was
    shown before: of several requests at once, only one shows it.
    """
    unshown = (payment_answer.c.payment_id == payment_id, payment_answer.c.shown_at.is_(None))
    return tx.execute(payment_answer.update().where(*unshown).values(shown_at=now)).rowcount == 1
