"""A worker that may die at any of its steps, by an exception that is never caught. After that, all
its further actions fail too: nothing reaches the database or the network, as after `kill -9`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from sqlalchemy import Connection

from tollgauge.db.engine import Store, Work

P = ParamSpec("P")
R = TypeVar("R")


class Crash(BaseException):
    """The worker is dead."""


@dataclass
class Worker:
    """One process: the points at which it may die, and whether it is dead."""

    dies_at: int | None = None
    passed: int = 0
    dead: bool = False
    trail: list[str] = field(default_factory=list)

    def point(self, name: str) -> None:
        if self.dead:
            raise Crash
        self.passed += 1
        self.trail.append(name)
        if self.passed == self.dies_at:
            self.dead = True
            raise Crash


class KillableStore(Store):
    """The same database, used by a worker that may die before, in and after a transaction."""

    def __init__(self, store: Store, worker: Worker) -> None:
        super().__init__(store._database)
        self.worker = worker

    async def writing(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self.worker.point("before a transaction")

        def killable(connection: Connection) -> R:
            result = work(connection, *args, **kwargs)
            self.worker.point("before a commit")
            return result

        result = await super().writing(killable)
        self.worker.point("after a commit")
        return result

    async def reading(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self.worker.dead:
            raise Crash
        return await super().reading(work, *args, **kwargs)
