"""Readiness: what a sale needs of the database, tried and taken back."""

from __future__ import annotations

import secrets
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.store.ledger.payments import payment, payment_answer
from tollgauge.store.tables import TABLES

_ANSWER: Final = bytes(65_536)
"""As much as a large answer: a disk that is nearly full has no room for it."""


def rehearse_sale(tx: Connection) -> None:
    """Read a row of every table, and write a payment with its answer. Only for a transaction that
    is rolled back (`Store.try_write`): the payment is nobody's.
    """
    one_row = [sa.select(sa.literal(1)).select_from(table).limit(1) for table in TABLES]
    tx.execute(sa.select(*(each.scalar_subquery() for each in one_row)))
    key = secrets.token_hex(6)
    needed = (column for column in payment.columns if not column.nullable)
    row = {each.name: 0 if isinstance(each.type, sa.Integer) else key for each in needed}
    tx.execute(payment.insert().values(row))
    tx.execute(payment_answer.insert().values(payment_id=key, status=0, body=_ANSWER))
