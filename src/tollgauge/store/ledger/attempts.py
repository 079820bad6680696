"""Attempts to verify, answer or settle a payment, and the answer that the payment bought.

Attempts are append-only. An answer is written before its payment is settled and kept until 30 days
after the outcome is known (store/ledger/payments).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db.schema import Serial, metadata, partial_index
from tollgauge.store import rows

payment_attempt = sa.Table(
    "payment_attempt",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("payment_id", sa.String(32), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.String(200), nullable=False),
    sa.Column("tx_hash", sa.String(66)),
    # The host that caused an unpaid answer to fail.
    sa.Column("host", sa.Text),
    sa.Index("payment_attempt_of", "payment_id"),
    partial_index("payment_attempt_host", "host", "at", where=sa.text("host IS NOT NULL")),
)
_ADD: Final = payment_attempt.insert()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt.

    - `kind` is verify, answer (only a failure caused by the request or its target), intent (written
      before settle is called), settle or chain.
    - `outcome` is a short text; `host` caused the failure of an answer.
    """

    kind: str
    at: int
    ended_at: int
    outcome: str
    transaction: str | None = None
    host: str | None = None


def add(tx: Connection, payment_id: str, attempts: Iterable[Attempt]) -> None:
    """Append attempts of a payment."""
    columns = [
        rows.to_columns(
            attempt,
            "transaction",
            payment_id=payment_id,
            outcome=attempt.outcome[:200],
            tx_hash=attempt.transaction,
        )
        for attempt in attempts
    ]
    if columns:
        tx.execute(_ADD, columns)


def of_payments(tx: Connection, ids: Sequence[str]) -> dict[str, tuple[Attempt, ...]]:
    """Return the attempts of payments by payment ID, oldest first."""
    of_payment = rows.any_of(payment_attempt.c.payment_id)
    query = sa.select(payment_attempt).where(of_payment).order_by(payment_attempt.c.id)
    by_payment = rows.group(
        (row.payment_id, rows.from_columns(Attempt, row, transaction=row.tx_hash))
        for row in rows.with_any(tx, query, ids)
    )
    return {payment_id: tuple(by_payment.get(payment_id, ())) for payment_id in ids}


payment_answer = sa.Table(
    "payment_answer",
    metadata,
    sa.Column("payment_id", sa.String(32), primary_key=True),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    # When the secret in the answer was shown to a buyer without a ticket.
    sa.Column("shown_at", sa.BigInteger),
    sa.Column("stored_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("ix_payment_answer_stored_at", "stored_at"),
)
_STORE_ANSWER: Final = payment_answer.insert()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """The answer that a payment bought: HTTP status and body. `shown_at` is when its secret was
    shown to a buyer without a ticket (ms UTC), None if it was not.
    """

    status: int
    body: bytes
    shown_at: int | None = None


def store_answer(tx: Connection, payment_id: str, answer: StoredAnswer, *, now: int) -> None:
    """Store the answer of a payment that has none yet."""
    values = {"payment_id": payment_id, "status": answer.status, "body": answer.body}
    tx.execute(_STORE_ANSWER, values | {"stored_at": now})


def show_secret(tx: Connection, payment_id: str, *, now: int) -> bool:
    """Record that the secret in an answer is shown now.

    Returns False if it was shown before: of several concurrent requests only one shows it.
    """
    unshown = (payment_answer.c.payment_id == payment_id, payment_answer.c.shown_at.is_(None))
    return tx.execute(payment_answer.update().where(*unshown).values(shown_at=now)).rowcount == 1
