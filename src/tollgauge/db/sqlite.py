"""SQLite: a thread that writes and threads that read.

Rules:
- one thread writes with BEGIN IMMEDIATE (db/sqlite_transaction): a transaction that reads first
  and then wants to write fails with SQLITE_BUSY, whatever its time-out;
- one function is one job of a thread: begin, work and commit (db/sqlite_transaction);
- a process with a connection never opens the database file, its -wal or -shm by itself: closing
  that descriptor would drop SQLite's locks (see _check_room);
- `synchronous=FULL`: what was committed survives a power cut.
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

BUSY_MS: Final = 5_000
"""How long a statement waits for another process that writes."""
TRY_MS: Final = 2_000
"""The same for `rolled_back`, whose caller wants an answer soon."""
_SALE_BYTES: Final = 131_072
"""Bytes that a sale may add to the file."""
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
WAIT_S: Final = 30.0
"""How long a reader waits for one of the connections."""
NEW_FILE: Final = ("PRAGMA page_size = 8192", "PRAGMA auto_vacuum = INCREMENTAL")
"""What a new file is made with, before anything is written to it: packed days overflow pages of
4 KB, and free pages can be given back (db/disk).
"""
_WAL_BYTES: Final = 64 * 1024 * 1024
"""How large the write-ahead log stays after a reader, such as a backup, has held it open."""
_STATEMENTS: Final = 512
"""How many compiled statements a connection keeps; the driver's default is 128."""
_IN_MEMORY: Final = frozenset({None, "", ":memory:"})


class Sqlite:
    """An SQLite database: one thread that writes, and up to `readers` that read."""

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
        # A new connection for each trial: nothing of the file is in its cache.
        self._trial = _engine(url, pool_size=None, lasting=lasting, busy_ms=TRY_MS)

    async def run(self, work: Callable[[sa.Connection], R], *, writing: bool) -> R:
        """Run work in a transaction of its own, in one job of a thread."""
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
        """Run work in a transaction that is rolled back, on a connection of its own. It runs on the
        writer's thread, so that it waits for writers of other processes only.
        """
        self._check_in_place()
        trial = partial(_try_to_write, self._trial, self._file, work)
        await asyncio.get_running_loop().run_in_executor(self._write_queue.thread, trial)

    async def close(self) -> None:
        """Finish what was begun, and close every connection; the next transaction opens another.
        An in-memory database is deleted.
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
        """Check that the file is the one that was first used. A file that is deleted or replaced
        under its connections takes all that they write with it. Raises StoreUnavailable.
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
        """Wait for a reader. Raises SQLAlchemy's TimeoutError, as its pools do."""
        try:
            async with asyncio.timeout(WAIT_S if self._read_slots.locked() else None):
                await self._read_slots.acquire()
        except TimeoutError as error:
            raise sa.exc.TimeoutError("every connection is in use") from error


def _reader_threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "tollgauge-sqlite-reader")


def _try_to_write(engine: sa.Engine, file: Path, work: Callable[[sa.Connection], None]) -> None:
    """On a thread: run work on a new connection, in a transaction that is rolled back. Raises
    StoreUnavailable if the file could not grow by a sale.
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
    """On a thread: check that a file in the folder could grow by a sale. Raises StoreUnavailable.
    The transaction alone does not show it, because SQLite uses the log's space again.

    The database file itself is never opened here: closing any descriptor of it would drop all POSIX
    locks that this process holds on it, and the next program that closes the database would delete
    the log under the running service (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    try:
        free = os.statvfs(folder)
        if free.f_bavail * free.f_frsize < _SALE_BYTES:
            raise _no_room()
        # Quotas and limits on the size of files show only when something is written.
        with tempfile.TemporaryFile(dir=folder, buffering=0) as trial:
            trial.write(bytes(_SALE_BYTES))
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise _no_room() from error
        # The transaction has met whatever else is wrong with the folder.


def _no_room() -> StoreUnavailable:
    return StoreUnavailable("there is no room for its file", Cause.FULL)


def in_memory(url: URL) -> bool:
    """Whether a URL names a database that ends with the process. It is kept in a temporary file,
    because what SQLite keeps in memory belongs to one connection.
    """
    return url.database in _IN_MEMORY


def _busy(error: BaseException) -> bool:
    """Whether another process has locked the file, or recovers it."""
    origin = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return getattr(origin, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _engine(url: URL, *, pool_size: int | None, lasting: bool, busy_ms: int = BUSY_MS) -> sa.Engine:
    """Connections that wait `busy_ms` for another process that writes; without a pool size each is
    closed after its transaction. A database that is not `lasting` need not survive a power cut.
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
    """Whether nothing was written to a file yet."""
    return not file.exists() or file.stat().st_size == 0


def _execute_when_free(cursor: DBAPICursor, pragma: str, busy_ms: int) -> None:
    """Execute what sets up a file. SQLite itself does not always wait here for other processes, so
    of several that open a new file at once all but one would fail.
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
    """Set up a new connection. `isolation_level = None` stops sqlite3 from beginning transactions
    of its own.
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
