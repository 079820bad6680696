"""Deposits: every transfer to an address that we sell to, whatever made it, and those addresses.

Rules:
- an address of ours is an account from the first time that the configuration or the ledger names
  it, and stays one: what comes to an old address is booked like what comes to a new one;
- an account is indexed up to the chain's cursor, and from its own `low` on, which back-filling
  moves down to `wanted_from`;
- one row a transfer, keyed by chain, block and place in the block. Rows are never forgotten; a
  reorganisation takes back those of the blocks that are gone;
- which sale a transfer paid for is not written here: it follows from the ledger
  (store/ledger/books), so that it cannot disagree with it.

Which blocks are indexed is store/chain/cursors's; it calls what changes rows together with its
cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.blocks import Span
from tollgauge.core.settlement import Deposit
from tollgauge.db import upsert
from tollgauge.db.schema import metadata
from tollgauge.db.transaction import step
from tollgauge.store.endpoints import endpoints

account = sa.Table(
    "account",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("asset", sa.Text, primary_key=True),
    sa.Column("address", sa.Text, primary_key=True),
    # The first block that is indexed for it, and that block's time (ms).
    sa.Column("low", sa.BigInteger, nullable=False),
    sa.Column("low_at", sa.BigInteger, nullable=False),
    # Back-filling goes on until a block before this instant (ms) is indexed.
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
    sa.Column("value", sa.Text, nullable=False),
    # The authorization's; NULL when something else moved the money.
    sa.Column("nonce", sa.Text),
    sa.Column("transaction", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Index("ix_deposit_key", "chain", "asset", "payer", "nonce"),
    sa.Index("ix_deposit_pay_to", "chain", "asset", "pay_to", "at"),
    sqlite_with_rowid=False,
)

_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """An account whose past is missing below block `low`."""

    address: bytes
    low: int
    wanted_from: int


@step
def unopened(tx: Connection, chain: int, asset: str, addresses: Iterable[str]) -> tuple[str, ...]:
    """Which of these addresses (0x-hex, lower case) are no accounts yet."""
    wanted = set(addresses)
    query = sa.select(account.c.address).where(
        account.c.chain == chain, account.c.asset == asset, account.c.address.in_(wanted)
    )
    return tuple(sorted(wanted - set(tx.execute(query).scalars())))


@step
def open_accounts(
    tx: Connection,
    chain: int,
    asset: str,
    addresses: Sequence[str],
    *,
    after: int,
    at: int,
    wanted_from: int,
) -> None:
    """Begin accounts: indexed after block `after` of time `at` (ms), and owed everything since
    `wanted_from`. The caller renews the cursor in the same transaction (store/chain/cursors).
    """
    place = {"chain": chain, "asset": asset, "low": after + 1, "low_at": at}
    rows = [{**place, "address": each, "wanted_from": wanted_from} for each in addresses]
    tx.execute(upsert.insert(tx, account).on_conflict_do_nothing(), rows)


@step
def lows(tx: Connection, chain: int, asset: str) -> dict[bytes, int]:
    """Every account of a token, with the first block that is indexed for it."""
    query = sa.select(account.c.address, account.c.low).where(
        account.c.chain == chain, account.c.asset == asset
    )
    return {bytes.fromhex(address[2:]): low for address, low in tx.execute(query)}


@step
def backlog(tx: Connection, chain: int, asset: str) -> Owed | None:
    """The account that wants back-filling and is nearest to the cursor; None when none does."""
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
    address, low, wanted_from = row
    return Owed(address=bytes.fromhex(address[2:]), low=low, wanted_from=wanted_from)


@step
def fill(
    tx: Connection,
    chain: int,
    asset: str,
    owed: Owed,
    found: Sequence[Deposit],
    *,
    low: int,
    low_at: int,
) -> bool:
    """Move an account down to block `low` of time `low_at`, with what was found on the way; False
    when somebody else did meanwhile.
    """
    change = account.update().where(
        account.c.chain == chain,
        account.c.asset == asset,
        account.c.address == _text(owed.address),
        account.c.low == owed.low,
    )
    done = tx.execute(change.values(low=low, low_at=low_at if low else 0))
    if done.rowcount == 1:
        add(tx, chain, found)
    return done.rowcount == 1


@step
def add(tx: Connection, chain: int, found: Sequence[Deposit]) -> None:
    """Add deposits that are not there yet."""
    for start in range(0, len(found), _ROWS):
        rows = [_row(chain, each) for each in found[start : start + _ROWS]]
        tx.execute(deposit.insert(), rows)


@step
def rewind(tx: Connection, chain: int, *, above: int, at: int) -> None:
    """Take back what blocks above `above` brought. Accounts that began on them are indexed from
    the next block on, of time `at` (ms).
    """
    tx.execute(deposit.delete().where(deposit.c.chain == chain, deposit.c.number > above))
    tx.execute(
        account.update()
        .where(account.c.chain == chain, account.c.low > above + 1)
        .values(low=above + 1, low_at=endpoints.least(account.c.low_at, at))
    )


@step
def correct(tx: Connection, chain: int, span: Span, found: Sequence[Deposit]) -> int:
    """Add the deposits of a span that are not there, and the nonces of those that an answer
    without their authorizations left plain; how many that was.
    """
    columns = (deposit.c.number, deposit.c.block_hash, deposit.c.log_index, deposit.c.nonce)
    mine = (deposit.c.chain == chain, deposit.c.number.between(span.first, span.last))
    known = {tuple(row[:3]): row.nonce for row in tx.execute(sa.select(*columns).where(*mine))}
    new = [each for each in found if each[:3] not in known]
    plain = {place for place, nonce in known.items() if nonce is None}
    told = [each for each in found if each.nonce is not None and each[:3] in plain]
    for each in told:
        place = (deposit.c.number == each.number, deposit.c.block_hash == each.block_hash)
        change = deposit.update().where(
            deposit.c.chain == chain, *place, deposit.c.log_index == each.log_index
        )
        tx.execute(change.values(nonce=_optional(each.nonce)))
    add(tx, chain, new)
    return len(new) + len(told)


def _row(chain: int, each: Deposit) -> dict[str, Any]:
    return {
        "chain": chain,
        "number": each.number,
        "block_hash": each.block_hash,
        "log_index": each.log_index,
        "asset": _text(each.asset),
        "pay_to": _text(each.pay_to),
        "payer": _text(each.payer),
        "value": str(each.value),
        "nonce": _optional(each.nonce),
        "transaction": _text(each.transaction),
        "at": each.at,
    }


def _text(value: bytes) -> str:
    return "0x" + value.hex()


def _optional(value: bytes | None) -> str | None:
    return None if value is None else _text(value)
