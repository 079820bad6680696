"""Transactions of an SQLite file on the thread that owns the connection, and the queue of writers.

sqlite3 never starts a transaction by itself here, and SQLAlchemy is in AUTOCOMMIT mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import sqlalchemy as sa

R = TypeVar("R")


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


def sqlite_connection(connection: sa.Connection) -> sqlite3.Connection:
    """Return the sqlite3 connection behind SQLAlchemy's."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def run_transaction(
    engine: sa.Engine, work: Callable[[sa.Connection], R], *, begin: str, keep: bool = True
) -> R:
    """Run work in its own transaction.

    It is committed, or rolled back if `keep` is False or on any exception.
    """
    with engine.connect() as connection:
        driver = cast("CheckedConnection", sqlite_connection(connection))
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
    later reads on the connection would see old rows, and a write could not start
    (SQLITE_BUSY_SNAPSHOT).
    """
    current: BaseException | None = error
    while current is not None:
        traceback.clear_frames(current.__traceback__)
        current = current.__context__
    return error


_Work = Callable[[sa.Connection], Any]


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
    driver = sqlite_connection(connection)
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
