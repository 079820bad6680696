"""Deposits: all transfers to addresses that sales are paid to, and these addresses (accounts).

- An address becomes an account when the configuration or the ledger first contains it, and stays
  one: deposits to an old address are still recorded.
- An account is indexed up to the chain's cursor and from its own `low`, which back-filling moves
  down to `wanted_from`.
- There is one row per transfer, keyed by chain, block and log index. Rows are kept forever, except
  those of blocks removed by a reorganisation.
- The sale that a transfer paid for is not stored: it is derived from the ledger
  (store/ledger/reconciliation) and cannot contradict it.

store/chain/cursors calls the functions that must run together with a change of the cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.chain.blocks import Span
from tollgauge.core.chain.settlement import Deposit
from tollgauge.db.codec import Amount, columns_of
from tollgauge.db.schema import metadata
from tollgauge.store import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAddress:
    """An account: the first block indexed for it, with that block's time. Back-filling ends once a
    block before `wanted_from` is indexed. Times are ms UTC.
    """

    chain: int
    asset: str
    address: str
    low: int
    low_at: int
    wanted_from: int


_KEY: Final = ("chain", "asset", "address")
account = sa.Table("account", metadata, *columns_of(OwnAddress, key=_KEY), sqlite_with_rowid=False)

deposit = sa.Table(
    "deposit",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    *columns_of(
        Deposit, key=("number", "block_hash", "log_index"), log_index=sa.Integer(), value=Amount
    ),
    sa.Index("ix_deposit_key", "chain", "asset", "payer", "nonce"),
    sa.Index("ix_deposit_pay_to", "chain", "asset", "pay_to", "at"),
    sqlite_with_rowid=False,
)


def new_addresses(
    tx: Connection, chain: int, asset: str, addresses: Iterable[str]
) -> tuple[str, ...]:
    """Return those of the addresses (0x-hex, lower case) that are not accounts yet."""
    return tuple(sorted(set(addresses) - lows(tx, chain, asset).keys()))


def lows(tx: Connection, chain: int, asset: str) -> dict[str, int]:
    """Return all accounts of a token with the first block indexed for each."""
    query = sa.select(account.c.address, account.c.low).where(
        account.c.chain == chain, account.c.asset == asset
    )
    return dict(tx.execute(query).all())


def backlog(tx: Connection, chain: int, asset: str) -> OwnAddress | None:
    """Return the account to back-fill next, the one nearest to the cursor, or None."""
    query = (
        sa.select(account)
        .where(account.c.chain == chain, account.c.asset == asset)
        .where(account.c.low > 0, account.c.low_at >= account.c.wanted_from)
        .order_by(account.c.low.desc(), account.c.address)
        .limit(1)
    )
    row = tx.execute(query).one_or_none()
    return None if row is None else rows.from_columns(OwnAddress, row)


def fill(tx: Connection, before: OwnAddress, *, low: int, low_at: int) -> bool:
    """Move the `low` of an account; return False if another worker moved it in the meantime."""
    unchanged = (account.c[name] == getattr(before, name) for name in (*_KEY, "low"))
    change = account.update().where(*unchanged).values(low=low, low_at=low_at)
    return tx.execute(change).rowcount == 1


def add(tx: Connection, chain: int, deposits: Sequence[Deposit]) -> None:
    """Add deposits that are not stored yet."""
    if deposits:
        tx.execute(deposit.insert(), [{"chain": chain, **added._asdict()} for added in deposits])


def remove(tx: Connection, chain: int, *, above: int) -> None:
    """Delete the deposits of blocks above `above`, after a reorganisation."""
    tx.execute(deposit.delete().where(deposit.c.chain == chain, deposit.c.number > above))


def correct(tx: Connection, chain: int, span: Span, deposits: Sequence[Deposit]) -> int:
    """Add missing deposits of a span, and missing nonces of stored ones; return their number.

    A nonce is missing if a node's response lacked the authorization's event.
    """
    columns = (deposit.c.number, deposit.c.block_hash, deposit.c.log_index, deposit.c.nonce)
    in_span = (deposit.c.chain == chain, deposit.c.number.between(span.first, span.last))
    known = {tuple(row[:3]): row.nonce for row in tx.execute(sa.select(*columns).where(*in_span))}
    new = [seen for seen in deposits if seen[:3] not in known]
    without_nonce = {place for place, nonce in known.items() if nonce is None}
    completed = [seen for seen in deposits if seen.nonce is not None and seen[:3] in without_nonce]
    for seen in completed:
        place = (deposit.c.number == seen.number, deposit.c.block_hash == seen.block_hash)
        change = deposit.update().where(
            deposit.c.chain == chain, *place, deposit.c.log_index == seen.log_index
        )
        tx.execute(change.values(nonce=seen.nonce))
    add(tx, chain, new)
    return len(new) + len(completed)
