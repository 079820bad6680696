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

from tollgauge.db.codec import columns_of
from tollgauge.db.schema import Serial, metadata, partial_index
from tollgauge.store import rows


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


payment_attempt = sa.Table(
    "payment_attempt",
    metadata,
    sa.Column("id", Serial, primary_key=True, autoincrement=True),
    sa.Column("payment_id", sa.Text, nullable=False),
    *columns_of(Attempt),
    sa.Index("payment_attempt_of", "payment_id"),
    partial_index("payment_attempt_host", "host", "at", where=sa.text("host IS NOT NULL")),
)
_ADD: Final = payment_attempt.insert()


def add(tx: Connection, payment_id: str, attempts: Iterable[Attempt]) -> None:
    """Append attempts of a payment."""
    columns = [
        rows.to_columns(attempt, payment_id=payment_id, outcome=attempt.outcome[:200])
        for attempt in attempts
    ]
    if columns:
        tx.execute(_ADD, columns)


def of_payments(tx: Connection, ids: Sequence[str]) -> dict[str, tuple[Attempt, ...]]:
    """Return the attempts of payments by payment ID, oldest first."""
    of_payment = rows.any_of(payment_attempt.c.payment_id)
    query = sa.select(payment_attempt).where(of_payment).order_by(payment_attempt.c.id)
    by_payment = rows.group(
        (row.payment_id, rows.from_columns(Attempt, row)) for row in rows.with_any(tx, query, ids)
    )
    return {payment_id: tuple(by_payment.get(payment_id, ())) for payment_id in ids}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """The answer that a payment bought: HTTP status and body. `shown_at` is when its secret was
    shown to a buyer without a ticket (ms UTC), None if it was not.
    """

    status: int
    body: bytes
    shown_at: int | None = None


payment_answer = sa.Table(
    "payment_answer",
    metadata,
    sa.Column("payment_id", sa.Text, primary_key=True),
    *columns_of(StoredAnswer),
    sa.Column("stored_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("ix_payment_answer_stored_at", "stored_at"),
)
_STORE_ANSWER: Final = payment_answer.insert()


def store_answer(tx: Connection, payment_id: str, answer: StoredAnswer, *, now: int) -> None:
    """Store the answer of a payment that has none yet."""
    tx.execute(_STORE_ANSWER, rows.to_columns(answer, payment_id=payment_id, stored_at=now))


def show_secret(tx: Connection, payment_id: str, *, now: int) -> bool:
    """Record that the secret in an answer is shown now.

    Returns False if it was shown before: of several concurrent requests only one shows it.
    """
    unshown = (payment_answer.c.payment_id == payment_id, payment_answer.c.shown_at.is_(None))
    return tx.execute(payment_answer.update().where(*unshown).values(shown_at=now)).rowcount == 1
