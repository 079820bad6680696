"""Cursors: how far each chain is indexed, and the hashes of blocks that may still change.

- A chain is indexed up to its cursor for every wallet, and for each wallet from its own `low`,
  which back-filling moves down.
- The hashes of blocks from the finalized one up to the cursor are kept, to detect reorganisations.
- A cursor moves in the transaction that writes the indexed rows. `advance` and `fill` move it only
  from where the indexer read it, and raise CursorOvertakenError otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.chain.blocks import BlockHeader, Span
from tollgauge.core.chain.settlement import Deposit, Entry
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import metadata
from tollgauge.store import rows
from tollgauge.store.chain import deposits, transfers, wallets
from tollgauge.store.chain.deposits import account
from tollgauge.store.chain.wallets import chain_wallet

chain_header = sa.Table(
    "chain_header",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)


class CursorOvertakenError(TollgaugeError):
    """Another worker indexed the same blocks first; nothing was changed."""

    def __init__(self) -> None:
        super().__init__("Another worker indexed these blocks first.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The state of a chain's index: block `number` with its hash and time `at` (ms UTC), the last
    known `finalized` block, the last `audited` block with its time, and the version of the sets of
    wallets and accounts: rows read for an older set are rejected. All blocks up to `audited` were
    indexed again after they were final.
    """

    chain: int
    number: int
    hash: bytes
    at: int
    finalized: int
    audited: int
    audited_at: int
    version: int


chain_cursor = sa.Table("chain_cursor", metadata, *columns_of(Cursor, key=("chain",)))


_OF_CHAIN: Final = sa.select(chain_cursor).where(chain_cursor.c.chain == sa.bindparam("chain"))


def cursor(tx: Connection, chain: int) -> Cursor | None:
    """Return the cursor of a chain, or None before the first step."""
    row = tx.execute(_OF_CHAIN, {"chain": chain}).first()
    return None if row is None else rows.from_columns(Cursor, row)


def chains(tx: Connection) -> tuple[int, ...]:
    """Return the IDs of the indexed chains, in order."""
    return tuple(
        tx.execute(sa.select(chain_cursor.c.chain).order_by(chain_cursor.c.chain)).scalars()
    )


def start(tx: Connection, chain: int, header: BlockHeader) -> Cursor:
    """Start to index a chain after a final block.

    Raises:
        CursorOvertakenError: Another worker started after a different block.
    """
    first = {"chain": chain, "number": header.number, "hash": header.hash}
    audit = {"finalized": header.number, "audited": header.number, "audited_at": header.at}
    rows.add_missing(tx, chain_cursor, [first | audit | {"at": header.at, "version": 0}])
    rows.add_missing(tx, chain_header, [first])
    started = cursor(tx, chain)
    if started is None or started.hash != header.hash:
        raise CursorOvertakenError
    return started


def kept_hashes(tx: Connection, chain: int) -> dict[int, bytes]:
    """Return the hashes of indexed blocks that may still change, and of the last final one."""
    query = sa.select(chain_header).where(chain_header.c.chain == chain)
    return {row.number: row.hash for row in tx.execute(query)}


def add_wallets(tx: Connection, before: Cursor, addresses: Sequence[str]) -> Cursor:
    """Add wallets, indexed from the cursor on and back-filled later.

    Raises:
        CursorOvertakenError: The cursor has moved.
    """
    if not addresses:
        return before
    after = _move(tx, before, version=chain_cursor.c.version + 1)
    wallets.add(tx, before.chain, addresses, after=before.number, at=before.at)
    return after


def add_accounts(
    tx: Connection,
    before: Cursor,
    asset: str,
    addresses: Sequence[str],
    *,
    wanted_from: int,
) -> Cursor:
    """Add addresses that sales are paid to, indexed from the cursor on and back-filled later to
    `wanted_from` (ms UTC).

    Raises:
        CursorOvertakenError: The cursor has moved.
    """
    if not addresses:
        return before
    after = _move(tx, before, version=chain_cursor.c.version + 1)
    place = {"chain": before.chain, "asset": asset, "low": before.number + 1, "low_at": before.at}
    added = [place | {"address": one, "wanted_from": wanted_from} for one in addresses]
    rows.add_missing(tx, account, added)
    return after


def advance(
    tx: Connection,
    before: Cursor,
    headers: Sequence[BlockHeader],
    entries: Sequence[Entry],
    *,
    finalized: int,
    common: int | None = None,
    received: Sequence[Deposit] = (),
) -> Cursor:
    """Move the cursor to the last of `headers` and write the entries of wallets and the deposits
    `received` in these blocks.

    `headers` are kept, in order; of a final span only the last is needed. `common` is the last
    indexed block that the new chain contains: after a reorganisation everything above it is
    replaced.

    Raises:
        CursorOvertakenError: The cursor has moved.
    """
    to, common = headers[-1], before.number if common is None else common
    final = max(before.finalized, finalized)
    # First: the update locks the cursor, so that no other indexer writes rows of these blocks.
    after = _move(tx, before, number=to.number, hash=to.hash, at=to.at, finalized=final)
    touched = transfers.replace(
        tx, before.chain, entries, above=common if common < before.number else None
    )
    of_chain = chain_header.c.chain == before.chain
    if common < before.number:  # a reorganisation removed the blocks above `common`
        tx.execute(chain_header.delete().where(of_chain, chain_header.c.number > common))
        deposits.remove(tx, before.chain, above=common)
        _rewind(tx, before.chain, above=common, at=headers[0].at)
    deposits.add(tx, before.chain, received)
    chain = {"chain": before.chain}
    kept = [chain | {"number": header.number, "hash": header.hash} for header in headers]
    tx.execute(chain_header.insert(), kept)
    # Final blocks cannot change: only the newest of their hashes is needed, as the parent of the
    # next.
    is_final = chain_header.c.number < min(final, to.number)
    tx.execute(chain_header.delete().where(of_chain, is_final))
    wallets.touch(tx, before.chain, touched)
    return after


def move_to(tx: Connection, before: Cursor, number: int, *, at: int) -> None:
    """Move the cursor of a chain without reorganisations to a final block of time `at` (ms UTC).

    Raises:
        CursorOvertakenError: The cursor has moved.
    """
    _move(tx, before, number=number, at=at, finalized=number, audited=number, audited_at=at)


def fill(
    tx: Connection,
    before: Cursor,
    missing: wallets.Backlog,
    entries: Sequence[Entry],
    *,
    low: int,
    low_at: int,
    wanted_from: int,
) -> None:
    """Move the `low` of wallets down to a block of time `low_at` and write the entries in between.

    Back-filling ends at the chain's first block, or at a block that is not after `wanted_from`.
    Times are ms UTC.

    Raises:
        CursorOvertakenError: The cursor or a `low` has moved.
    """
    low_at = low_at if low else 0
    _lock(tx, before)
    if not wallets.fill(
        tx, before.chain, missing, low=low, low_at=low_at, done=low_at <= wanted_from
    ):
        raise CursorOvertakenError
    wallets.touch(tx, before.chain, transfers.replace(tx, before.chain, entries))


def fill_account(
    tx: Connection,
    before: Cursor,
    missing: deposits.OwnAddress,
    received: Sequence[Deposit],
    *,
    low: int,
    low_at: int,
) -> None:
    """Move the `low` of an account down to a block of time `low_at` and write the deposits
    `received`.

    Raises:
        CursorOvertakenError: The cursor or the `low` has moved.
    """
    _lock(tx, before)
    if not deposits.fill(tx, missing, low=low, low_at=low_at if low else 0):
        raise CursorOvertakenError
    deposits.add(tx, before.chain, received)


def record_audit(
    tx: Connection,
    before: Cursor,
    span: Span,
    entries: list[Entry],
    *,
    at: int,
    received: Sequence[Deposit] = (),
) -> int:
    """Record that a final span was read again and add missing entries and deposits; return their
    number.

    `at` is the time of the span's last block (ms UTC).

    Raises:
        CursorOvertakenError: The cursor has moved.
    """
    not_audited = chain_cursor.c.audited == before.audited
    _move(tx, before, not_audited, audited=span.last, audited_at=at)
    missing = transfers.find_new(tx, before.chain, entries)
    wallets.touch(tx, before.chain, transfers.replace(tx, before.chain, missing))
    return len(missing) + deposits.correct(tx, before.chain, span, received)


def _move(
    tx: Connection, before: Cursor, *conditions: sa.ColumnElement[bool], **values: Any
) -> Cursor:
    """Update a cursor by compare-and-swap and return it.

    Raises:
        CursorOvertakenError: The cursor is not `before`.
    """
    change = chain_cursor.update().where(*_at(before), *conditions).values(values)
    row = tx.execute(change.returning(*chain_cursor.c)).one_or_none()
    if row is None:
        raise CursorOvertakenError
    return rows.from_columns(Cursor, row)


def _rewind(tx: Connection, chain: int, *, above: int, at: int) -> None:
    """Index the wallets and accounts that were added above block `above` from the next block on,
    of time `at` (ms UTC), after a reorganisation.
    """
    for table in (chain_wallet, account):
        added = (table.c.chain == chain, table.c.low > above + 1)
        values = {"low": above + 1, "low_at": rows.least(table.c.low_at, at)}
        tx.execute(table.update().where(*added).values(values))


def _lock(tx: Connection, before: Cursor) -> None:
    """Lock the cursor until the transaction ends, so that no reorganisation is applied in the
    meantime.

    Raises:
        CursorOvertakenError: The cursor has moved.
    """
    locked = sa.select(chain_cursor.c.number).where(*_at(before)).with_for_update()
    if tx.execute(locked).scalar_one_or_none() is None:
        raise CursorOvertakenError


def _at(before: Cursor) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the condition that the cursor is still `before`, for the same wallets and accounts."""
    return (
        chain_cursor.c.chain == before.chain,
        chain_cursor.c.number == before.number,
        chain_cursor.c.hash == before.hash,
        chain_cursor.c.version == before.version,
    )
