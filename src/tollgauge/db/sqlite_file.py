"""The file of an SQLite database: the options of its connections, and its room to grow."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Final

from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry

from tollgauge.db.database_errors import Cause, StoreUnavailable

# Options of a new file, set before the first write: packed days overflow pages of 4 KB, and free
# pages can be returned to the disk (db/disk).
NEW_FILE: Final = ("PRAGMA page_size = 8192", "PRAGMA auto_vacuum = INCREMENTAL")
_WAL_BYTES: Final = 64 * 1024 * 1024  # size limit of the log after a long reader (a backup)
_SALE_BYTES: Final = 131_072  # bytes that a sale may add to the file
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


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
