"""Booked: which payment of the ledger a transaction settled, and what others may know of it.

The ledger's rows are store/ledger/payments'; this only looks, by the key and by the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, or_, select

from tollgauge.core.payment import State
from tollgauge.db.transaction import step
from tollgauge.store.ledger.payments import payment

KEYS_MAX: Final = 500
"""How many payments of one transaction are looked for: more than a block holds for one payee."""
_KEYS_A_QUERY: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What a payment is known by, beside its network. Hex is lower case."""

    asset: str
    payer: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """A payment without its secrets. `at` (ms UTC) is when it was first seen."""

    id: str
    route: str
    state: State
    at: int


_COLUMNS: Final = (payment.c.id, payment.c.route, payment.c.state, payment.c.created_at)


@step
def payment_of(
    tx: Connection, keys: Sequence[Key], *, network: str, transaction: str
) -> Booked | None:
    """The oldest payment on a network that has one of these keys, else the oldest whose
    settlement named the transaction; None without either.
    """
    for start in range(0, min(len(keys), KEYS_MAX), _KEYS_A_QUERY):
        near = keys[start : start + _KEYS_A_QUERY]
        matches = or_(
            *(
                and_(
                    payment.c.asset == key.asset,
                    payment.c.payer == key.payer,
                    payment.c.nonce == key.nonce,
                )
                for key in near
            )
        )
        found = _oldest(tx, and_(payment.c.network == network, matches))
        if found is not None:
            return found
    named = and_(payment.c.network == network, payment.c.tx_hash == transaction)
    return _oldest(tx, named)


def _oldest(tx: Connection, where: ColumnElement[bool]) -> Booked | None:
    query = select(*_COLUMNS).where(where).order_by(payment.c.created_at).limit(1)
    row = tx.execute(query).first()
    if row is None:
        return None
    return Booked(id=row.id, route=row.route, state=State(row.state), at=row.created_at)
