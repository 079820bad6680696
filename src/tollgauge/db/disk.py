"""The disk of a database: its usage, its free pages and its room to grow, the options of an SQLite
file, and the clock of the database's machine.

SQLite reuses the pages of deleted rows, so only free pages beyond a quarter of the file are
returned to the disk: closing a day frees pages that the next day needs. Only files with
`auto_vacuum = INCREMENTAL` can return pages. New files have it; an older one gets it when it is
restored from a copy (db/backup). PostgreSQL's autovacuum needs no help.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry

from tollgauge.db.database_errors import Cause, StoreUnavailable

SPARE: Final = 4  # a quarter of the pages may be free
STEP_PAGES: Final = 256  # 2 MB
INCREMENTAL: Final = 2
"""The value of `PRAGMA auto_vacuum` (https://sqlite.org/pragma.html#pragma_auto_vacuum)."""
# Options of a new file, set before the first write: packed days overflow pages of 4 KB, and free
# pages can be returned to the disk.
NEW_FILE: Final = ("PRAGMA page_size = 8192", f"PRAGMA auto_vacuum = {INCREMENTAL}")
_WAL_BYTES: Final = 64 * 1024 * 1024  # size limit of the log after a long reader (a backup)
_SALE_BYTES: Final = 131_072  # bytes that a sale may add to the file
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


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
    tx.connection.cursor().execute(f"PRAGMA incremental_vacuum({beyond})").fetchall()
    return free - _pragma(tx, "freelist_count")


def _pragma(tx: Connection, name: str) -> int:
    value: int = tx.exec_driver_sql(f"PRAGMA {name}").scalar_one()
    return value


def prepare(
    synchronous: str,
    busy_ms: int,
    cache_kb: int,
    file: Path,
    connection: DBAPIConnection,
    _entry: ConnectionPoolEntry,
) -> None:
    """Set up a new connection. `isolation_level = None` keeps sqlite3 from starting transactions
    itself.
    """
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {busy_ms}")
    for pragma in (*(NEW_FILE if _is_empty(file) else ()), "PRAGMA journal_mode = WAL"):
        _execute_when_free(cursor, pragma, busy_ms)
    for pragma in (
        f"synchronous = {synchronous}",
        "foreign_keys = ON",
        f"cache_size = -{cache_kb}",
        f"journal_size_limit = {_WAL_BYTES}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _is_empty(file: Path) -> bool:
    """Return whether a file is empty or missing."""
    return not file.exists() or file.stat().st_size == 0


def _execute_when_free(cursor: DBAPICursor, pragma: str, busy_ms: int) -> None:
    """Execute a pragma that sets up a file, with retries.

    SQLite does not always wait for other processes here: of several that open a new file
    concurrently all but one would fail.
    """
    deadline = time.monotonic() + busy_ms / 1_000
    while True:
        try:
            cursor.execute(pragma)
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


def check_room(folder: Path) -> None:
    """Check that a file in the folder can grow by a sale. Runs on a thread.

    A transaction does not show that, because SQLite reuses space in the log. The database
    file is never opened here: closing any descriptor of it would drop all POSIX locks of this
    process on it, and the next program that closes the database would delete the log under the
    running service (https://sqlite.org/howtocorrupt.html, section 2.2).

    Raises:
        StoreUnavailable: There is not enough space.
    """
    try:
        free = os.statvfs(folder)
        if free.f_bavail * free.f_frsize < _SALE_BYTES:
            raise _no_room()
        # Quotas and limits on file sizes show only when something is written.
        with tempfile.TemporaryFile(dir=folder, buffering=0) as trial:
            trial.write(bytes(_SALE_BYTES))
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise _no_room() from error
        # Other problems of the folder were already found by the transaction.


def _no_room() -> StoreUnavailable:
    return StoreUnavailable("there is no room for its file", Cause.FULL)
