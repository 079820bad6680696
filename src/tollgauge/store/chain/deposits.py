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
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import hex_text
from tollgauge.core.chain.blocks import Span
from tollgauge.core.chain.settlement import Deposit
from tollgauge.db.codec import Amount
from tollgauge.db.schema import metadata
from tollgauge.store import rows

account = sa.Table(
    "account",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("asset", sa.Text, primary_key=True),
    sa.Column("address", sa.Text, primary_key=True),
    # The first block indexed for it, and that block's time (ms).
    sa.Column("low", sa.BigInteger, nullable=False),
    sa.Column("low_at", sa.BigInteger, nullable=False),
    # Back-filling ends once a block before this time (ms UTC) is indexed.
    sa.Column("wanted_from", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

deposit = sa.Table(
    "deposit",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("block_hash", sa.LargeBinary, primary_key=True),
    sa.Column("log_index", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("asset", sa.Text, nullable=False),
    sa.Column("pay_to", sa.Text, nullable=False),
    sa.Column("payer", sa.Text, nullable=False),
    sa.Column("value", Amount, nullable=False),
    # The authorization's nonce; NULL if the money moved in another way.
    sa.Column("nonce", sa.Text),
    sa.Column("transaction", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Index("ix_deposit_key", "chain", "asset", "payer", "nonce"),
    sa.Index("ix_deposit_pay_to", "chain", "asset", "pay_to", "at"),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositBacklog:
    """An account that must be back-filled from block `low` down to `wanted_from` (ms UTC)."""

    address: bytes
    low: int
    wanted_from: int


def new_addresses(
    tx: Connection, chain: int, asset: str, addresses: Iterable[str]
) -> tuple[str, ...]:
    """Return those of the addresses (0x-hex, lower case) that are not accounts yet."""
    wanted = set(addresses)
    query = sa.select(account.c.address).where(
        account.c.chain == chain, account.c.asset == asset, account.c.address.in_(wanted)
    )
    return tuple(sorted(wanted - set(tx.execute(query).scalars())))


def lows(tx: Connection, chain: int, asset: str) -> dict[bytes, int]:
    """Return all accounts of a token with the first block indexed for each."""
    query = sa.select(account.c.address, account.c.low).where(
        account.c.chain == chain, account.c.asset == asset
    )
    return {bytes.fromhex(address[2:]): low for address, low in tx.execute(query)}


def backlog(tx: Connection, chain: int, asset: str) -> DepositBacklog | None:
    """Return the account to back-fill next, the one nearest to the cursor, or None."""
    query = (
        sa.select(account.c.address, account.c.low, account.c.wanted_from)
        .where(account.c.chain == chain, account.c.asset == asset)
        .where(account.c.low > 0, account.c.low_at >= account.c.wanted_from)
        .order_by(account.c.low.desc(), account.c.address)
        .limit(1)
    )
    row = tx.execute(query).one_or_none()
    if row is None:
        return None
    return rows.from_columns(DepositBacklog, row, address=bytes.fromhex(row.address[2:]))


def add(tx: Connection, chain: int, deposits: Sequence[Deposit]) -> None:
    """Add deposits that are not stored yet."""
    if deposits:
        tx.execute(deposit.insert(), [_row(chain, added) for added in deposits])


def rewind(tx: Connection, chain: int, *, above: int, at: int) -> None:
    """Delete the deposits of blocks above `above`, after a reorganisation.

    Accounts that were added on those blocks are indexed from the next block on, of time `at` (ms
    UTC).
    """
    tx.execute(deposit.delete().where(deposit.c.chain == chain, deposit.c.number > above))
    tx.execute(
        account.update()
        .where(account.c.chain == chain, account.c.low > above + 1)
        .values(low=above + 1, low_at=rows.least(account.c.low_at, at))
    )


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
        tx.execute(change.values(nonce=_optional(seen.nonce)))
    add(tx, chain, new)
    return len(new) + len(completed)


def _row(chain: int, added: Deposit) -> dict[str, Any]:
    return added._asdict() | {
        "chain": chain,
        "asset": hex_text(added.asset),
        "pay_to": hex_text(added.pay_to),
        "payer": hex_text(added.payer),
        "nonce": _optional(added.nonce),
        "transaction": hex_text(added.transaction),
    }


def _optional(value: bytes | None) -> str | None:
    return None if value is None else hex_text(value)
