"""Transactions of an SQLite file, on the thread that has the connection, and the queue of writers.

sqlite3 never begins a transaction by itself here, and SQLAlchemy is in AUTOCOMMIT mode, so that it
begins none either.

Write queue: the one thread that writes to an SQLite file, on behalf of many callers.

Rules:
- each queued function is a transaction of its own. Those that wait when the thread gets to them
  share one commit, because a commit waits for the disk: each runs in a savepoint;
- a function whose caller was cancelled before its turn is not run; once begun, it is run to its
  end.
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
    """A connection for transactions that are whole.

    - While `checked`, a statement after the end of the transaction raises RuntimeError: SQLite ends
      one itself when the disk is full, and what came after it would be committed alone.
    - `close` ends the transaction at once. SQLite would keep it open, with its lock on the
      database, as long as a statement of it exists, and a traceback may refer to one until the next
      garbage collection.
    """

    checked = False

    def cursor(self, *arguments: Any) -> Any:
        """A cursor; `execute` takes one too."""
        if self.checked and not self.in_transaction:
            raise RuntimeError("this transaction has ended: nothing of it was written")
        return super().cursor(*arguments)

    def close(self) -> None:
        """Roll back what is open, and close."""
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
    """Run work in a transaction of its own; it is committed, or rolled back if nothing is to
    `keep` or an exception is raised.
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
    """Roll back what is open; a connection that cannot do that is closed."""
    try:
        if driver.in_transaction:
            driver.execute("ROLLBACK")
    except sqlite3.Error:
        connection.invalidate()


def release_frames(error: BaseException) -> BaseException:
    """An error without the local variables of the functions that failed.

    A cursor among them that was not read to its end would keep its snapshot open for as long as
    anybody holds the error: later reads on the connection would see old rows, and a write could not
    begin (SQLITE_BUSY_SNAPSHOT).
    """
    current: BaseException | None = error
    while current is not None:
        traceback.clear_frames(current.__traceback__)
        current = current.__context__
    return error


_Work = Callable[[sa.Connection], Any]


@dataclass(frozen=True, slots=True)
class WorkOutcome:
    """What one of several functions returned or raised."""

    value: Any = None
    error: BaseException | None = None


class WriteQueue:
    """Functions that write, in the order in which they came. `thread` is theirs alone."""

    def __init__(self, engine: sa.Engine) -> None:
        self.thread = _writer_thread()
        self._engine = engine
        self._queue: deque[tuple[_Work, asyncio.Future[Any], asyncio.AbstractEventLoop]] = deque()
        self._flush_submitted = False

    def enqueue(self, work: Callable[[sa.Connection], R]) -> asyncio.Future[R]:
        """Run work in a transaction of its own, together with others that wait."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._queue.append((work, future, loop))
        loop.call_soon(self._wake)  # later, so that what is queued in this turn shares the commit
        return future

    def stop(self) -> None:
        """Finish what was begun; what is queued from now on begins another thread."""
        thread, self.thread = self.thread, _writer_thread()
        thread.shutdown()

    def _wake(self) -> None:
        if self._queue and not self._flush_submitted:
            self._flush_submitted = True
            self.thread.submit(self._flush)

    def _flush(self) -> None:
        """On the thread: run what is queued."""
        self._flush_submitted = False  # what is queued from here on needs another flush
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
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_set_outcome, future, outcome)

    def _run_batch(self, works: Sequence[_Work]) -> Sequence[WorkOutcome]:
        """On the thread: run several functions in one transaction. If one fails, nothing of it is
        written and the others go on; if the transaction fails, it fails for all of them.
        """

        def run_all(connection: sa.Connection) -> Sequence[WorkOutcome]:
            if len(works) == 1:
                return [WorkOutcome(value=works[0](connection))]
            return [_run_in_savepoint(connection, work) for work in works]

        try:
            return run_transaction(self._engine, run_all, begin="BEGIN IMMEDIATE")
        except BaseException as error:  # noqa: BLE001 - it is raised to the callers
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
    """Run work in a savepoint. Raises what the work raised if SQLite ended the whole transaction
    with it, as it does when the disk is full.
    """
    driver = sqlite_connection(connection)
    driver.execute("SAVEPOINT part")
    try:
        outcome = WorkOutcome(value=work(connection))
    except Exception as error:  # it is raised to the caller of this work alone
        if not driver.in_transaction:
            raise
        driver.execute("ROLLBACK TO part")
        outcome = WorkOutcome(error=release_frames(error))
    driver.execute("RELEASE part")
    return outcome
