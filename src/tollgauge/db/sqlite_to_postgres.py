"""Moving a copy of an SQLite database into an empty PostgreSQL one.

Rules:
- all of it is one transaction: the tables, as the version of the copy has them, and every row; what
  fails leaves the database as empty as it was. A start, or `migrate`, brings it to the newest
  version afterwards;
- keys that the database counts up go on where the copy's ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db.backup import Copy, examine
from tollgauge.db.engine import Store
from tollgauge.db.migrations import VERSION_TABLE, upgrade
from tollgauge.db.postgres_backup import check_empty

Progress = Callable[[int, int], None]
"""Called with how many rows are moved, and of how many."""

_MAGIC: Final = b"SQLite format 3\x00"
"""The first bytes of every database file: https://sqlite.org/fileformat.html section 1.3.1."""
_BATCH: Final = 1_000


def is_sqlite_file(path: Path) -> bool:
    """Whether a file begins as SQLite's do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


async def move(copy: Path, url: str, *, progress: Progress) -> Copy:
    """Put every row of a copy into an empty PostgreSQL database. Raises BackupDamagedError for a
    copy that is not whole or not of ours, BackupError for a database that holds something, and
    StoreUnavailable.
    """
    examined = examine(copy)
    await check_empty(url)
    source = _source(copy)
    store = Store.open(url, pool_size=1)
    try:
        with source.connect() as read:
            await store.writing(_fill, read, progress=progress)
    finally:
        source.dispose()
        await store.close()
    return examined


def _source(copy: Path) -> sa.Engine:
    uri = f"{copy.absolute().as_uri()}?mode=ro"
    return sa.create_engine("sqlite://", creator=partial(sqlite3.connect, uri, uri=True))


def _fill(tx: Connection, read: Connection, *, progress: Progress) -> None:
    tx.execute(sa.text("SET LOCAL statement_timeout = 0"))
    upgrade(tx)
    metadata = sa.MetaData()
    metadata.reflect(tx)
    tables = [table for table in metadata.sorted_tables if table.name != VERSION_TABLE]
    total = sum(_count(read, table) for table in tables)
    done = 0
    for table in tables:
        for rows in read.execute(sa.select(table)).mappings().partitions(_BATCH):
            tx.execute(table.insert(), [dict(row) for row in rows])
            done += len(rows)
            progress(done, total)
        _advance_counter(tx, table)


def _count(read: Connection, table: sa.Table) -> int:
    return read.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def _advance_counter(tx: Connection, table: sa.Table) -> None:
    """Set the counter of a generated key to the highest key that was copied."""
    for column in table.primary_key:
        counter = tx.scalar(sa.select(sa.func.pg_get_serial_sequence(table.name, column.name)))
        highest = tx.scalar(sa.select(sa.func.max(column))) if counter else None
        if highest is not None:
            tx.execute(sa.select(sa.func.setval(counter, highest)))
