"""Transfers: payments that wallets received by authorization, transfers that left them, and daily
sums of both.

- There is one row per transfer and wallet, keyed by chain, block and log index. The block number
  comes first, so that rows are appended at one end and deleted at the other.
- `transfer_day` contains the sums of these rows by wallet, UTC day and counterparty, updated in the
  same transaction. Rows of zeros are deleted.
- Amounts are decimal strings added in Python: the sum of a wash trader's transfers may exceed any
  integer column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.chain.settlement import Entry
from tollgauge.db.codec import Amount, columns_of
from tollgauge.db.schema import metadata, partial_index
from tollgauge.store import rows

WITHOUT_SUBMITTER: Final = sa.text("incoming AND submitter IS NULL")
"""The condition of a partial index: payments whose submitter was not looked up."""

transfer = sa.Table(
    "transfer",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    *columns_of(
        Entry,
        key=("number", "block_hash", "log_index", "wallet"),
        log_index=sa.Integer(),
        value=Amount,
    ),
    # The builder code of the seller's app in the transaction, looked up with the submitter.
    sa.Column("app_code", sa.Text, nullable=False, server_default=""),
    sa.Index("ix_transfer_wallet", "chain", "wallet", "at"),
    partial_index("ix_transfer_without_submitter", "chain", "number", where=WITHOUT_SUBMITTER),
    sqlite_with_rowid=False,
)

transfer_day = sa.Table(
    "transfer_day",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("wallet", sa.LargeBinary, primary_key=True),
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("other", sa.LargeBinary, primary_key=True),
    sa.Column("transfers", sa.Integer, nullable=False),
    sa.Column("paid", Amount, nullable=False),
    sa.Column("returned", Amount, nullable=False),
    sqlite_with_rowid=False,
)

_KEYS: Final = 3_000  # sums per statement

Key = tuple[bytes, int, bytes]
"""Wallet, day and counterparty."""


def replace(
    tx: Connection, chain: int, entries: Sequence[Entry], *, above: int | None = None
) -> set[bytes]:
    """Delete all transfers above block `above`, then add entries, which must not be stored yet.

    Returns the wallets whose sums changed.
    """
    sums: dict[Key, list[int]] = {}
    if above is not None:
        removed = (transfer.c.chain == chain, transfer.c.number > above)
        columns = transfer.c["wallet", "at", "other", "incoming", "value"]
        for wallet, at, other, incoming, value in tx.execute(sa.select(*columns).where(*removed)):
            _add(sums, (wallet, day_of(at), other), value, incoming=incoming, sign=-1)
        tx.execute(transfer.delete().where(*removed))
    for entry in entries:
        key = (entry.wallet, day_of(entry.at), entry.other)
        _add(sums, key, entry.value, incoming=entry.incoming, sign=1)
    if entries:
        tx.execute(transfer.insert(), [{"chain": chain, **entry._asdict()} for entry in entries])
    _apply(tx, chain, {key: change for key, change in sums.items() if any(change)})
    return {key[0] for key in sums}


def find_new(tx: Connection, chain: int, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that are not stored, each once."""
    found = {(one.number, one.block_hash, one.log_index, one.wallet): one for one in entries}
    columns = transfer.c["number", "block_hash", "log_index", "wallet"]
    for numbers in rows.chunks({one.number for one in entries}):
        query = sa.select(*columns).where(transfer.c.chain == chain, transfer.c.number.in_(numbers))
        for row in tx.execute(query):
            found.pop(tuple(row), None)
    return list(found.values())


def find_known(tx: Connection, chain: int, wallet: bytes, numbers: Collection[int]) -> set[bytes]:
    """Return the transactions of blocks that have a stored transfer of a wallet."""
    return {
        transaction
        for some in rows.chunks(numbers)
        for transaction in tx.execute(
            sa.select(transfer.c.transaction).where(
                transfer.c.chain == chain,
                transfer.c.number.in_(some),
                transfer.c.wallet == wallet,
            )
        ).scalars()
    }


def find_settlement_time(
    tx: Connection, chain: int, *, wallet: bytes, payer: bytes, nonce: bytes, since: int, until: int
) -> int | None:
    """Return when a wallet received a payer's authorization (ms UTC); None if it did not between
    `since` and `until`.
    """
    return rows.highest(
        tx,
        transfer.c.at,
        transfer.c.chain == chain,
        transfer.c.wallet == wallet,
        transfer.c.at.between(since, until),
        transfer.c.incoming,
        transfer.c.other == payer,
        transfer.c.nonce == nonce,
    )


def forget(tx: Connection, chain: int, *, before: int, blocks: int) -> int:
    """Delete transfers of whole days before a time (ms UTC), of at most `blocks` blocks, oldest
    first.

    Returns their number; call it again until it returns 0.
    """
    first_kept_day = day_of(before)
    by_number = sa.select(transfer.c.number, transfer.c.at).order_by(transfer.c.number)
    oldest = tx.execute(by_number.where(transfer.c.chain == chain).limit(1)).one_or_none()
    if oldest is None or day_of(oldest.at) >= first_kept_day:
        return 0
    oldest_blocks = (transfer.c.chain == chain, transfer.c.number < oldest.number + blocks)
    too_old = transfer.c.at < first_kept_day * DAY_MS
    return tx.execute(transfer.delete().where(*oldest_blocks, too_old)).rowcount


def forget_days(tx: Connection, chain: int, of: Sequence[bytes], *, before_day: int) -> None:
    """Delete the sums of wallets before a UTC day, in the order of the table's key."""
    old = (transfer_day.c.chain == chain, transfer_day.c.day < before_day)
    tx.execute(transfer_day.delete().where(*old, transfer_day.c.wallet.in_(of)))


def _add(sums: dict[Key, list[int]], key: Key, value: int, *, incoming: bool, sign: int) -> None:
    """Add a transfer to the sums (transfers, paid, returned) of a key; `sign` -1 subtracts it."""
    change = sums.setdefault(key, [0, 0, 0])
    if incoming:
        change[0] += sign
        change[1] += sign * value
    else:
        change[2] += sign * value


def _apply(tx: Connection, chain: int, sums: dict[Key, list[int]]) -> None:
    """Add changes to the stored sums and delete those that become zero."""
    columns = transfer_day.c
    key = sa.tuple_(columns.wallet, columns.day, columns.other)
    stored = sa.select(transfer_day).where(columns.chain == chain)
    for keys in rows.chunks(sorted(sums), _KEYS):
        known = {
            (row.wallet, row.day, row.other): (row.transfers, row.paid, row.returned)
            for row in tx.execute(stored.where(key.in_(keys)))
        }
        changed: list[dict[str, Any]] = []
        empty: list[Key] = []
        for wallet, day, other in keys:
            before = known.get((wallet, day, other), (0, 0, 0))
            change = sums[wallet, day, other]
            count, paid, returned = (before[index] + change[index] for index in range(3))
            if count or paid or returned:
                place = {"chain": chain, "wallet": wallet, "day": day, "other": other}
                changed.append(place | {"transfers": count, "paid": paid, "returned": returned})
            elif (wallet, day, other) in known:
                empty.append((wallet, day, other))
        rows.put(tx, transfer_day, changed)
        if empty:
            tx.execute(transfer_day.delete().where(columns.chain == chain, key.in_(empty)))
