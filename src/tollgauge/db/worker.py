"""Worker: a thread with a connection of its own, for a driver that blocks.

Rules:
- it does its jobs in the order in which they came, so a transaction whose task was cancelled is
  rolled back before anything else happens on its connection;
- a job is done in any case, also when nobody waits any more;
- an error that leaves holds nothing of the connection.
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

R = TypeVar("R")


class Worker:
    """A thread and its connection."""

    def __init__(self, engine: sa.Engine, *, words: str = "BEGIN") -> None:
        self._engine = engine
        self._words = words
        self._connection: sa.Connection | None = None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._todo = 0
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether it still works, be it for somebody who is gone."""
        return self._todo > 0

    def do(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """Run work on the thread. It is done in any case, also when nobody waits any more."""
        self._start()
        return self._submit(work)

    def once(self, work: Callable[[sa.Connection], R]) -> R:
        """On the thread: work in a transaction of its own."""
        try:
            self.begin()
            made = self.run(work)
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return made

    def begin(self) -> None:
        """On the thread: begin a transaction of several jobs."""
        if self._connection is None:
            self._connection = self._engine.connect()
        self._driver.execute(self._words)

    def run(self, work: Callable[[sa.Connection], R]) -> R:
        """On the thread: one job of a transaction that was begun. Raises RuntimeError where SQLite
        has ended it, as it does when the disk is full: what is written then would stay.
        """
        if not self.in_transaction:
            raise RuntimeError("this transaction has ended: nothing of it was written")
        assert self._connection is not None  # noqa: S101 - a transaction is open on it
        return work(self._connection)

    def commit(self) -> None:
        """On the thread: end a transaction that was begun."""
        self._driver.execute("COMMIT")

    def rollback(self) -> None:
        """On the thread: end a transaction, where one was begun, as if it had not been. A
        connection that cannot do even that is given up.
        """
        try:
            if self.in_transaction:
                self._driver.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    @property
    def in_transaction(self) -> bool:
        """On the thread: whether a transaction is open."""
        return self._connection is not None and bool(self._driver.in_transaction)

    @property
    def _driver(self) -> Any:
        """The driver's own connection."""
        assert self._connection is not None  # noqa: S101 - begin opened it
        return self._connection.connection.dbapi_connection

    def close(self) -> None:
        """On the thread: close the connection; the next transaction opens another."""
        held, self._connection = self._connection, None
        if held is not None:
            held.invalidate()
            held.close()

    async def end(self) -> None:
        """Close the connection and let the thread end. Its place is free only when it has: of two
        threads on one connection each would do a part of the other's transactions.
        """
        if self._thread is not None:
            await self._submit(self.close)  # behind all that was begun, beside the event loop
        if self._thread is not None:  # nobody else ended it meanwhile
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name="tollgauge-sqlite", daemon=True)
            self._thread.start()

    def _submit(self, work: Callable[[], R]) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._todo += 1
        self._jobs.put(partial(self._finish, work, future, loop))
        return future

    def _live(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # what it held is free while the next is waited for
        self.close()  # work that came while it was being closed opened it again

    def _finish(
        self,
        work: Callable[[], Any],
        future: asyncio.Future[Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """On the thread: one job, and its outcome to whom it may concern."""
        try:
            report = partial(self._answer, future, work())
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            let_go(error)
            report = partial(self._fail, future, error)
        with contextlib.suppress(RuntimeError):  # nobody is left: the loop is closed
            loop.call_soon_threadsafe(report)

    def _answer(self, future: asyncio.Future[Any], value: Any) -> None:
        self._todo -= 1
        if not future.done():
            future.set_result(value)

    def _fail(self, future: asyncio.Future[Any], error: BaseException) -> None:
        self._todo -= 1
        if not future.done():
            future.set_exception(settable(error))


def settable(error: BaseException) -> BaseException:
    """What a future takes: it refuses a StopIteration, and its caller would wait for ever."""
    return RuntimeError("work raised StopIteration") if type(error) is StopIteration else error


def let_go(error: BaseException, *, handled: BaseException | None = None) -> None:
    """Free what the functions that failed still hold. Rows that were not read to the end would
    keep their moment of the database for the next transactions, as long as anybody holds the
    error: readers would see an old moment, and the writer could not begin (SQLITE_BUSY_SNAPSHOT).
    What the caller `handled` when it asked is its own.
    """
    held: BaseException | None = error
    while held is not None and held is not handled:
        traceback.clear_frames(held.__traceback__)
        held = held.__context__
