"""Transaction: how coroutines call functions that work on a connection.

The functions of the store are plain: they take a SQLAlchemy connection and return rows. The
database decides where they run: for SQLite on the thread that has the connection, for PostgreSQL in
a greenlet of the event loop's thread, in which asyncpg awaits each statement. `step` marks the
functions that coroutines may call with a `Transaction` in the connection's place; they are
awaited then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, overload

from sqlalchemy import Connection, CursorResult, Executable, Result

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Work = Callable[Concatenate[Connection, P], R]
"""A function of a connection, and what else it takes."""
Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Runner(Protocol):
    """Runs functions on the connection of one transaction."""

    def __call__(self, work: Callable[[Connection], R], /) -> Awaitable[R]:
        """What the function returns."""


class Transaction:
    """An open transaction as a coroutine holds it. `dialect` is `sqlite` or `postgresql`."""

    def __init__(self, dialect: str, runner: Runner) -> None:
        self.dialect: Final = dialect
        self._runner = runner
        self._open = True

    async def run(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function with the connection. Raises RuntimeError if the transaction has ended."""
        if not self._open:
            raise RuntimeError("this transaction has ended")
        return await self._runner(partial(_call, work, args, kwargs))

    async def execute(self, statement: Executable, parameters: Parameters | None = None) -> Any:
        """Execute one statement and fetch all rows of its result."""
        return await self.run(_execute, statement, parameters)

    def end(self) -> None:
        """Refuse whatever is run from now on."""
        self._open = False


def _call(work: Any, args: Any, kwargs: Any, connection: Connection) -> Any:
    return work(connection, *args, **kwargs)


def _execute(
    connection: Connection, statement: Executable, parameters: Parameters | None
) -> Result[Any] | CursorResult[Any]:
    result = connection.execute(statement, parameters)
    return result.freeze()() if result.returns_rows else result


class Database(Protocol):
    """SQLite or PostgreSQL. Both raise the errors of their drivers; db/engine translates them."""

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""

    def transaction(self, *, writing: bool) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that commits at the end of its block, or rolls back on any exception."""

    def run(self, work: Callable[[Connection], R], *, writing: bool) -> Awaitable[R]:
        """Run work in a transaction of its own."""

    def lookup(self, work: Callable[[Connection], R]) -> Awaitable[R]:
        """Run work that reads a few rows by their keys in a transaction of its own."""

    def rolled_back(self, work: Callable[[Connection], None]) -> Awaitable[None]:
        """Run work that writes in a transaction that is rolled back."""

    async def close(self) -> None:
        """Close every connection."""


class Step(Protocol[P, R_co]):
    """A function of the store: called with a connection it is a plain function, called with a
    `Transaction` it is a coroutine function.
    """

    @overload
    def __call__(self, tx: Connection, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __call__(
        self, tx: Transaction, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R_co]: ...


def step(work: Work[P, R]) -> Step[P, R]:
    """Let coroutines call a function of the store with a `Transaction`."""

    @wraps(work)
    def either(tx: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        if isinstance(tx, Transaction):
            return tx.run(work, *args, **kwargs)
        return work(tx, *args, **kwargs)

    return either
