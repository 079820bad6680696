"""Space: giving an SQLite file's free pages back to the disk while the service runs.

Rules:
- pages that a removed row leaves are used again by the next ones, so only what is free beyond a
  quarter of the file is given back: closing a day frees what the next day needs;
- a few pages a transaction, so that no writer waits long;
- only files that keep the map for it (`auto_vacuum = INCREMENTAL`) can do that. New ones do; an
  older one does once it was restored from a copy (db/backup).

PostgreSQL's autovacuum needs no help of ours.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tollgauge.db.sqlite_transaction import sqlite_connection

SPARE: Final = 4
"""One page in so many may be free."""
STEP_PAGES: Final = 256
"""2 MB."""
INCREMENTAL: Final = 2
"""The value of `PRAGMA auto_vacuum` (https://sqlite.org/pragma.html#pragma_auto_vacuum)."""


def give_back(tx: Connection, *, pages: int = STEP_PAGES) -> int:
    """Give back at most so many free pages; returns how many. Call it again until it returns 0."""
    if tx.dialect.name != "sqlite" or _pragma(tx, "auto_vacuum") != INCREMENTAL:
        return 0
    free = _pragma(tx, "freelist_count")
    beyond = min(free - _pragma(tx, "page_count") // SPARE, pages)
    if beyond <= 0:
        return 0
    # It gives a row without columns for each page, which SQLAlchemy does not read: reading them all
    # does the work.
    sqlite_connection(tx).execute(f"PRAGMA incremental_vacuum({beyond})").fetchall()
    return free - _pragma(tx, "freelist_count")


def _pragma(tx: Connection, name: str) -> int:
    value: int = tx.exec_driver_sql(f"PRAGMA {name}").scalar_one()
    return value
