"""Payers: who pays the wallets of a chain, and where and when each was first seen.

Rules:
- one row for each payer, changed in the transaction that adds its payments;
- a first payment is the earliest that was ever indexed, in whatever order blocks are read. A
  reorganisation that takes it back leaves its time, which is then early by some blocks;
- a payer without payments for as long as transfers are kept is forgotten, and is new if it pays
  again.

What it means to be new is core/score/organic's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import day_of
from tollgauge.core.chain.settlement import Entry
from tollgauge.core.score.organic import First
from tollgauge.db.schema import metadata
from tollgauge.store import rows

chain_payer = sa.Table(
    "chain_payer",
    metadata,
    sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("payer", sa.LargeBinary, primary_key=True),
    # The wallet of the first payment, and its time (ms UTC).
    sa.Column("first_wallet", sa.LargeBinary, nullable=False),
    sa.Column("first_at", sa.BigInteger, nullable=False),
    # The UTC day of the last payment.
    sa.Column("last_day", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

_ROWS: Final = 5_000
_NOTE: Final = (
    "INSERT INTO chain_payer (chain, payer, first_wallet, first_at, last_day) "
    "VALUES ({}, {}, {}, {}, {}) ON CONFLICT (chain, payer) DO UPDATE SET "
    "first_wallet = CASE WHEN excluded.first_at < chain_payer.first_at "
    "THEN excluded.first_wallet ELSE chain_payer.first_wallet END, "
    "first_at = CASE WHEN excluded.first_at < chain_payer.first_at "
    "THEN excluded.first_at ELSE chain_payer.first_at END, "
    "last_day = CASE WHEN excluded.last_day > chain_payer.last_day "
    "THEN excluded.last_day ELSE chain_payer.last_day END "
    "WHERE excluded.first_at < chain_payer.first_at OR excluded.last_day > chain_payer.last_day"
)


def note(tx: Connection, chain: int, entries: Iterable[Entry]) -> None:
    """Note who paid by these entries."""
    seen: dict[bytes, tuple[int, bytes, int]] = {}
    for entry in entries:
        if entry.incoming:
            day = day_of(entry.at)
            before = seen.get(entry.other)
            if before is None:
                seen[entry.other] = (entry.at, entry.wallet, day)
            elif entry.at < before[0] or day > before[2]:
                first_at, wallet = min(before[:2], (entry.at, entry.wallet))
                seen[entry.other] = (first_at, wallet, max(day, before[2]))
    values = [(chain, payer, wallet, at, day) for payer, (at, wallet, day) in seen.items()]
    for batch in rows.chunks(sorted(values), _ROWS):
        rows.execute_many(tx, _NOTE, batch)


def firsts(tx: Connection, chain: int) -> Iterator[First]:
    """The first payment of every payer, in the order of wallets and time."""
    columns = chain_payer.c["payer", "first_wallet", "first_at"]
    query = sa.select(*columns).where(chain_payer.c.chain == chain)
    query = query.order_by(chain_payer.c.first_wallet, chain_payer.c.first_at, chain_payer.c.payer)
    for row in tx.execute(query, execution_options={"yield_per": _ROWS}):
        yield First(*row)


def forget(tx: Connection, chain: int, *, before_day: int) -> None:
    """Forget the payers who paid nothing since a UTC day."""
    idle = (chain_payer.c.chain == chain, chain_payer.c.last_day < before_day)
    tx.execute(chain_payer.delete().where(*idle))
