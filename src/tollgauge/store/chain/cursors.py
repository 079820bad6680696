"""How far each chain is indexed: the cursor, the hashes that may still change, the wallets.

Rules:
- a chain is indexed up to its cursor for every wallet; a wallet from its own `low` on, which
  back-filling moves downwards. So a wallet that is learned late has a cursor of its own;
- blocks from the finalized one to the cursor keep their hashes;
- what a step found and how far it came are one transaction: `advance` and `fill` move a cursor
  only from where the step began, and raise OvertakenError when it is no longer there.

What wallets received and paid is store/chain/transfers', what came to us store/chain/deposits'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.blocks import Header, Span
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.settlement import Deposit, Entry
from tollgauge.db import upsert
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import metadata
from tollgauge.db.transaction import step
from tollgauge.store.chain import deposits, transfers
from tollgauge.store.chain.deposits import Owed
from tollgauge.store.endpoints import endpoints

chain_cursor = sa.Table(
    "chain_cursor",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("finalized", sa.BigInteger, nullable=False),
    # Up to here every block was looked at again after it was final.
    sa.Column("audited", sa.BigInteger, nullable=False),
    # That block's time (ms); 0 while it is not known.
    sa.Column("audited_at", sa.BigInteger, nullable=False, server_default="0"),
    # Counts changes of the sets of wallets and accounts: a step that was asked for other sets is
    # not applied.
    sa.Column("version", sa.BigInteger, nullable=False),
)

chain_header = sa.Table(
    "chain_header",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

chain_wallet = sa.Table(
    "chain_wallet",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("address", sa.Text, primary_key=True),
    # The first block that is indexed for it, and that block's time (ms).
    sa.Column("low", sa.BigInteger, nullable=False),
    sa.Column("low_at", sa.BigInteger, nullable=False),
    # Back-filled as far as wanted.
    sa.Column("done", sa.Boolean, nullable=False),
    # Its settlements changed since its endpoints were told so at `marked_at`.
    sa.Column("touched", sa.Boolean, nullable=False),
    sa.Column("marked_at", sa.BigInteger, nullable=False),
    sa.Index("ix_chain_wallet_low", "chain", "done", "low"),
    sa.Index("ix_chain_wallet_touched", "chain", "touched"),
    sqlite_with_rowid=False,
)

_CURSOR: Final = sa.select(chain_cursor).where(chain_cursor.c.chain == sa.bindparam("chain"))
ADDRESS: Final = re.compile(r"0x[0-9a-f]{40}", re.ASCII)
"""An EVM address in lower case."""
_CHUNK: Final = 5_000


class OvertakenError(TollgaugeError):
    """Another worker indexed the same blocks first; nothing was changed."""

    def __init__(self) -> None:
        super().__init__("Another worker indexed these blocks first.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a chain is indexed: block `number` and its hash and time, the last finalized block
    that was seen, the last audited one and its time, and the version of the set of wallets and
    accounts.
    """

    chain: int
    number: int
    hash: bytes
    at: int
    finalized: int
    audited: int
    audited_at: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Wallets whose history is missing below block `low`, and how far down they go together:
    not below `floor`, where others wait to join them.
    """

    low: int
    floor: int
    wallets: frozenset[bytes]


@step
def cursor(tx: Connection, chain: int) -> Cursor | None:
    """How far a chain is indexed; None before the first step."""
    row = tx.execute(_CURSOR, {"chain": chain}).mappings().one_or_none()
    return None if row is None else Cursor(**row)


@step
def start(tx: Connection, chain: int, header: Header) -> Cursor:
    """Begin a chain after a final block: nothing is indexed yet."""
    values = {
        "chain": chain,
        "number": header.number,
        "hash": header.hash,
        "at": header.at,
        "finalized": header.number,
        "audited": header.number,
        "audited_at": header.at,
        "version": 0,
    }
    tx.execute(upsert.insert(tx, chain_cursor).values(values).on_conflict_do_nothing())
    first = {"chain": chain, "number": header.number, "hash": header.hash}
    tx.execute(upsert.insert(tx, chain_header).values(first).on_conflict_do_nothing())
    found = cursor(tx, chain)
    if found is None or found.hash != header.hash:
        raise OvertakenError
    return found


@step
def kept(tx: Connection, chain: int) -> dict[int, bytes]:
    """The hashes of the indexed blocks that may still change, and of the last final one."""
    rows = tx.execute(
        sa.select(chain_header.c.number, chain_header.c.hash).where(chain_header.c.chain == chain)
    )
    return {row.number: row.hash for row in rows}


@step
def unknown(tx: Connection, chain: int) -> tuple[str, ...]:
    """Addresses that endpoints are paid at on this chain and that are not wallets yet."""
    known = sa.exists().where(
        chain_wallet.c.chain == chain, chain_wallet.c.address == endpoint_table.c.quote_pay_to
    )
    query = (
        sa.select(endpoint_table.c.quote_pay_to)
        .distinct()
        .where(endpoint_table.c.quote_network == f"eip155:{chain}", ~known)
        .order_by(endpoint_table.c.quote_pay_to)
    )
    found = tx.execute(query).scalars()
    return tuple(address for address in found if ADDRESS.fullmatch(address))


@step
def join(tx: Connection, before: Cursor, addresses: Iterable[str]) -> Cursor:
    """Add wallets: they are indexed after the cursor from now on, and owed everything before."""
    rows = [
        {
            "chain": before.chain,
            "address": address,
            "low": before.number + 1,
            "low_at": before.at,
            "done": False,
            "touched": False,
            "marked_at": 0,
        }
        for address in addresses
    ]
    if not rows:
        return before
    after = _renewed(tx, before)
    tx.execute(upsert.insert(tx, chain_wallet).on_conflict_do_nothing(), rows)
    return after


@step
def join_accounts(
    tx: Connection,
    before: Cursor,
    asset: str,
    addresses: Sequence[str],
    *,
    wanted_from: int,
) -> Cursor:
    """Add addresses of ours: indexed after the cursor, and owed everything since `wanted_from`
    (ms).
    """
    if not addresses:
        return before
    after = _renewed(tx, before)
    deposits.open_accounts(
        tx,
        before.chain,
        asset,
        addresses,
        after=before.number,
        at=before.at,
        wanted_from=wanted_from,
    )
    return after


def _renewed(tx: Connection, before: Cursor) -> Cursor:
    """The cursor with a new version of whom it is for. Raises OvertakenError."""
    done = tx.execute(
        chain_cursor.update().where(*_at(before)).values(version=chain_cursor.c.version + 1)
    )
    if done.rowcount != 1:
        raise OvertakenError
    return _again(tx, before.chain)


@step
def wallets(tx: Connection, chain: int) -> dict[bytes, int]:
    """Every wallet of a chain, with the first block that is indexed for it."""
    rows = tx.execute(
        sa.select(chain_wallet.c.address, chain_wallet.c.low).where(chain_wallet.c.chain == chain)
    )
    return {bytes.fromhex(address[2:]): low for address, low in rows}


@step
def advance(
    tx: Connection,
    before: Cursor,
    headers: Sequence[Header],
    entries: Sequence[Entry],
    *,
    finalized: int,
    common: int | None = None,
    came: Sequence[Deposit] = (),
) -> Cursor:
    """Move the cursor to the last of `headers`, with what their blocks hold: entries, and deposits
    that `came` to us.

    `headers` are those to keep, in order; a final span may give its last one alone. `common` is
    the last block that the new chain has in common with what is indexed: everything above it is
    replaced. Raises OvertakenError.
    """
    to, common = headers[-1], before.number if common is None else common
    final = max(before.finalized, finalized)
    moved = {"number": to.number, "hash": to.hash, "at": to.at, "finalized": final}
    done = tx.execute(chain_cursor.update().where(*_at(before)).values(moved))
    if done.rowcount != 1:
        raise OvertakenError
    touched = transfers.replace(
        tx, before.chain, entries, above=common if common < before.number else None
    )
    if common < before.number:
        tx.execute(
            chain_header.delete().where(
                chain_header.c.chain == before.chain, chain_header.c.number > common
            )
        )
        # The wallets that joined on the blocks that are gone are indexed from there on now.
        tx.execute(
            chain_wallet.update()
            .where(chain_wallet.c.chain == before.chain, chain_wallet.c.low > common + 1)
            .values(low=common + 1, low_at=endpoints.least(chain_wallet.c.low_at, headers[0].at))
        )
        deposits.rewind(tx, before.chain, above=common, at=headers[0].at)
    deposits.add(tx, before.chain, came)
    rows = [{"chain": before.chain, "number": each.number, "hash": each.hash} for each in headers]
    tx.execute(chain_header.insert(), rows)
    floor = min(final, to.number)
    tx.execute(
        chain_header.delete().where(
            chain_header.c.chain == before.chain, chain_header.c.number < floor
        )
    )
    touch(tx, before.chain, touched)
    return _again(tx, before.chain)


@step
def backlog(tx: Connection, chain: int, *, limit: int) -> Backlog | None:
    """Wallets that want back-filling, those nearest to the cursor first; None when all are done."""
    open_ = (chain_wallet.c.chain == chain, chain_wallet.c.done.is_(False))
    low = tx.execute(sa.select(sa.func.max(chain_wallet.c.low)).where(*open_)).scalar_one()
    if low is None:
        return None
    below = sa.select(sa.func.max(chain_wallet.c.low)).where(*open_, chain_wallet.c.low < low)
    mine = (
        sa.select(chain_wallet.c.address)
        .where(*open_, chain_wallet.c.low == low)
        .order_by(chain_wallet.c.address)
    )
    found = tx.execute(mine.limit(limit)).scalars()
    return Backlog(
        low=low,
        floor=tx.execute(below).scalar_one() or 0,
        wallets=frozenset(bytes.fromhex(address[2:]) for address in found),
    )


@step
def fill(
    tx: Connection,
    before: Cursor,
    missing: Backlog,
    entries: Sequence[Entry],
    *,
    low: int,
    low_at: int,
    wanted_from: int,
) -> None:
    """Move wallets down to block `low` of time `low_at`, with what was found on the way. They
    are done at the chain's first block, before which there was nothing to miss, or where blocks
    are not after `wanted_from` (ms).

    Raises OvertakenError.
    """
    low_at = low_at if low else 0
    done = low_at <= wanted_from
    _held(tx, before)
    moved = 0
    for chunk in _chunks(sorted(missing.wallets)):
        values = {"low": low, "low_at": low_at, "done": done}
        if done:
            values["touched"] = True
        change = chain_wallet.update().where(
            chain_wallet.c.chain == before.chain,
            chain_wallet.c.address.in_(chunk),
            chain_wallet.c.low == missing.low,
        )
        moved += tx.execute(change.values(values)).rowcount
    if moved != len(missing.wallets):
        raise OvertakenError
    touch(tx, before.chain, transfers.replace(tx, before.chain, entries))


@step
def fill_account(
    tx: Connection,
    before: Cursor,
    asset: str,
    owed: Owed,
    came: Sequence[Deposit],
    *,
    low: int,
    low_at: int,
) -> None:
    """Move an account of ours down to block `low` of time `low_at`, with what came to it.

    Raises OvertakenError.
    """
    _held(tx, before)
    if not deposits.fill(tx, before.chain, asset, owed, came, low=low, low_at=low_at):
        raise OvertakenError


@step
def audited(
    tx: Connection,
    before: Cursor,
    span: Span,
    entries: list[Entry],
    *,
    at: int,
    came: Sequence[Deposit] = (),
) -> int:
    """Note that a final span, whose last block is of time `at` (ms), was looked at again, and add
    what it holds that is not there yet; how much that was. Raises OvertakenError.
    """
    change = chain_cursor.update().where(*_at(before), chain_cursor.c.audited == before.audited)
    if tx.execute(change.values(audited=span.last, audited_at=at)).rowcount != 1:
        raise OvertakenError
    missing = transfers.missing(tx, before.chain, span, entries)
    touch(tx, before.chain, transfers.replace(tx, before.chain, missing))
    return len(missing) + deposits.correct(tx, before.chain, span, came)


@step
def touch(tx: Connection, chain: int, changed: Iterable[bytes]) -> None:
    """Note that the settlements of some wallets changed."""
    for chunk in _chunks(sorted(changed)):
        tx.execute(
            chain_wallet.update()
            .where(
                chain_wallet.c.chain == chain,
                chain_wallet.c.address.in_(chunk),
                chain_wallet.c.touched.is_(False),
            )
            .values(touched=True)
        )


@step
def mark_dirty(tx: Connection, chain: int, *, now: int, every_ms: int) -> int:
    """Tell the endpoints of touched wallets that their evidence changed, a wallet's at most once
    in `every_ms`, because one wallet may be that of thousands of endpoints; how many were told.
    """
    query = sa.select(chain_wallet.c.address).where(
        chain_wallet.c.chain == chain,
        chain_wallet.c.touched.is_(True),
        chain_wallet.c.marked_at <= now - every_ms,
    )
    told = 0
    addresses = list(tx.execute(query).scalars())
    for start_ in range(0, len(addresses), _CHUNK):
        chunk = addresses[start_ : start_ + _CHUNK]
        paid = sa.select(endpoint_table.c.id).where(
            endpoint_table.c.quote_pay_to.in_(chunk),
            endpoint_table.c.quote_network == f"eip155:{chain}",
        )
        ids = list(tx.execute(paid).scalars())
        endpoints.mark_dirty(tx, ids, now=now)
        mine = chain_wallet.update().where(
            chain_wallet.c.chain == chain, chain_wallet.c.address.in_(chunk)
        )
        tx.execute(mine.values(touched=False, marked_at=now))
        told += len(ids)
    return told


def _again(tx: Connection, chain: int) -> Cursor:
    found = cursor(tx, chain)
    if found is None:
        raise OvertakenError
    return found


def _held(tx: Connection, before: Cursor) -> None:
    """Keep the cursor where it is until the transaction ends, so that no rewind passes in between.
    Raises OvertakenError when it is elsewhere.
    """
    held = sa.select(chain_cursor.c.number).where(*_at(before)).with_for_update()
    if tx.execute(held).scalar_one_or_none() is None:
        raise OvertakenError


def _at(before: Cursor) -> tuple[sa.ColumnElement[bool], ...]:
    """The cursor is where a step began, for the same wallets."""
    return (
        chain_cursor.c.chain == before.chain,
        chain_cursor.c.number == before.number,
        chain_cursor.c.hash == before.hash,
        chain_cursor.c.version == before.version,
    )


def _chunks(found: Sequence[bytes]) -> Iterable[list[str]]:
    """Addresses as text, in lists that fit the databases' limits on parameters."""
    for start_ in range(0, len(found), _CHUNK):
        yield ["0x" + address.hex() for address in found[start_ : start_ + _CHUNK]]
