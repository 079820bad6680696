"""SQLite: one thread that writes and several that read.

- One thread writes with BEGIN IMMEDIATE (db/sqlite_transaction): a transaction that reads before it
  writes can fail with SQLITE_BUSY, regardless of the timeout.
- A whole transaction is one job of a thread.
- A process with a connection never opens the database file, its -wal or -shm directly: closing that
  descriptor would drop SQLite's locks (see _check_room).
- `synchronous=FULL`: committed data survives a power failure.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
import tempfile
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from tollgauge.db.database_errors import Cause, StoreUnavailable
from tollgauge.db.sqlite_transaction import CheckedConnection, WriteQueue, run_transaction

R = TypeVar("R")

BUSY_MS: Final = 5_000  # maximum wait of a statement for a writer in another process
TRY_MS: Final = 2_000  # the same for `rolled_back`, whose caller needs a quick answer
_SALE_BYTES: Final = 131_072  # bytes that a sale may add to the file
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
WAIT_S: Final = 30.0  # maximum wait of a reader for a connection
# Options of a new file, set before the first write: packed days overflow pages of 4 KB, and free
# pages can be returned to the disk (db/disk).
NEW_FILE: Final = ("PRAGMA page_size = 8192", "PRAGMA auto_vacuum = INCREMENTAL")
_WAL_BYTES: Final = 64 * 1024 * 1024  # size limit of the log after a long reader (a backup)
_STATEMENTS: Final = 512  # compiled statements cached per connection; the driver's default is 128
_IN_MEMORY: Final = frozenset({None, "", ":memory:"})


class Sqlite:
    """An SQLite database with one writing thread and up to `readers` reading ones."""

    def __init__(self, url: URL, *, readers: int) -> None:
        self.dialect: Final = "sqlite"
        self._folder = tempfile.mkdtemp(prefix="tollgauge-") if in_memory(url) else None
        if self._folder is not None:
            url = url.set(database=str(Path(self._folder) / "memory.db"))
            self._forget = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._file: Final = Path(url.database or "")
        self._in_use: tuple[int, int] | None = None
        lasting = self._folder is None
        self._writer = _engine(url, pool_size=1, lasting=lasting)
        self._write_queue = WriteQueue(self._writer)
        self._reader = _engine(url, pool_size=readers, lasting=lasting)
        self._read_threads = _reader_threads(readers)
        self._read_slots = asyncio.Semaphore(readers)
        self._max_readers: Final = readers
        # No pool: each trial gets a new connection with an empty cache.
        self._trial = _engine(url, pool_size=None, lasting=lasting, busy_ms=TRY_MS)

    async def run(self, work: Callable[[sa.Connection], R], *, writing: bool) -> R:
        """Run work in its own transaction, as one job of a thread."""
        self._check_in_place()
        if writing:
            return await self._write_queue.enqueue(work)
        await self._acquire_read_slot()
        try:
            read = partial(run_transaction, self._reader, work, begin="BEGIN")
            return await asyncio.get_running_loop().run_in_executor(self._read_threads, read)
        finally:
            self._read_slots.release()

    async def rolled_back(self, work: Callable[[sa.Connection], None]) -> None:
        """Run work in a transaction that is rolled back, on a separate connection.

        It runs on the writer's thread and therefore waits only for writers of other processes.
        """
        self._check_in_place()
        trial = partial(_try_to_write, self._trial, self._file, work)
        await asyncio.get_running_loop().run_in_executor(self._write_queue.thread, trial)

    async def close(self) -> None:
        """Finish running transactions and close all connections. The next transaction opens new
        ones; an in-memory database is deleted.
        """
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._write_queue.stop()
        self._writer.dispose()
        threads, self._read_threads = self._read_threads, _reader_threads(self._max_readers)
        threads.shutdown()
        self._reader.dispose()
        self._in_use = None
        if self._folder is not None:
            self._forget()

    def _check_in_place(self) -> None:
        """Check that the file is the one that was first opened.

        A file that is deleted or replaced under its connections loses everything they write.

        Raises:
            StoreUnavailable: The file was deleted or replaced.
        """
        try:
            found = self._file.stat()
        except OSError:
            now = None
        else:
            now = (found.st_dev, found.st_ino)
        if self._in_use is None:
            self._in_use = now
        elif now != self._in_use:
            raise StoreUnavailable("its file was deleted or replaced", Cause.UNREACHABLE)

    async def _acquire_read_slot(self) -> None:
        """Wait for a reading connection.

        Raises:
            TimeoutError: SQLAlchemy's error, as raised by its pools.
        """
        try:
            async with asyncio.timeout(WAIT_S if self._read_slots.locked() else None):
                await self._read_slots.acquire()
        except TimeoutError as error:
            raise sa.exc.TimeoutError("every connection is in use") from error


def _reader_threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "tollgauge-sqlite-reader")


def _try_to_write(engine: sa.Engine, file: Path, work: Callable[[sa.Connection], None]) -> None:
    """Run work on a new connection in a transaction that is rolled back. Runs on a thread.

    Raises:
        StoreUnavailable: The file could not grow by a sale.
    """

    def with_empty_cache(connection: sa.Connection) -> None:
        # A new connection has read nothing yet: this reads page 1 and finds a damaged header. The
        # tiny cache makes SQLite write pages before the end, which fails if the disk is full.
        connection.exec_driver_sql("PRAGMA schema_version").close()
        connection.exec_driver_sql("PRAGMA cache_size = 1").close()
        work(connection)

    run_transaction(engine, with_empty_cache, begin="BEGIN IMMEDIATE", keep=False)
    _check_room(file.parent)


def _check_room(folder: Path) -> None:
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


def in_memory(url: URL) -> bool:
    """Return whether a URL is of an in-memory database.

    It is kept in a temporary file, because an in-memory SQLite database belongs to one connection.
    """
    return url.database in _IN_MEMORY


def _busy(error: BaseException) -> bool:
    """Return whether another process has locked the file or is recovering it."""
    origin = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return getattr(origin, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _engine(url: URL, *, pool_size: int | None, lasting: bool, busy_ms: int = BUSY_MS) -> sa.Engine:
    """Create connections that wait `busy_ms` for writers of other processes.

    Without a pool size each is closed after its transaction. A database that is not `lasting` need
    not survive a power failure.
    """
    options = {
        "factory": CheckedConnection,
        "check_same_thread": False,
        "cached_statements": _STATEMENTS,
    }
    pool: dict[str, Any] = (
        {"poolclass": NullPool}
        if pool_size is None
        else {"pool_size": pool_size, "pool_use_lifo": True, "pool_reset_on_return": None}
    )
    engine = sa.create_engine(url, connect_args=options, isolation_level="AUTOCOMMIT", **pool)
    synchronous, file = "FULL" if lasting else "OFF", Path(url.database or "")
    sa.event.listen(engine, "connect", partial(_prepare, synchronous, busy_ms, file))
    return engine


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
            if not _busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _prepare(
    synchronous: str,
    busy_ms: int,
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
        "cache_size = -32768",
        f"journal_size_limit = {_WAL_BYTES}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
