"""Worker: a thread with a database connection of its own, for a driver that blocks.

Rules:
- a worker runs its jobs in the order in which they were submitted, so a transaction whose task was
  cancelled is rolled back before anything else happens on its connection;
- a submitted job is always run, even if its caller has stopped waiting;
- an error that leaves the thread keeps no cursor of the connection open.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import traceback
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import sqlalchemy as sa

from tollgauge.db.driver import sqlite_connection

R = TypeVar("R")


class Worker:
    """A thread and its connection. Methods marked *on the thread* are called by jobs only."""

    def __init__(self, engine: sa.Engine, *, begin_statement: str = "BEGIN") -> None:
        self._engine = engine
        self._begin_statement = begin_statement
        self._connection: sa.Connection | None = None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._unfinished_jobs = 0
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a job is unfinished, even one whose caller has stopped waiting."""
        return self._unfinished_jobs > 0

    def submit(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """Run work on the thread. It is run even if the caller stops waiting for it."""
        self._start()
        return self._put_job(work)

    def run_transaction(self, work: Callable[[sa.Connection], R]) -> R:
        """On the thread: run work in a transaction of its own."""
        try:
            self.begin()
            result = self.run(work)
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return result

    def begin(self) -> None:
        """On the thread: begin a transaction of several jobs."""
        if self._connection is None:
            self._connection = self._engine.connect()
        self._driver.execute(self._begin_statement)

    def run(self, work: Callable[[sa.Connection], R]) -> R:
        """On the thread: run one job of the open transaction. Raises RuntimeError if SQLite has
        ended the transaction itself, as it does when the disk is full: what the job writes would
        be committed alone.
        """
        if not self.in_transaction:
            raise RuntimeError("this transaction has ended: nothing of it was written")
        assert self._connection is not None  # noqa: S101 - a transaction is open on it
        return work(self._connection)

    def commit(self) -> None:
        """On the thread: commit the open transaction."""
        self._driver.execute("COMMIT")

    def rollback(self) -> None:
        """On the thread: roll back, if a transaction is open. A connection that cannot even do
        that is closed.
        """
        try:
            if self.in_transaction:
                self._driver.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    @property
    def in_transaction(self) -> bool:
        """On the thread: whether a transaction is open."""
        return self._connection is not None and self._driver.in_transaction

    @property
    def _driver(self) -> sqlite3.Connection:
        assert self._connection is not None  # noqa: S101 - begin opened it
        return sqlite_connection(self._connection)

    def close(self) -> None:
        """On the thread: close the connection; the next transaction opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    async def stop(self) -> None:
        """Close the connection and end the thread. A new thread may start only after this one has
        ended: two threads on one connection would mix their transactions.
        """
        if self._thread is not None:
            await self._put_job(self.close)  # after every submitted job
        if self._thread is not None:  # no other caller stopped it meanwhile
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_jobs, name="tollgauge-sqlite", daemon=True
            )
            self._thread.start()

    def _put_job(self, work: Callable[[], R]) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._unfinished_jobs += 1
        self._jobs.put(partial(self._run_job, work, future, loop))
        return future

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # free what it refers to while waiting for the next one
        self.close()  # a job that came after `close` may have opened another connection

    def _run_job(
        self,
        work: Callable[[], Any],
        future: asyncio.Future[Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """On the thread: run one job, and set its result or error on the event loop."""
        try:
            report = partial(self._set_result, future, work())
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            release_frames(error)
            report = partial(self._set_error, future, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(report)

    def _set_result(self, future: asyncio.Future[Any], value: Any) -> None:
        self._unfinished_jobs -= 1
        if not future.done():
            future.set_result(value)

    def _set_error(self, future: asyncio.Future[Any], error: BaseException) -> None:
        self._unfinished_jobs -= 1
        set_error(future, error)


def set_error(future: asyncio.Future[Any], error: BaseException) -> None:
    """Set an exception on a future that is not done. A future refuses StopIteration, and its
    caller would wait for ever; it gets a RuntimeError instead.
    """
    if type(error) is StopIteration:
        error = RuntimeError("work raised StopIteration")
    if not future.done():
        future.set_exception(error)


def release_frames(error: BaseException, *, handled: BaseException | None = None) -> None:
    """Clear the local variables of the functions that failed, as far back as `handled`, the
    exception that the caller was handling already.

    A cursor among them that was not read to its end would keep its snapshot open for as long as
    anybody holds the error: later reads on the connection would see old rows, and a write could not
    begin (SQLITE_BUSY_SNAPSHOT).
    """
    current: BaseException | None = error
    while current is not None and current is not handled:
        traceback.clear_frames(current.__traceback__)
        current = current.__context__
