"""Disk usage of the database, free pages, and the clock of its machine.

SQLite reuses the pages of deleted rows, so only free pages beyond a quarter of the file are
returned to the disk: closing a day frees pages that the next day needs. Only files with
`auto_vacuum = INCREMENTAL` can return pages. New files have it; an older one gets it when it is
restored from a copy (db/backup). PostgreSQL's autovacuum needs no help.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db.sqlite import sqlite_connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Bytes of a database. `log` is SQLite's write-ahead log. `free` and `total` describe the disk,
    None if it belongs to another machine.
    """

    database: int
    log: int = 0
    free: int | None = None
    total: int | None = None

    @property
    def full_percent(self) -> int | None:
        """Used share of the disk for users other than root, in percent, rounded up."""
        if self.free is None or not self.total:
            return None
        return 100 - self.free * 100 // self.total


def measure(tx: Connection) -> Size:
    """Measure a transaction's database."""
    if tx.dialect.name != "sqlite":
        return Size(
            database=tx.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one()
        )
    file = Path(tx.execute(sa.text("SELECT file FROM pragma_database_list")).scalar_one())
    disk = shutil.disk_usage(file.parent)
    log = file.with_name(file.name + "-wal")
    return Size(
        database=file.stat().st_size,
        log=log.stat().st_size if log.exists() else 0,
        free=disk.free,
        total=disk.total,
    )


def clock_ms(tx: Connection) -> int | None:
    """Return the clock of the database's machine in ms UTC; None if it is this machine."""
    if tx.dialect.name == "sqlite":
        return None
    query = sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")
    at: int = tx.execute(query).scalar_one()
    return at


SPARE: Final = 4  # a quarter of the pages may be free
STEP_PAGES: Final = 256  # 2 MB
INCREMENTAL: Final = 2
"""The value of `PRAGMA auto_vacuum` (https://sqlite.org/pragma.html#pragma_auto_vacuum)."""


def give_back_pages(tx: Connection, *, pages: int = STEP_PAGES) -> int:
    """Return at most `pages` free pages to the disk; return their number. Call again until it
    returns 0.
    """
    if tx.dialect.name != "sqlite" or _pragma(tx, "auto_vacuum") != INCREMENTAL:
        return 0
    free = _pragma(tx, "freelist_count")
    beyond = min(free - _pragma(tx, "page_count") // SPARE, pages)
    if beyond <= 0:
        return 0
    # The pragma returns a row without columns per page, which SQLAlchemy does not read: only
    # reading all of them does the work.
    sqlite_connection(tx).execute(f"PRAGMA incremental_vacuum({beyond})").fetchall()
    return free - _pragma(tx, "freelist_count")


def _pragma(tx: Connection, name: str) -> int:
    value: int = tx.exec_driver_sql(f"PRAGMA {name}").scalar_one()
    return value
