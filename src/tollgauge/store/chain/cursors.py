"""How far each chain is indexed: the cursor, the hashes that may still change, the wallets.

Rules:
- a chain is indexed up to its cursor for every wallet, and for each wallet from its own `low` on,
  which back-filling moves down. So a wallet that is added late has its past indexed later;
- the hashes of the blocks from the finalized one to the cursor are kept;
- a cursor moves in the transaction that writes what was indexed: `advance` and `fill` move it only
  from where the indexer read it, and raise OvertakenError if it is no longer there.

What wallets received and paid is store/chain/transfers's, deposits to our addresses
store/chain/deposits's.
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
from tollgauge.store import rows
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
    # Up to this block every block was indexed again after it was final.
    sa.Column("audited", sa.BigInteger, nullable=False),
    # That block's time (ms); 0 while it is not known.
    sa.Column("audited_at", sa.BigInteger, nullable=False, server_default="0"),
    # Counts changes of the sets of wallets and accounts: what was read for other sets is not
    # applied.
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
    # Its settlements changed after `marked_at`, when its endpoints were last marked dirty.
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
    """How far a chain is indexed: block `number` with its hash and time `at` (ms UTC), the last
    known `finalized` block, the last `audited` block and its time, and the version of the sets of
    wallets and accounts.
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
    """Wallets whose past is missing below block `low`. They are back-filled together down to
    `floor`, where the next wallets' missing past begins.
    """

    low: int
    floor: int
    wallets: frozenset[bytes]


def cursor(tx: Connection, chain: int) -> Cursor | None:
    """How far a chain is indexed; None before the first step."""
    row = tx.execute(_CURSOR, {"chain": chain}).mappings().one_or_none()
    return None if row is None else Cursor(**row)


def start(tx: Connection, chain: int, header: Header) -> Cursor:
    """Begin to index a chain after a final block. Raises OvertakenError if another worker began
    after a different one.
    """
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
    started = cursor(tx, chain)
    if started is None or started.hash != header.hash:
        raise OvertakenError
    return started


def kept(tx: Connection, chain: int) -> dict[int, bytes]:
    """The hashes of the indexed blocks that may still change, and of the last final one."""
    rows = tx.execute(
        sa.select(chain_header.c.number, chain_header.c.hash).where(chain_header.c.chain == chain)
    )
    return {row.number: row.hash for row in rows}


def unknown(tx: Connection, chain: int) -> tuple[str, ...]:
    """The payTo addresses of endpoints on this chain that are not wallets yet."""
    is_wallet = sa.exists().where(
        chain_wallet.c.chain == chain, chain_wallet.c.address == endpoint_table.c.quote_pay_to
    )
    query = (
        sa.select(endpoint_table.c.quote_pay_to)
        .distinct()
        .where(endpoint_table.c.quote_network == f"eip155:{chain}", ~is_wallet)
        .order_by(endpoint_table.c.quote_pay_to)
    )
    addresses = tx.execute(query).scalars()
    return tuple(address for address in addresses if ADDRESS.fullmatch(address))


def join(tx: Connection, before: Cursor, addresses: Iterable[str]) -> Cursor:
    """Add wallets. They are indexed from the cursor on, and their past is to be back-filled. Raises
    OvertakenError.
    """
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
    after = _with_new_version(tx, before)
    tx.execute(upsert.insert(tx, chain_wallet).on_conflict_do_nothing(), rows)
    return after


def join_accounts(
    tx: Connection,
    before: Cursor,
    asset: str,
    addresses: Sequence[str],
    *,
    wanted_from: int,
) -> Cursor:
    """Add addresses that sales are paid to. They are indexed from the cursor on, and their past
    since `wanted_from` (ms UTC) is to be back-filled. Raises OvertakenError.
    """
    if not addresses:
        return before
    after = _with_new_version(tx, before)
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


def _with_new_version(tx: Connection, before: Cursor) -> Cursor:
    """Increment the version of the cursor, because the sets of wallets and accounts change. Raises
    OvertakenError.
    """
    changed = tx.execute(
        chain_cursor.update().where(*_at(before)).values(version=chain_cursor.c.version + 1)
    )
    if changed.rowcount != 1:
        raise OvertakenError
    return _reread(tx, before.chain)


def wallets(tx: Connection, chain: int) -> dict[bytes, int]:
    """Every wallet of a chain, with the first block that is indexed for it."""
    rows = tx.execute(
        sa.select(chain_wallet.c.address, chain_wallet.c.low).where(chain_wallet.c.chain == chain)
    )
    return {bytes.fromhex(address[2:]): low for address, low in rows}


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
    """Move the cursor to the last of `headers`, and write what their blocks hold: the entries of
    wallets, and the deposits that `came` to our accounts.

    `headers` are those to keep, in order; a final span may give its last one alone. `common` is
    the last indexed block that is also in the new chain: everything above it is replaced. Raises
    OvertakenError.
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
        # Wallets that were added on the blocks that are gone are now indexed from `common` on.
        tx.execute(
            chain_wallet.update()
            .where(chain_wallet.c.chain == before.chain, chain_wallet.c.low > common + 1)
            .values(low=common + 1, low_at=rows.least(chain_wallet.c.low_at, headers[0].at))
        )
        deposits.rewind(tx, before.chain, above=common, at=headers[0].at)
    deposits.add(tx, before.chain, came)
    tx.execute(
        chain_header.insert(),
        [
            {"chain": before.chain, "number": header.number, "hash": header.hash}
            for header in headers
        ],
    )
    floor = min(final, to.number)
    tx.execute(
        chain_header.delete().where(
            chain_header.c.chain == before.chain, chain_header.c.number < floor
        )
    )
    touch(tx, before.chain, touched)
    return _reread(tx, before.chain)


def backlog(tx: Connection, chain: int, *, limit: int) -> Backlog | None:
    """The wallets to back-fill next, those nearest to the cursor first; None if all are done."""
    unfinished = (chain_wallet.c.chain == chain, chain_wallet.c.done.is_(False))
    low = tx.execute(sa.select(sa.func.max(chain_wallet.c.low)).where(*unfinished)).scalar_one()
    if low is None:
        return None
    below = sa.select(sa.func.max(chain_wallet.c.low)).where(*unfinished, chain_wallet.c.low < low)
    query = (
        sa.select(chain_wallet.c.address)
        .where(*unfinished, chain_wallet.c.low == low)
        .order_by(chain_wallet.c.address)
    )
    addresses = tx.execute(query.limit(limit)).scalars()
    return Backlog(
        low=low,
        floor=tx.execute(below).scalar_one() or 0,
        wallets=frozenset(bytes.fromhex(address[2:]) for address in addresses),
    )


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
    """Move the `low` of wallets down to a block of time `low_at`, and write the entries between.
    They are done at the chain's first block, or at a block that is not after `wanted_from`
    (instants are ms UTC).

    Raises OvertakenError.
    """
    low_at = low_at if low else 0
    done = low_at <= wanted_from
    _lock(tx, before)
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
    """Move the `low` of an account down to a block of time `low_at`, and write the deposits that
    `came` to it.

    Raises OvertakenError.
    """
    _lock(tx, before)
    if not deposits.fill(tx, before.chain, asset, owed, came, low=low, low_at=low_at):
        raise OvertakenError


def audited(
    tx: Connection,
    before: Cursor,
    span: Span,
    entries: list[Entry],
    *,
    at: int,
    came: Sequence[Deposit] = (),
) -> int:
    """Record that a final span, whose last block is of time `at` (ms UTC), was read again, and add
    the entries and deposits that were missing; returns how many. Raises OvertakenError.
    """
    change = chain_cursor.update().where(*_at(before), chain_cursor.c.audited == before.audited)
    if tx.execute(change.values(audited=span.last, audited_at=at)).rowcount != 1:
        raise OvertakenError
    missing = transfers.missing(tx, before.chain, span, entries)
    touch(tx, before.chain, transfers.replace(tx, before.chain, missing))
    return len(missing) + deposits.correct(tx, before.chain, span, came)


def touch(tx: Connection, chain: int, changed: Iterable[bytes]) -> None:
    """Record that the settlements of some wallets changed."""
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


def mark_dirty(tx: Connection, chain: int, *, now: int, every_ms: int) -> int:
    """Mark the endpoints of touched wallets as dirty, and return how many. A wallet's are marked at
    most once in `every_ms`, because thousands of endpoints may have the same wallet.
    """
    query = sa.select(chain_wallet.c.address).where(
        chain_wallet.c.chain == chain,
        chain_wallet.c.touched.is_(True),
        chain_wallet.c.marked_at <= now - every_ms,
    )
    marked = 0
    addresses = list(tx.execute(query).scalars())
    for start_ in range(0, len(addresses), _CHUNK):
        chunk = addresses[start_ : start_ + _CHUNK]
        paid = sa.select(endpoint_table.c.id).where(
            endpoint_table.c.quote_pay_to.in_(chunk),
            endpoint_table.c.quote_network == f"eip155:{chain}",
        )
        ids = list(tx.execute(paid).scalars())
        endpoints.mark_dirty(tx, ids, now=now)
        touched = chain_wallet.update().where(
            chain_wallet.c.chain == chain, chain_wallet.c.address.in_(chunk)
        )
        tx.execute(touched.values(touched=False, marked_at=now))
        marked += len(ids)
    return marked


def _reread(tx: Connection, chain: int) -> Cursor:
    current = cursor(tx, chain)
    if current is None:
        raise OvertakenError
    return current


def _lock(tx: Connection, before: Cursor) -> None:
    """Lock the cursor until the transaction ends, so that no reorganisation is applied meanwhile.
    Raises OvertakenError if the cursor has moved.
    """
    locked = sa.select(chain_cursor.c.number).where(*_at(before)).with_for_update()
    if tx.execute(locked).scalar_one_or_none() is None:
        raise OvertakenError


def _at(before: Cursor) -> tuple[sa.ColumnElement[bool], ...]:
    """The cursor is still `before`, for the same sets of wallets and accounts."""
    return (
        chain_cursor.c.chain == before.chain,
        chain_cursor.c.number == before.number,
        chain_cursor.c.hash == before.hash,
        chain_cursor.c.version == before.version,
    )


def _chunks(addresses: Sequence[bytes]) -> Iterable[list[str]]:
    """Addresses as text, in lists that fit the databases' limits on parameters."""
    for start_ in range(0, len(addresses), _CHUNK):
        yield ["0x" + address.hex() for address in addresses[start_ : start_ + _CHUNK]]
