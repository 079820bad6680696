"""Reconciliation: compare sales in the ledger with deposits on the chain, per day.

Deposits are matched with sales at each query, by (network, asset, payer, nonce), and the match is
not stored. A sale that settles late therefore claims its deposit, and a deposit removed by a
reorganisation leaves its sale without one. `book_day` stores the reported difference of a complete
day, so that it is reported once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, chain_of, day_of
from tollgauge.core.sale.payment_state import (
    Account,
    Day,
    ReceivedTransfer,
    State,
    UnmatchedSale,
    reconcile_day,
)
from tollgauge.db.codec import Amount
from tollgauge.db.schema import metadata
from tollgauge.store import rows
from tollgauge.store.chain.cursors import chain_cursor
from tollgauge.store.chain.deposits import account, deposit
from tollgauge.store.ledger.payments import LedgerRow, payment

book_day = sa.Table(
    "book_day",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("asset", sa.Text, primary_key=True),
    sa.Column("pay_to", sa.Text, primary_key=True),
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("difference", Amount, nullable=False),
    sa.Column("checked_at", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnattributedDeposit:
    """A deposit without a settled sale. `payment_id` and `state` belong to the payment with the
    same authorization, None if the ledger has none.
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


def load_pay_tos(
    tx: Connection, network: str, asset: str, *, since: int
) -> tuple[frozenset[str], int | None]:
    """Return the payTo addresses of payments in an asset since `since`, and the time of the
    ledger's first payment (None without one). Times are ms UTC.
    """
    of_asset = (
        payment.c.network == network,
        payment.c.asset == asset,
        payment.c.created_at >= since,
    )
    addresses = tx.execute(sa.select(payment.c.pay_to).distinct().where(*of_asset))
    began = tx.execute(sa.select(sa.func.min(payment.c.created_at))).scalar_one()
    return frozenset(addresses.scalars()), began


def accounts(tx: Connection) -> tuple[Account, ...]:
    """Return all addresses that sales are or were paid to: those with indexed deposits, and those
    that only the ledger contains.
    """
    query = sa.select(
        *account.c["chain", "asset", "address", "low_at"], chain_cursor.c.audited_at
    ).join(chain_cursor, chain_cursor.c.chain == account.c.chain)
    indexed = {
        (f"eip155:{row.chain}", row.asset, row.address): (row.low_at, row.audited_at)
        for row in tx.execute(query)
    }
    sold = sa.select(payment.c.network, payment.c.asset, payment.c.pay_to).distinct()
    for network, asset, pay_to in tx.execute(sold.where(payment.c.state == State.SETTLED)):
        indexed.setdefault((network, asset, pay_to), (None, None))
    return tuple(
        Account(network=network, asset=asset, address=address, read_from=begin, read_to=end or None)
        for (network, asset, address), (begin, end) in sorted(indexed.items())
    )


def of_day(tx: Connection, book_account: Account, day: int) -> Day:
    """Reconcile an account for one UTC day."""
    begin, end = day * DAY_MS, (day + 1) * DAY_MS
    chain = chain_of(book_account.network)
    paid = sa.and_(
        payment.c.network == book_account.network,
        *_same_key(),
        payment.c.state == State.SETTLED,
    )
    transfers = (
        sa.select(deposit.c.value, payment.c.amount)
        .join(payment, paid, isouter=True)
        .where(
            deposit.c.chain == chain,
            deposit.c.asset == book_account.asset,
            deposit.c.pay_to == book_account.address,
        )
        .where(deposit.c.at >= begin, deposit.c.at < end)
    )
    deposits = [ReceivedTransfer(value, sold) for value, sold in tx.execute(transfers)]
    has_deposit = sa.exists().where(deposit.c.chain == chain, *_same_key())
    sales = sa.select(payment.c.amount, payment.c.created_at, payment.c.valid_before_s).where(
        payment.c.network == book_account.network,
        payment.c.asset == book_account.asset,
        payment.c.pay_to == book_account.address,
        payment.c.state == State.SETTLED,
        payment.c.created_at >= begin,
        payment.c.created_at < end,
        ~has_deposit,
    )
    unseen = [UnmatchedSale(*sale) for sale in tx.execute(sales)]
    return reconcile_day(book_account, day, deposits, unseen)


def find_unattributed(tx: Connection, *, limit: int) -> tuple[UnattributedDeposit, ...]:
    """Return the newest deposits without a settled sale."""
    network = "eip155:" + sa.cast(deposit.c.chain, sa.Text)
    same_authorization = sa.and_(payment.c.network == network, *_same_key())
    query = (
        sa.select(deposit, payment.c.id, payment.c.state)
        .join(payment, same_authorization, isouter=True)
        .where(sa.or_(payment.c.id.is_(None), payment.c.state != State.SETTLED))
        .order_by(deposit.c.at.desc(), deposit.c.number.desc(), deposit.c.log_index)
        .limit(limit)
    )
    return tuple(
        rows.from_columns(
            UnattributedDeposit,
            row,
            network=f"eip155:{row.chain}",
            block=row.number,
            payment_id=row.id,
        )
        for row in tx.execute(query)
    )


def load_checked(tx: Connection, book_account: Account) -> dict[int, int]:
    """Return the checked complete days of an account with their differences (atomic units)."""
    query = sa.select(book_day.c.day, book_day.c.difference).where(*_of(book_account))
    return dict(tx.execute(query).all())


def save_checked_day(tx: Connection, day: Day, *, now: int) -> None:
    """Store the difference of a complete day."""
    columns = {
        "chain": chain_of(day.account.network),
        "asset": day.account.asset,
        "pay_to": day.account.address,
        "day": day.day,
        "difference": day.difference,
        "checked_at": now,
    }
    rows.put(tx, book_day, [columns])


def recheck(tx: Connection, row: LedgerRow) -> None:
    """Have the day of a changed payment checked again."""
    book_account = Account(network=row.network, asset=row.asset, address=row.pay_to)
    if chain_of(row.network) is not None:
        without_difference = (
            book_day.c.day == day_of(row.created_at),
            book_day.c.difference == 0,
        )
        tx.execute(book_day.delete().where(*_of(book_account), *without_difference))


def _same_key() -> tuple[sa.ColumnElement[bool], ...]:
    """Return the condition that a deposit has a payment's authorization."""
    return (
        deposit.c.asset == payment.c.asset,
        deposit.c.payer == payment.c.payer,
        deposit.c.nonce == payment.c.nonce,
    )


def _of(book_account: Account) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        book_day.c.chain == chain_of(book_account.network),
        book_day.c.asset == book_account.asset,
        book_day.c.pay_to == book_account.address,
    )


KEYS_MAX: Final = 500  # payments looked up per transaction: more than a block can contain
_KEYS_PER_QUERY: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The key of a payment without its network. Hex is in lower case."""

    asset: str
    payer: str
    nonce: str


@dataclass(frozen=True, slots=True)
class PaymentSummary:
    """The public fields of a payment. `at` is when it was first seen (ms UTC)."""

    id: str
    route: str
    state: State
    at: int


def payment_of(
    tx: Connection, keys: Sequence[Key], *, network: str, transaction: str | None
) -> PaymentSummary | None:
    """Return the oldest payment on a network with one of these keys, otherwise the oldest one
    settled by the transaction, or None.
    """
    for chunk in rows.chunks(keys[:KEYS_MAX], _KEYS_PER_QUERY):
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
    settled_by = sa.and_(payment.c.network == network, payment.c.transaction == transaction)
    return _oldest(tx, settled_by)


def _oldest(tx: Connection, where: sa.ColumnElement[bool]) -> PaymentSummary | None:
    query = (
        sa.select(*payment.c["id", "route", "state", "created_at"])
        .where(where)
        .order_by(payment.c.created_at)
        .limit(1)
    )
    row = tx.execute(query).first()
    return None if row is None else PaymentSummary(*row)
