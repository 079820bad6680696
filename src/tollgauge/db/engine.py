"""Store: one database, SQLite or PostgreSQL, and its transactions.

Rules:
- a transaction is one plain function of a connection, run by `writing` or `reading`: nothing but
  the database is waited for inside it. SQLite runs it on a thread, PostgreSQL in a greenlet of the
  event loop's thread, in which asyncpg awaits each statement;
- a read sees one moment of the database from its first statement to its end (a WAL snapshot, or
  REPEATABLE READ);
- writers of one process wait for each other instead of polling the file's lock;
- a database that cannot serve now (locked, full, gone, too slow) raises StoreUnavailable, decided
  in db/database_errors; a statement that is wrong stays the driver's own error.

What the rows mean is not known here: the functions of store/ take a connection as their first
argument.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

import sqlalchemy as sa
from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.db import sqlite
from tollgauge.db.database_errors import Cause, StoreUnavailable, translated
from tollgauge.db.migrations import upgrade
from tollgauge.db.sqlite import Sqlite

__all__ = [
    "Cause",
    "ReadOnlyStore",
    "Store",
    "StoreError",
    "StoreSettings",
    "StoreUnavailable",
    "Work",
]

P = ParamSpec("P")
R = TypeVar("R")

Work = Callable[Concatenate[sa.Connection, P], R]
"""A function of a connection, and what else it takes."""

CONNECTIONS: Final = 8
"""Of one process: a writer and seven readers."""
STATEMENT_MS: Final = 30_000
_DRIVERS: Final = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "sqlite+aiosqlite": "sqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
_MIGRATION_LOCK: Final = 8_402_402


class StoreError(TollgaugeError, ValueError):
    """A database URL that names neither SQLite nor PostgreSQL."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Which database, and how much of it this process uses."""

    url: str = "sqlite:///tollgauge.sqlite"
    """sqlite:///FILE or postgresql://user@host/database. A URL with a password belongs in the
    environment: DATABASE_URL.
    """
    connections: Annotated[int, Field(ge=2, le=1_000)] = CONNECTIONS
    """Of one process, at most; processes x connections <= max_connections of the server."""
    statement_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = STATEMENT_MS
    """PostgreSQL ends a statement that takes longer."""

    def __post_init__(self) -> None:
        parse_url(self.url)

    @property
    def in_memory(self) -> bool:
        """Whether the database ends with the process."""
        url = parse_url(self.url)
        return is_sqlite(url) and sqlite.in_memory(url)


class Database(Protocol):
    """SQLite or PostgreSQL. Both raise the errors of their drivers; the store translates them."""

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""

    def run(self, work: Callable[[sa.Connection], R], *, writing: bool) -> Awaitable[R]:
        """Run work in a transaction of its own."""

    def rolled_back(self, work: Callable[[sa.Connection], None]) -> Awaitable[None]:
        """Run work that writes in a transaction that is rolled back."""

    async def close(self) -> None:
        """Close every connection."""


class ReadOnlyStore(Protocol):
    """The part of a store that reads: all that the product of a paid route gets. It may write only
    under its payment's claim (web/paid/sale).
    """

    async def reading(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """As `Store.reading`."""


class Store:
    """A database. `dialect` is `sqlite` or `postgresql`."""

    def __init__(self, database: Database) -> None:
        self.dialect: Final = database.dialect
        self._database: Final = database
        self._damaged = False

    @classmethod
    def open(
        cls, url: str, *, pool_size: int = CONNECTIONS, statement_ms: int = STATEMENT_MS
    ) -> Self:
        """The store behind a URL: `sqlite:///file`, `sqlite://` (gone at the end), or
        `postgresql://…`; the URL may also name the driver. Nothing is connected yet.

        At most `pool_size` connections are open at once; PostgreSQL ends a statement after
        `statement_ms`. Raises StoreError for any other URL.
        """
        parsed = parse_url(url)
        if is_sqlite(parsed):
            return cls(Sqlite(parsed, readers=pool_size))
        # A tenth of a second, which commands on SQLite do not spend.
        from tollgauge.db.postgres import Postgres

        return cls(Postgres(parsed, connections=pool_size, statement_ms=statement_ms))

    async def migrate(self) -> None:
        """Bring the tables to the newest version. Several processes may do so at once."""
        await self.writing(_migrate)

    async def writing(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in a transaction that commits at its end, or rolls back on any exception.
        If the caller is cancelled meanwhile, the function is either run and committed, or not run
        at all. Raises StoreUnavailable when the database cannot serve now.
        """
        with translated(writing=True, on_error=self._note):
            return await self._database.run(_bound(work, args, kwargs), writing=True)

    async def reading(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function that only reads, all of it as of one moment. Raises StoreUnavailable when
        the database cannot serve now.
        """
        with translated(on_error=self._note):
            return await self._database.run(_bound(work, args, kwargs), writing=False)

    async def try_write(self, work: Work[[], None], *, seconds: float) -> None:
        """Run a function in a transaction that is rolled back. On SQLite it gets a new connection,
        with nothing of the file in its cache, and what it writes reaches the disk.

        Raises StoreUnavailable, also if that takes longer than `seconds`, if the tables are not
        those that the function expects, or if any statement before has found the file damaged: a
        damaged file stays damaged.
        """
        self.check_undamaged()
        slow = Cause.LOCKED if self.dialect == "sqlite" else Cause.UNREACHABLE
        try:
            with translated(writing=True, on_error=self._note):
                async with asyncio.timeout(seconds):
                    await self._database.rolled_back(work)
        except TimeoutError as error:
            raise StoreUnavailable("it did not answer in time", slow) from error
        except DBAPIError as error:
            raise StoreUnavailable("a statement failed", Cause.TABLES) from error

    def check_undamaged(self) -> None:
        """Raise StoreUnavailable if any statement so far has found the SQLite file damaged. What is
        begun may be finished, but nothing new may be sold from such a file.
        """
        if self._damaged:
            raise StoreUnavailable("a part of it is damaged", Cause.CORRUPT)

    async def close(self) -> None:
        """Close every connection; the next transaction opens another."""
        await self._database.close()
        self._damaged = False

    def _note(self, cause: Cause) -> None:
        self._damaged |= cause is Cause.CORRUPT and self.dialect == "sqlite"


def _bound(work: Any, args: Any, kwargs: Any) -> Callable[[sa.Connection], Any]:
    def call(connection: sa.Connection) -> Any:
        try:
            return work(connection, *args, **kwargs)
        except StopIteration as error:  # a future cannot carry it: its caller would wait for ever
            raise RuntimeError("work raised StopIteration") from error

    return call


def _migrate(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SET LOCAL statement_timeout = 0"))  # it may move much
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    upgrade(connection)


def parse_url(url: str) -> URL:
    """The URL of a database with the driver that is used. Raises StoreError."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise StoreError("The database URL cannot be read.", hint=_HINT) from error
    if parsed.drivername not in _DRIVERS:
        raise StoreError(f"No store speaks {parsed.drivername!r}.", hint=_HINT)
    parsed = parsed.set(drivername=_DRIVERS[parsed.drivername])
    unknown = set() if is_sqlite(parsed) else parsed.query.keys() - _PARAMETERS
    if unknown:
        raise StoreError(
            f"The database URL has parameters unknown here: {', '.join(sorted(unknown))}.",
            hint=f"The driver takes {', '.join(sorted(_PARAMETERS))}.",
        )
    return parsed


def is_sqlite(url: URL) -> bool:
    """Whether a URL names an SQLite database."""
    return url.drivername.startswith("sqlite")


_HINT: Final = "Use sqlite:///tollgauge.sqlite or postgresql+asyncpg://user@host/database."


_PARAMETERS: Final = frozenset({"host", "port", "ssl", "sslmode"})
"""Of a PostgreSQL URL; `sslmode` is what libpq calls the driver's `ssl`, with the same words."""
