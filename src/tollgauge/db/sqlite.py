"""SQLite: one thread that writes and several that read.

- One thread writes, with BEGIN IMMEDIATE: a transaction that reads before it writes can otherwise
  fail with SQLITE_BUSY, regardless of the timeout.
- A whole transaction is one job of a thread. sqlite3 starts no transaction by itself here, and
  SQLAlchemy is in AUTOCOMMIT mode.
- A process with a connection never opens the database file, its -wal or -shm directly: closing that
  descriptor would drop SQLite's locks (see `check_room`).
- `synchronous=FULL`: committed data survives a power failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import tempfile
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.db.database_errors import Cause, StoreUnavailable
from tollgauge.db.disk import check_room, prepare

R = TypeVar("R")

BUSY_MS: Final = 5_000  # maximum wait of a statement for a writer in another process
TRY_MS: Final = 2_000  # the same for `rolled_back`, whose caller needs a quick answer
WAIT_S: Final = 30.0  # maximum wait of a reader for a connection
_STATEMENTS: Final = 512  # compiled statements cached per connection; the driver's default is 128
_WRITER_CACHE_KB: Final = 32_768
# Larger caches of readers would only use memory: SQLite empties them at the next read after another
# connection wrote.
_READER_CACHE_KB: Final = 4_096
_IN_MEMORY: Final = frozenset({None, "", ":memory:"})

_Work = Callable[[sa.Connection], Any]


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
        self._writer = _engine(
            url, pool_size=1, lasting=lasting, busy_ms=BUSY_MS, cache_kb=_WRITER_CACHE_KB
        )
        self._write_queue = WriteQueue(self._writer)
        self._reader = _engine(url, pool_size=readers, lasting=lasting, busy_ms=BUSY_MS)
        self._read_threads = _reader_threads(readers)
        self._read_slots = asyncio.Semaphore(readers)
        self._max_readers: Final = readers
        # No pool: each trial gets a new connection with an empty cache.
        self._trial = _engine(url, pool_size=None, lasting=lasting, busy_ms=TRY_MS)

    def make_folder(self) -> None:
        """Create the file's folder, so that the first start needs no preparation.

        Raises:
            TollgaugeError: The folder cannot be created.
        """
        folder = self._file.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TollgaugeError(
                f"The database folder {folder} cannot be created.",
                hint="Set store.url (or DATABASE_URL) to a folder that this user can write to.",
            ) from error

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


@dataclass(frozen=True, slots=True)
class WorkOutcome:
    """The result or the exception of a queued function."""

    value: Any = None
    error: BaseException | None = None


class WriteQueue:
    """The queue of the one thread that writes to an SQLite file.

    Each queued function is a transaction. Functions that are queued when the thread becomes free
    share one commit, because a commit waits for the disk; each runs in a savepoint. A function
    whose caller was cancelled before its turn is not run; once started, it runs to its end.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.thread = _writer_thread()
        self._engine = engine
        self._queue: deque[tuple[_Work, asyncio.Future[Any], asyncio.AbstractEventLoop]] = deque()
        self._flush_submitted = False

    def enqueue(self, work: Callable[[sa.Connection], R]) -> asyncio.Future[R]:
        """Run work in its own transaction, which may share a commit with others."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._queue.append((work, future, loop))
        # Not immediately: functions queued in the same turn of the event loop share the commit.
        loop.call_soon(self._wake)
        return future

    def stop(self) -> None:
        """Finish running transactions. Later ones start another thread."""
        thread, self.thread = self.thread, _writer_thread()
        thread.shutdown()

    def _wake(self) -> None:
        if self._queue and not self._flush_submitted:
            self._flush_submitted = True
            self.thread.submit(self._flush)

    def _flush(self) -> None:
        """Run the queued functions. Runs on the thread."""
        # Reset before draining: a function queued after the last popleft must submit a new flush.
        self._flush_submitted = False
        batch = []
        while self._queue:
            entry = self._queue.popleft()
            _, future, _ = entry
            if not future.done():
                batch.append(entry)
        if not batch:
            return
        outcomes = self._run_batch([work for work, _, _ in batch])
        for (_, future, loop), outcome in zip(batch, outcomes, strict=True):
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller is waiting
                loop.call_soon_threadsafe(_set_outcome, future, outcome)

    def _run_batch(self, works: Sequence[_Work]) -> Sequence[WorkOutcome]:
        """Run several functions in one transaction. Runs on the thread.

        A failing function is rolled back and the others continue; a failing transaction fails all
        of them.
        """

        def run_all(connection: sa.Connection) -> Sequence[WorkOutcome]:
            if len(works) == 1:
                return [WorkOutcome(value=works[0](connection))]
            return [_run_in_savepoint(connection, work) for work in works]

        try:
            return run_transaction(self._engine, run_all, begin="BEGIN IMMEDIATE")
        except BaseException as error:  # noqa: BLE001 - raised in each caller
            return [WorkOutcome(error=error)] * len(works)


def _writer_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "tollgauge-sqlite-writer")


def _set_outcome(future: asyncio.Future[Any], outcome: WorkOutcome) -> None:
    if future.done():
        return
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.value)


def _run_in_savepoint(connection: sa.Connection, work: _Work) -> WorkOutcome:
    """Run work in a savepoint.

    An exception of the work is raised if SQLite ended the whole transaction with it, as it does
    when the disk is full.
    """
    driver = _driver_connection(connection)
    driver.execute("SAVEPOINT part")
    try:
        outcome = WorkOutcome(value=work(connection))
    except Exception as error:  # raised only in the caller of this work
        if not driver.in_transaction:
            raise
        driver.execute("ROLLBACK TO part")
        outcome = WorkOutcome(error=release_frames(error))
    driver.execute("RELEASE part")
    return outcome


class CheckedConnection(sqlite3.Connection):
    """A connection for complete transactions.

    - While `checked`, a statement after the end of the transaction raises RuntimeError. SQLite ends
      a transaction by itself if the disk is full, and later statements would be committed
      separately.
    - `close` ends the transaction immediately. SQLite would keep it open, with its lock, while one
      of its statements exists, and a traceback may refer to one until the next garbage collection.
    """

    checked = False

    def cursor(self, *arguments: Any) -> Any:
        """Return a cursor; `execute` calls this too."""
        if self.checked and not self.in_transaction:
            raise RuntimeError("this transaction has ended without being written")
        return super().cursor(*arguments)

    def close(self) -> None:
        """Roll back an open transaction and close the connection."""
        self.checked = False
        with contextlib.suppress(sqlite3.Error):
            if self.in_transaction:
                self.rollback()
        super().close()


def _driver_connection(connection: sa.Connection) -> CheckedConnection:
    """Return the sqlite3 connection behind SQLAlchemy's."""
    return cast("CheckedConnection", connection.connection.dbapi_connection)


def run_transaction(
    engine: sa.Engine, work: Callable[[sa.Connection], R], *, begin: str, keep: bool = True
) -> R:
    """Run work in its own transaction.

    It is committed, or rolled back if `keep` is False or on any exception.
    """
    with engine.connect() as connection:
        driver = _driver_connection(connection)
        try:
            driver.execute(begin)
            driver.checked = True
            result = work(connection)
            driver.execute("COMMIT" if keep else "ROLLBACK")
        except BaseException as error:
            release_frames(error)
            _roll_back(connection, driver)
            raise
        finally:
            driver.checked = False
    return result


def _roll_back(connection: sa.Connection, driver: sqlite3.Connection) -> None:
    """Roll back an open transaction. A connection that fails to do so is closed."""
    try:
        if driver.in_transaction:
            driver.execute("ROLLBACK")
    except sqlite3.Error:
        connection.invalidate()


def release_frames(error: BaseException) -> BaseException:
    """Remove the local variables of failed functions from an error.

    An unfinished cursor among them would keep its snapshot open while the error is referenced:
    later reads on the connection would see old rows, and writes would fail (SQLITE_BUSY_SNAPSHOT).
    """
    current: BaseException | None = error
    while current is not None:
        traceback.clear_frames(current.__traceback__)
        current = current.__context__
    return error


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
    check_room(file.parent)


def in_memory(url: URL) -> bool:
    """Return whether a URL is of an in-memory database.

    It is kept in a temporary file, because an in-memory SQLite database belongs to one connection.
    """
    return url.database in _IN_MEMORY


def _engine(
    url: URL,
    *,
    pool_size: int | None,
    lasting: bool,
    busy_ms: int,
    cache_kb: int = _READER_CACHE_KB,
) -> sa.Engine:
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
    sa.event.listen(engine, "connect", partial(prepare, synchronous, busy_ms, cache_kb, file))
    return engine
