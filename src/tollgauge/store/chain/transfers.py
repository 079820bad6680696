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

from collections.abc import Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.chain.blocks import Span
from tollgauge.core.chain.settlement import Entry
from tollgauge.db.schema import metadata
from tollgauge.store import rows

transfer = sa.Table(
    "transfer",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("block_hash", sa.LargeBinary, primary_key=True),
    sa.Column("log_index", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("wallet", sa.LargeBinary, primary_key=True),
    sa.Column("other", sa.LargeBinary, nullable=False),
    sa.Column("incoming", sa.Boolean, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    # The authorization's nonce; NULL for a plain transfer from the wallet.
    sa.Column("nonce", sa.LargeBinary),
    sa.Column("transaction", sa.LargeBinary, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Index("ix_transfer_wallet", "chain", "wallet", "at"),
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
    sa.Column("paid", sa.Text, nullable=False),
    sa.Column("returned", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

_KEYS: Final = 3_000
_ROWS: Final = 2_000

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
            _add(sums, (wallet, day_of(at), other), int(value), incoming=incoming, sign=-1)
        tx.execute(transfer.delete().where(*removed))
    for entry in entries:
        key = (entry.wallet, day_of(entry.at), entry.other)
        _add(sums, key, entry.value, incoming=entry.incoming, sign=1)
    for batch in rows.chunks(entries, _ROWS):
        rows.execute_many(tx, _INSERT, [_row(chain, entry) for entry in batch])
    _apply(tx, chain, {key: change for key, change in sums.items() if any(change)})
    return {key[0] for key in sums}


def missing(tx: Connection, chain: int, span: Span, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a span that are not stored."""
    columns = (transfer.c.block_hash, transfer.c.log_index, transfer.c.wallet)
    in_span = (transfer.c.chain == chain, transfer.c.number.between(span.first, span.last))
    known = {tuple(row) for row in tx.execute(sa.select(*columns).where(*in_span))}
    return [
        entry for entry in entries if (entry.block_hash, entry.log_index, entry.wallet) not in known
    ]


def forget(tx: Connection, chain: int, *, before: int, blocks: int) -> int:
    """Delete transfers of whole days before a time (ms UTC), of at most `blocks` blocks, oldest
    first.

    Returns their number; call it again until it returns 0.
    """
    first_kept_day = day_of(before)
    oldest = (
        tx.execute(
            sa.select(transfer.c.number, transfer.c.at)
            .where(transfer.c.chain == chain)
            .order_by(transfer.c.number)
            .limit(1)
        )
    ).one_or_none()
    if oldest is None or day_of(oldest.at) >= first_kept_day:
        return 0
    oldest_blocks = (transfer.c.chain == chain, transfer.c.number < oldest.number + blocks)
    too_old = transfer.c.at < first_kept_day * DAY_MS
    return tx.execute(transfer.delete().where(*oldest_blocks, too_old)).rowcount


def forget_days(tx: Connection, chain: int, of: Sequence[bytes], *, before_day: int) -> None:
    """Delete the sums of wallets before a UTC day, in the order of the table's key."""
    old = (transfer_day.c.chain == chain, transfer_day.c.day < before_day)
    tx.execute(transfer_day.delete().where(*old, transfer_day.c.wallet.in_(of)))


_INSERT: Final = (
    'INSERT INTO transfer (chain, number, block_hash, log_index, wallet, other, incoming, "value", '
    'nonce, "transaction", at) VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})'
)
_UPSERT: Final = (
    "INSERT INTO transfer_day (chain, wallet, day, other, transfers, paid, returned) "
    "VALUES ({}, {}, {}, {}, {}, {}, {}) "
    "ON CONFLICT (chain, wallet, day, other) DO UPDATE SET transfers = excluded.transfers, "
    "paid = excluded.paid, returned = excluded.returned"
)
_SUMS: Final = (
    "SELECT wallet, day, other, transfers, paid, returned FROM transfer_day "
    "WHERE chain = {} AND (wallet, day, other) IN ({}{})"
)
_REMOVE: Final = (
    "DELETE FROM transfer_day WHERE chain = {} AND wallet = {} AND day = {} AND other = {}"
)


def _row(chain: int, entry: Entry) -> tuple[Any, ...]:
    number, block_hash, index, wallet, other, incoming, value, nonce, transaction, at = entry
    place = (chain, number, block_hash, index, wallet, other)
    return (*place, incoming, str(value), nonce, transaction, at)


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
    for keys in rows.chunks(sorted(sums), _KEYS):
        known = _known(tx, chain, keys)
        changed: list[tuple[Any, ...]] = []
        empty: list[tuple[Any, ...]] = []
        for key in keys:
            stored, change = known.get(key, (0, 0, 0)), sums[key]
            count, paid, back = (stored[i] + change[i] for i in range(3))
            if count or paid or back:
                changed.append((chain, *key, count, str(paid), str(back)))
            elif key in known:
                empty.append((chain, *key))
        if changed:
            rows.execute_many(tx, _UPSERT, changed)
        if empty:
            rows.execute_many(tx, _REMOVE, empty)


def _known(tx: Connection, chain: int, keys: Sequence[Key]) -> dict[Key, tuple[int, int, int]]:
    first, *rest = rows.placeholders(tx, 1 + 3 * len(keys))
    triples = (f"({a}, {b}, {c})" for a, b, c in zip(*[iter(rest)] * 3, strict=True))
    list_of = "VALUES " if tx.dialect.name == "sqlite" else ""
    query = _SUMS.format(first, list_of, ", ".join(triples))
    values = (chain, *(part for key in keys for part in key))
    stored: Iterable[Any] = tx.exec_driver_sql(query, values)
    return {
        (wallet, day, other): (count, int(paid), int(back))
        for wallet, day, other, count, paid, back in stored
    }
