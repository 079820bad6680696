"""Payment lookup: which payment of the ledger a transaction settled.

It only reads, and returns only what anyone may know of a payment; the ledger's rows are
store/ledger/payments's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.sale.payment_state import State
from tollgauge.store import rows
from tollgauge.store.ledger.payments import payment

KEYS_MAX: Final = 500
"""At most this many payments of one transaction are looked up: more than a block can hold."""
_KEYS_A_QUERY: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The key of a payment, without its network. Hex is lower case."""

    asset: str
    payer: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentSummary:
    """A payment without its secrets. `at` is when it was first seen (ms UTC)."""

    id: str
    route: str
    state: State
    at: int


def payment_of(
    tx: Connection, keys: Sequence[Key], *, network: str, transaction: str | None
) -> PaymentSummary | None:
    """The oldest payment on a network that has one of these keys, else the oldest whose
    settlement named the transaction, if there is one; None without either.
    """
    for chunk in rows.chunks(keys[:KEYS_MAX], _KEYS_A_QUERY):
        matches = sa.or_(
            *(
                sa.and_(
                    payment.c.asset == key.asset,
                    payment.c.payer == key.payer,
                    payment.c.nonce == key.nonce,
                )
                for key in chunk
            )
        )
        oldest = _oldest(tx, sa.and_(payment.c.network == network, matches))
        if oldest is not None:
            return oldest
    if transaction is None:
        return None
    settled_by = sa.and_(payment.c.network == network, payment.c.tx_hash == transaction)
    return _oldest(tx, settled_by)


def _oldest(tx: Connection, where: sa.ColumnElement[bool]) -> PaymentSummary | None:
    query = (
        sa.select(*payment.c["id", "route", "state", "created_at"])
        .where(where)
        .order_by(payment.c.created_at)
        .limit(1)
    )
    row = tx.execute(query).first()
    if row is None:
        return None
    return PaymentSummary(id=row.id, route=row.route, state=State(row.state), at=row.created_at)
