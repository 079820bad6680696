"""Readiness: what a sale does in the database, tried in a transaction that is rolled back."""

from __future__ import annotations

import secrets
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.store.ledger.answers import payment_answer
from tollgauge.store.ledger.payments import payment
from tollgauge.store.tables import TABLES

_ANSWER: Final = bytes(65_536)
"""The size of a large answer, which does not fit on a disk that is nearly full."""


def rehearse_sale(tx: Connection) -> None:
    """Read a row of every table, and write an invented payment with its answer. Only for a
    transaction that is rolled back (`Store.try_write`).
    """
    one_row = [sa.select(sa.literal(1)).select_from(table).limit(1) for table in TABLES]
    tx.execute(sa.select(*(query.scalar_subquery() for query in one_row)))
    key = secrets.token_hex(6)
    row = {
        column.name: 0 if isinstance(column.type, sa.Integer) else key
        for column in payment.columns
        if not column.nullable
    }
    tx.execute(payment.insert().values(row))
    tx.execute(payment_answer.insert().values(payment_id=key, status=0, body=_ANSWER))
