"""Write queue: the one thread that writes to an SQLite file, on behalf of many callers.

Rules:
- each queued function is a transaction of its own. Those that wait when the thread gets to them
  share one commit, because a commit waits for the disk: each runs in a savepoint;
- nothing runs inside a transaction of several jobs; what is queued meanwhile comes after it;
- a function whose caller was cancelled before its turn is not run; once begun, it is run to its
  end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa

from tollgauge.db.driver import sqlite_connection
from tollgauge.db.worker import Worker, release_frames, set_error

R = TypeVar("R")

_Work = Callable[[sa.Connection], Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one of several functions returned or raised."""

    value: Any = None
    error: BaseException | None = None


class WriteQueue(Worker):
    """A worker whose transactions take SQLite's write lock first."""

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine, begin_statement="BEGIN IMMEDIATE")
        self._queue: deque[tuple[_Work, asyncio.Future[Any], asyncio.AbstractEventLoop]] = deque()
        self._flush_submitted = False

    def enqueue(self, work: Callable[[sa.Connection], R]) -> asyncio.Future[R]:
        """Run work in a transaction of its own, together with others that wait."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._queue.append((work, future, loop))
        loop.call_soon(self.wake)  # later, so that what is queued in this turn shares the commit
        return future

    def wake(self) -> None:
        """Run what is queued, after the jobs that were submitted before."""
        self._start()
        if self._queue and not self._flush_submitted:
            self._flush_submitted = True
            self._jobs.put(self._flush)

    def run_batch(self, works: Sequence[_Work]) -> Sequence[Outcome]:
        """On the thread: run several functions in one transaction. If one fails, nothing of it is
        written and the others go on; if the transaction fails, it fails for all of them.
        """
        try:
            if len(works) == 1:
                return [Outcome(value=self.run_transaction(works[0]))]
            return self.run_transaction(
                lambda connection: [_run_in_savepoint(connection, work) for work in works]
            )
        except BaseException as error:  # noqa: BLE001 - it is raised to the callers
            release_frames(error)
            return [Outcome(error=error)] * len(works)

    def _flush(self) -> None:
        """On the thread: run what is queued, unless a transaction is open: whoever ends it calls
        `wake` again.
        """
        self._flush_submitted = False  # what is queued from here on needs another flush
        if self.in_transaction:
            return
        batch = []
        while self._queue:
            entry = self._queue.popleft()
            _, future, _ = entry
            if not future.done():
                batch.append(entry)
        if not batch:
            return
        outcomes = self.run_batch([work for work, _, _ in batch])
        for (_, future, loop), outcome in zip(batch, outcomes, strict=True):
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_set_outcome, future, outcome)


def _set_outcome(future: asyncio.Future[Any], outcome: Outcome) -> None:
    if outcome.error is not None:
        set_error(future, outcome.error)
    elif not future.done():
        future.set_result(outcome.value)


def _run_in_savepoint(connection: sa.Connection, work: _Work) -> Outcome:
    """Run work in a savepoint. Raises what the work raised if SQLite ended the whole transaction
    with it, as it does when the disk is full.
    """
    driver = sqlite_connection(connection)
    driver.execute("SAVEPOINT part")
    try:
        outcome = Outcome(value=work(connection))
    except Exception as error:  # it is raised to the caller of this work alone
        if not driver.in_transaction:
            raise
        driver.execute("ROLLBACK TO part")
        release_frames(error)
        outcome = Outcome(error=error)
    driver.execute("RELEASE part")
    return outcome
