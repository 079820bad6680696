"""SQLite: connections on threads of their own.

Rules:
- one thread writes (db/write_queue), and says BEGIN IMMEDIATE: a transaction that reads first and
  then wants to write would fail as busy, whatever its time-out. The driver never begins by itself,
  and SQLAlchemy runs its statements as if there were no transaction;
- a few rows by their keys are read on the spot, by the event loop's thread: a crossing to another
  and back costs many times as much. Nothing waits there: where the file is busy, a thread does;
- what takes one function takes one crossing: begin, work and commit;
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
from tollgauge.db.worker import Worker, let_go
from tollgauge.db.write_queue import WriteQueue

R = TypeVar("R")

BUSY_MS: Final = 5_000
"""How long a statement waits for another process that writes."""
TRY_MS: Final = 2_000
"""The same for work that is only tried: whoever asks wants to know soon."""
_ROOM: Final = 131_072
"""Bytes that a sale may add to the file."""
_MAGIC: Final = b"SQLite format 3\x00"
"""How every database file begins, https://sqlite.org/fileformat.html section 1.3.1."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
WAIT_S: Final = 30.0
"""How long a reader waits for one of the connections."""
_STATEMENTS: Final = 512
"""How many compiled statements a connection keeps; the driver's default is 128."""
_IN_MEMORY: Final = frozenset({None, "", ":memory:"})


class _Connection(sqlite3.Connection):
    """Closing one ends its transaction at once. SQLite would keep it, with its lock on the
    database, for as long as a statement of it exists, and a traceback may hold one until the next
    garbage collection.
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
        self._reading = engine
        self._near = Worker(_engine(url, lasting=lasting, busy_ms=0))
        self._trying = _engine(url, lasting=lasting, busy_ms=TRY_MS)
        self._readers: list[Worker] = []
        self._idle: list[Worker] = []
        self._turn = asyncio.Lock()
        self._most = readers
        self._free = asyncio.Semaphore(readers)

    @asynccontextmanager
    async def transaction(self, *, writing: bool) -> AsyncIterator[Transaction]:
        """A transaction of several steps."""
        async with self._worker(writing=writing) as worker:
            tx = Transaction(self.dialect, lambda work: worker.do(partial(worker.run, work)))
            try:
                await worker.do(worker.begin)
                yield tx
                tx.end()
                await worker.do(worker.commit)
            except BaseException:
                tx.end()
                await worker.do(worker.rollback)
                raise

    async def once(self, work: Callable[[sa.Connection], R], *, writing: bool) -> R:
        """Work in a transaction, in one crossing; with others that wait for their turn."""
        if writing:
            return await self._writer.enqueue(work)
        async with self._worker(writing=False) as worker:
            return await worker.do(partial(worker.once, work))

    async def lookup(self, work: Callable[[sa.Connection], R]) -> R:
        """Read a few rows on the spot; where another process has the file, beside the event loop,
        which must not wait for it.
        """
        handled = sys.exception()
        try:
            return self._near.once(work)
        except BaseException as error:
            let_go(error, handled=handled)
            if not _busy(error):
                raise
        return await self.once(work, writing=False)

    async def rolled_back(self, work: Callable[[sa.Connection], None]) -> None:
        """Work in a transaction of which nothing stays, on a connection of its own. The writer's
        thread does it, so that only other processes are waited for.
        """
        async with self._worker(writing=True) as worker:
            await worker.do(partial(_rolled_back, self._trying, work))
            await worker.do(partial(_check_file, self._file))

    async def close(self) -> None:
        """Close every connection; what was in memory is gone."""
        self._near.close()
        for worker in (self._writer, *self._readers):
            await worker.end()
        if self._folder is not None:
            self._forget()

    @asynccontextmanager
    async def _worker(self, *, writing: bool) -> AsyncIterator[Worker]:
        if writing:
            async with self._turn:
                try:
                    yield self._writer
                finally:
                    self._writer.wake()
            return
        await self._take_turn()
        worker = self._reader()
        try:
            yield worker
        finally:
            self._idle.append(worker)
            self._free.release()

    async def _take_turn(self) -> None:
        """Wait for a reader. Raises SQLAlchemy's TimeoutError, as its pools do."""
        try:
            async with asyncio.timeout(WAIT_S if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError as error:
            raise sa.exc.TimeoutError("every connection is in use") from error

    def _reader(self) -> Worker:
        """One that nobody holds, if possible one that does not still work for a caller who left."""
        free = next((each for each in reversed(self._idle) if not each.busy), None)
        if free is None and len(self._readers) < self._most:
            free = Worker(self._reading)
            self._readers.append(free)
            return free
        chosen = free or self._idle[0]
        self._idle.remove(chosen)
        return chosen


def _rolled_back(engine: sa.Engine, work: Callable[[sa.Connection], None]) -> None:
    """On a thread: try work. With no cache to speak of, pages go to the disk before the end, where
    a full one shows.
    """
    worker = Worker(engine, words="BEGIN IMMEDIATE")
    try:
        worker.begin()
        worker.run(lambda connection: connection.exec_driver_sql("PRAGMA cache_size = 1").close())
        worker.run(work)
    finally:
        worker.rollback()
        worker.close()


def _check_file(path: Path) -> None:
    """On a thread: whether the file is still a database and could grow. Its log hides both for some
    time: it holds the newest pages, and its space is used again. Raises StoreUnavailable.
    """
    try:
        with path.open("rb") as file:
            begins = file.read(len(_MAGIC))
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as trial:
            trial.write(bytes(_ROOM))
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StoreUnavailable("there is no room for its file", Cause.FULL) from error
        return  # the transaction has shown what can be done here
    if begins != _MAGIC:
        raise StoreUnavailable("its file does not begin as a database", Cause.CORRUPT)


def in_memory(url: URL) -> bool:
    """Whether a URL names a database that ends with the process. Such a one is a file of its own
    all the same: what SQLite keeps in memory belongs to one connection.
    """
    return url.database in _IN_MEMORY


def _busy(error: BaseException) -> bool:
    """Whether another process has the file, or restores it."""
    origin = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return getattr(origin, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _engine(url: URL, *, lasting: bool, busy_ms: int) -> sa.Engine:
    """Connections that wait so long for another process that writes; what does not last need not
    survive a power cut.
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
    """Keep a log beside the file. SQLite itself does not wait here for another process that reads
    a new file, and several that open one at once would stop each other.
    """
    until = time.monotonic() + busy_ms / 1_000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not _busy(error) or time.monotonic() >= until:
                raise
            time.sleep(0.01)
        else:
            return


def _prepare(
    synchronous: str, busy_ms: int, connection: DBAPIConnection, _entry: ConnectionPoolEntry
) -> None:
    """`isolation_level = None` stops the driver from beginning transactions of its own. The page
    size holds for a new file only: packed days overflow 4 KB pages.
    """
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {busy_ms}")
    cursor.execute("PRAGMA page_size = 8192")
    _use_wal(cursor, busy_ms)
    for pragma in (f"synchronous = {synchronous}", "foreign_keys = ON", "cache_size = -32768"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
