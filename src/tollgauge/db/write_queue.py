"""Writer: the one thread that writes to an SQLite file, for many who wish to.

Rules:
- what one function writes is a transaction of its own. Those that wait when the thread comes to
  them go together: each in a savepoint, with one commit for all, because a commit waits for the
  disk;
- a transaction of several jobs is never disturbed: what is wished meanwhile comes after it;
- nothing is done for who left before their turn; once begun it is done in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa

from tollgauge.db.worker import Worker, let_go, settable

R = TypeVar("R")

_Work = Callable[[sa.Connection], Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one of several works came to."""

    value: Any = None
    error: BaseException | None = None


class WriteQueue(Worker):
    """A worker that begins by taking the right to write."""

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine, words="BEGIN IMMEDIATE")
        self._waiting: deque[tuple[_Work, asyncio.Future[Any], asyncio.AbstractEventLoop]] = deque()
        self._woken = False

    def enqueue(self, work: Callable[[sa.Connection], R]) -> asyncio.Future[R]:
        """Have work done in a transaction of its own, with others that wait."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[R] = loop.create_future()
        self._waiting.append((work, result, loop))
        loop.call_soon(self.wake)  # who wishes in this turn of the loop comes along
        return result

    def wake(self) -> None:
        """Have what is wished done after what was begun."""
        self._start()
        if self._waiting and not self._woken:
            self._woken = True
            self._jobs.put(self._flush)

    def together(self, works: Sequence[_Work]) -> Sequence[Outcome]:
        """On the thread: several works in one transaction. One that fails leaves nothing behind
        and takes nobody with it; a transaction that fails does so for all.
        """
        try:
            if len(works) == 1:
                return [Outcome(value=self.once(works[0]))]
            return self.once(lambda connection: [_part(connection, work) for work in works])
        except BaseException as error:  # noqa: BLE001 - it is the callers'
            let_go(error)
            return [Outcome(error=error)] * len(works)

    def _flush(self) -> None:
        """On the thread: do what is wished, unless a transaction is open: who ends it asks again.
        Who wishes from here on asks anew.
        """
        self._woken = False
        if self.in_transaction:
            return
        batch = []
        while self._waiting:
            enqueue = self._waiting.popleft()
            if not enqueue[1].done():
                batch.append(enqueue)
        if not batch:
            return
        outcomes = self.together([work for work, _, _ in batch])
        for (_, result, loop), outcome in zip(batch, outcomes, strict=True):
            with contextlib.suppress(RuntimeError):  # nobody is left: the loop is closed
                loop.call_soon_threadsafe(_tell, result, outcome)


def _tell(result: asyncio.Future[Any], outcome: Outcome) -> None:
    if result.done():
        return
    if outcome.error is None:
        result.set_result(outcome.value)
    else:
        result.set_exception(settable(outcome.error))


def _part(connection: sa.Connection, work: _Work) -> Outcome:
    """Work in a savepoint. Raises what the work raised where SQLite ended the transaction with it,
    as it does when the disk is full.
    """
    driver: Any = connection.connection.dbapi_connection
    driver.execute("SAVEPOINT part")
    try:
        made = Outcome(value=work(connection))
    except Exception as error:  # whatever it is, it is the caller's, and the others go on
        if not driver.in_transaction:
            raise
        driver.execute("ROLLBACK TO part")
        let_go(error)
        made = Outcome(error=error)
    driver.execute("RELEASE part")
    return made
