"""SQLite: connections on threads of their own.

Rules:
- one thread writes (db/write_queue), with BEGIN IMMEDIATE: a transaction that reads first and then
  wants to write fails with SQLITE_BUSY, whatever its time-out. sqlite3 never begins a transaction
  by itself, and SQLAlchemy is in AUTOCOMMIT mode, so that it begins none either;
- a lookup (a few rows by their keys) runs on the event loop's thread, because going to another
  thread and back takes many times as long. It never waits there: if the file is busy, a reader's
  thread runs it;
- one function is one job of a thread: begin, work and commit;
- `synchronous=FULL`: what was committed survives a power cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
import sqlite3
import sys
import tempfile
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from tollgauge.db.errors import Cause, StoreUnavailable
from tollgauge.db.transaction import Transaction
from tollgauge.db.worker import Worker, release_frames
from tollgauge.db.write_queue import WriteQueue

R = TypeVar("R")

BUSY_MS: Final = 5_000
"""How long a statement waits for another process that writes."""
TRY_MS: Final = 2_000
"""The same for `rolled_back`, whose caller wants an answer soon."""
_SALE_BYTES: Final = 131_072
"""Bytes that a sale may add to the file."""
_MAGIC: Final = b"SQLite format 3\x00"
"""How every database file begins: https://sqlite.org/fileformat.html section 1.3.1."""
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
WAIT_S: Final = 30.0
"""How long a reader waits for one of the connections."""
_STATEMENTS: Final = 512
"""How many compiled statements a connection keeps; the driver's default is 128."""
_IN_MEMORY: Final = frozenset({None, "", ":memory:"})


class _Connection(sqlite3.Connection):
    """A connection whose `close` ends the transaction at once. SQLite would keep it open, with its
    lock on the database, as long as a statement of it exists, and a traceback may refer to one
    until the next garbage collection.
    """

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self.in_transaction:
                self.rollback()
        super().close()


class Sqlite:
    """An SQLite database: one thread that writes, and up to `readers` that read."""

    def __init__(self, url: URL, *, readers: int) -> None:
        self.dialect: Final = "sqlite"
        self._folder = tempfile.mkdtemp(prefix="tollgauge-") if in_memory(url) else None
        if self._folder is not None:
            url = url.set(database=str(Path(self._folder) / "memory.db"))
            self._forget = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._file: Final = Path(url.database or "")
        lasting = self._folder is None
        engine = _engine(url, lasting=lasting, busy_ms=BUSY_MS)
        self._writer = WriteQueue(engine)
        self._reader_engine = engine
        # Its methods are called on the event loop's thread; its own thread never starts.
        self._lookup_worker = Worker(_engine(url, lasting=lasting, busy_ms=0))
        self._trial_engine = _engine(url, lasting=lasting, busy_ms=TRY_MS)
        self._readers: list[Worker] = []
        self._idle_readers: list[Worker] = []
        self._write_lock = asyncio.Lock()
        self._max_readers = readers
        self._reader_slots = asyncio.Semaphore(readers)

    @asynccontextmanager
    async def transaction(self, *, writing: bool) -> AsyncIterator[Transaction]:
        """A transaction of several jobs."""
        async with self._worker(writing=writing) as worker:
            tx = Transaction(self.dialect, lambda work: worker.submit(partial(worker.run, work)))
            try:
                await worker.submit(worker.begin)
                yield tx
                tx.end()
                await worker.submit(worker.commit)
            except BaseException:
                tx.end()
                await worker.submit(worker.rollback)
                raise

    async def run(self, work: Callable[[sa.Connection], R], *, writing: bool) -> R:
        """Run work in a transaction of its own, in one job of a thread."""
        if writing:
            return await self._writer.enqueue(work)
        async with self._worker(writing=False) as worker:
            return await worker.submit(partial(worker.run_transaction, work))

    async def lookup(self, work: Callable[[sa.Connection], R]) -> R:
        """Read a few rows on the event loop's thread; if another process has locked the file, on a
        reader's thread, because the event loop must not wait.
        """
        handled = sys.exception()
        try:
            return self._lookup_worker.run_transaction(work)
        except BaseException as error:
            release_frames(error, handled=handled)
            if not _busy(error):
                raise
        return await self.run(work, writing=False)

    async def rolled_back(self, work: Callable[[sa.Connection], None]) -> None:
        """Run work in a transaction that is rolled back, on a connection of its own. It runs on the
        writer's thread, so that it waits for writers of other processes only.
        """
        async with self._worker(writing=True) as worker:
            await worker.submit(partial(_run_and_roll_back, self._trial_engine, work))
            await worker.submit(partial(_check_file, self._file))

    async def close(self) -> None:
        """Close every connection; an in-memory database is deleted."""
        self._lookup_worker.close()
        for worker in (self._writer, *self._readers):
            await worker.stop()
        if self._folder is not None:
            self._forget()

    @asynccontextmanager
    async def _worker(self, *, writing: bool) -> AsyncIterator[Worker]:
        if writing:
            async with self._write_lock:
                try:
                    yield self._writer
                finally:
                    self._writer.wake()
            return
        await self._acquire_reader_slot()
        worker = self._take_reader()
        try:
            yield worker
        finally:
            self._idle_readers.append(worker)
            self._reader_slots.release()

    async def _acquire_reader_slot(self) -> None:
        """Wait for a reader. Raises SQLAlchemy's TimeoutError, as its pools do."""
        try:
            async with asyncio.timeout(WAIT_S if self._reader_slots.locked() else None):
                await self._reader_slots.acquire()
        except TimeoutError as error:
            raise sa.exc.TimeoutError("every connection is in use") from error

    def _take_reader(self) -> Worker:
        """An idle reader; if possible, none that still works for a caller who was cancelled."""
        free = next((reader for reader in reversed(self._idle_readers) if not reader.busy), None)
        if free is None and len(self._readers) < self._max_readers:
            reader = Worker(self._reader_engine)
            self._readers.append(reader)
            return reader
        reader = free or self._idle_readers[0]
        self._idle_readers.remove(reader)
        return reader


def _run_and_roll_back(engine: sa.Engine, work: Callable[[sa.Connection], None]) -> None:
    """On a thread: run work in a transaction that is rolled back. The page cache is tiny, so that
    SQLite writes pages to the disk before the end, which fails if the disk is full.
    """
    worker = Worker(engine, begin_statement="BEGIN IMMEDIATE")
    try:
        worker.begin()
        worker.run(lambda connection: connection.exec_driver_sql("PRAGMA cache_size = 1").close())
        worker.run(work)
    finally:
        worker.rollback()
        worker.close()


def _check_file(path: Path) -> None:
    """On a thread: check that the file still begins as a database and could grow. Raises
    StoreUnavailable. A transaction alone shows neither: the write-ahead log holds the newest pages,
    and its space is used again.
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as trial:
            trial.write(bytes(_SALE_BYTES))
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise StoreUnavailable("there is no room for its file", Cause.FULL) from error
        return  # whatever else is wrong with the file, the transaction has met it already
    if head != _MAGIC:
        raise StoreUnavailable("its file does not begin as a database", Cause.CORRUPT)


def in_memory(url: URL) -> bool:
    """Whether a URL names a database that ends with the process. It is kept in a temporary file,
    because what SQLite keeps in memory belongs to one connection.
    """
    return url.database in _IN_MEMORY


def _busy(error: BaseException) -> bool:
    """Whether another process has locked the file, or recovers it."""
    origin = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return getattr(origin, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _engine(url: URL, *, lasting: bool, busy_ms: int) -> sa.Engine:
    """Connections that wait `busy_ms` for another process that writes. A database that is not
    `lasting` need not survive a power cut.
    """
    options = {
        "factory": _Connection,
        "check_same_thread": False,
        "cached_statements": _STATEMENTS,
    }
    engine = sa.create_engine(
        url, connect_args=options, poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )
    sa.event.listen(engine, "connect", partial(_prepare, "FULL" if lasting else "OFF", busy_ms))
    return engine


def _use_wal(cursor: DBAPICursor, busy_ms: int) -> None:
    """Switch the file to a write-ahead log. SQLite itself does not wait here for other processes,
    so of several that open a new file at once all but one would fail.
    """
    deadline = time.monotonic() + busy_ms / 1_000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not _busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _prepare(
    synchronous: str, busy_ms: int, connection: DBAPIConnection, _entry: ConnectionPoolEntry
) -> None:
    """Set up a new connection. `isolation_level = None` stops sqlite3 from beginning transactions
    of its own. The page size takes effect in a new file only: packed days overflow 4 KB pages.
    """
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {busy_ms}")
    cursor.execute("PRAGMA page_size = 8192")
    _use_wal(cursor, busy_ms)
    for pragma in (f"synchronous = {synchronous}", "foreign_keys = ON", "cache_size = -32768"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
