"""The books as they follow from the ledger and from what came to us, and which days were checked.

Rules:
- nothing here is written down twice: whether a transfer paid for a sale is asked of the ledger each
  time, by (network, asset, payer, nonce). So a sale that settles late takes its transfer out of
  the unattributed ones, and a transfer that a reorganisation removed leaves its sale without one;
- `book_day` remembers of a complete day what its difference came to when it was told, so that it
  is told once.

What the sums mean is core/books'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.books import Account, Day, ReceivedTransfer, UnmatchedSale, books_of_day
from tollgauge.core.payment import State
from tollgauge.core.units import DAY_MS, day_of
from tollgauge.db import upsert
from tollgauge.db.schema import metadata
from tollgauge.db.transaction import step
from tollgauge.store.chain import cursors as chains
from tollgauge.store.chain.deposits import account, deposit
from tollgauge.store.chain.volumes import chain_of
from tollgauge.store.ledger.payments import LedgerRow, payment

book_day = sa.Table(
    "book_day",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("asset", sa.Text, primary_key=True),
    sa.Column("pay_to", sa.Text, primary_key=True),
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("difference", sa.Text, nullable=False),
    sa.Column("checked_at", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

_A: Final = account
_B: Final = book_day
_C: Final = chains.chain_cursor
_D: Final = deposit
_P: Final = payment


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A transfer to us that no settled sale explains. `payment_id` and `state` are those of the
    payment that has its authorization, None where the ledger knows none.
    """

    network: str
    asset: str
    pay_to: str
    payer: str
    value: int
    nonce: str | None
    transaction: str
    log_index: int
    block: int
    at: int
    payment_id: str | None
    state: State | None


@step
def named(
    tx: Connection, network: str, asset: str, *, since: int
) -> tuple[frozenset[str], int | None]:
    """The addresses that payments of an asset name, first seen at `since` (ms) or later, and when
    the ledger began (ms), None while it is empty.
    """
    mine = (_P.c.network == network, _P.c.asset == asset, _P.c.created_at >= since)
    found = tx.execute(sa.select(_P.c.pay_to).distinct().where(*mine))
    began = tx.execute(sa.select(sa.func.min(_P.c.created_at))).scalar_one()
    return frozenset(found.scalars()), began


@step
def accounts(tx: Connection) -> tuple[Account, ...]:
    """Every address that we sell or sold to: those that the chain is read for, and those that
    only the ledger names.
    """
    query = sa.select(_A.c.chain, _A.c.asset, _A.c.address, _A.c.low_at, _C.c.audited_at)
    rows = tx.execute(query.join(_C, _C.c.chain == _A.c.chain))
    found = {
        (f"eip155:{chain}", asset, address): (low_at, read_to)
        for chain, asset, address, low_at, read_to in rows
    }
    sold = sa.select(_P.c.network, _P.c.asset, _P.c.pay_to).distinct()
    for network, asset, pay_to in tx.execute(sold.where(_P.c.state == State.SETTLED.value)):
        found.setdefault((network, asset, pay_to), (None, None))
    return tuple(
        Account(network=network, asset=asset, address=address, read_from=begin, read_to=end or None)
        for (network, asset, address), (begin, end) in sorted(found.items())
    )


@step
def of_day(tx: Connection, mine: Account, day: int) -> Day:
    """The books of an account on one UTC day."""
    begin, end = day * DAY_MS, (day + 1) * DAY_MS
    chain = chain_of(mine.network)
    paid = sa.and_(
        _P.c.network == mine.network,
        _P.c.asset == _D.c.asset,
        _P.c.payer == _D.c.payer,
        _P.c.nonce == _D.c.nonce,
        _P.c.state == State.SETTLED.value,
    )
    transfers = (
        sa.select(_D.c.value, _P.c.amount)
        .join(_P, paid, isouter=True)
        .where(_D.c.chain == chain, _D.c.asset == mine.asset, _D.c.pay_to == mine.address)
        .where(_D.c.at >= begin, _D.c.at < end)
    )
    came = [
        ReceivedTransfer(int(value), None if sold is None else int(sold))
        for value, sold in tx.execute(transfers)
    ]
    seen = sa.exists().where(_D.c.chain == chain, *_same_key())
    sales = sa.select(_P.c.amount, _P.c.created_at, _P.c.valid_before).where(
        _P.c.network == mine.network,
        _P.c.asset == mine.asset,
        _P.c.pay_to == mine.address,
        _P.c.state == State.SETTLED.value,
        _P.c.created_at >= begin,
        _P.c.created_at < end,
        ~seen,
    )
    unseen = [UnmatchedSale(int(a), at, int(until)) for a, at, until in tx.execute(sales)]
    return books_of_day(mine, day, came, unseen)


@step
def strays(tx: Connection, *, limit: int) -> tuple[Stray, ...]:
    """The newest transfers to us that no settled sale explains."""
    network = "eip155:" + sa.cast(_D.c.chain, sa.Text)
    known = sa.and_(_P.c.network == network, *_same_key())
    query = (
        sa.select(_D, _P.c.id, _P.c.state)
        .join(_P, known, isouter=True)
        .where(sa.or_(_P.c.id.is_(None), _P.c.state != State.SETTLED.value))
        .order_by(_D.c.at.desc(), _D.c.number.desc(), _D.c.log_index)
        .limit(limit)
    )
    return tuple(_stray(row) for row in tx.execute(query).mappings())


@step
def checked(tx: Connection, mine: Account) -> dict[int, int]:
    """The days of an account that were complete when they were checked, with the difference that
    was found.
    """
    query = sa.select(_B.c.day, _B.c.difference).where(*_of(mine))
    return {day: int(difference) for day, difference in tx.execute(query)}


@step
def check(tx: Connection, day: Day, *, now: int) -> None:
    """Remember what a complete day came to."""
    chain = chain_of(day.account.network)
    place = {"chain": chain, "asset": day.account.asset, "pay_to": day.account.address}
    values: dict[str, Any] = {"difference": str(day.difference), "checked_at": now}
    keys = [_B.c.chain, _B.c.asset, _B.c.pay_to, _B.c.day]
    row = upsert.insert(tx, _B).values(**place, day=day.day, **values)
    tx.execute(row.on_conflict_do_update(index_elements=keys, set_=values))


@step
def recheck(tx: Connection, row: LedgerRow) -> None:
    """What is known of a sale changed: the day of its payment is to be checked again."""
    mine = Account(network=row.network, asset=row.asset, address=row.pay_to)
    if chain_of(row.network) is not None:
        known = (_B.c.day == day_of(row.created_at), _B.c.difference == "0")
        tx.execute(_B.delete().where(*_of(mine), *known))


def _same_key() -> tuple[sa.ColumnElement[bool], ...]:
    """A transfer used the authorization of a payment."""
    return (_D.c.asset == _P.c.asset, _D.c.payer == _P.c.payer, _D.c.nonce == _P.c.nonce)


def _of(mine: Account) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _B.c.chain == chain_of(mine.network),
        _B.c.asset == mine.asset,
        _B.c.pay_to == mine.address,
    )


def _stray(row: Any) -> Stray:
    return Stray(
        network=f"eip155:{row['chain']}",
        asset=row["asset"],
        pay_to=row["pay_to"],
        payer=row["payer"],
        value=int(row["value"]),
        nonce=row["nonce"],
        transaction=row["transaction"],
        log_index=row["log_index"],
        block=row["number"],
        at=row["at"],
        payment_id=row["id"],
        state=None if row["state"] is None else State(row["state"]),
    )
