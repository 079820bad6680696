"""Store: one database, SQLite or PostgreSQL, and its transactions.

Rules:
- all writing happens in `write()`, all reading in `read()`; a read sees one moment of the
  database from its first statement to its end (a WAL snapshot, or REPEATABLE READ);
- what one function does is one `writing` or `reading`: on SQLite that crosses to the connection's
  thread once, instead of once a function and twice more;
- writers of one process take turns instead of spinning on the file's lock;
- a database that cannot serve now (locked, full, gone, too slow) is `StoreUnavailable`, decided
  in db/errors.py; a statement that is wrong stays the driver's own error.

What the rows mean is the sibling modules' work; each takes a transaction as its first argument.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, Protocol, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from tollgauge.core.errors import TollgaugeError
from tollgauge.db import sqlite
from tollgauge.db.errors import Cause, StoreUnavailable, translated
from tollgauge.db.migrations import upgrade
from tollgauge.db.postgres import Postgres
from tollgauge.db.sqlite import Sqlite
from tollgauge.db.transaction import Database, Transaction, Work

__all__ = [
    "Cause",
    "ReadOnlyStore",
    "Store",
    "StoreError",
    "StoreSettings",
    "StoreUnavailable",
]

P = ParamSpec("P")
R = TypeVar("R")

_DRIVERS: Final = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "sqlite+aiosqlite": "sqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
_MIGRATION_LOCK: Final = 8_402_402
_READ_ONLY: Final = "25006"
"""SQLSTATE read_only_sql_transaction: elsewhere it would mean that a reader of ours writes."""


class StoreError(TollgaugeError):
    """A database URL that names no database this store speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Which database: a URL as `Store.open` takes it. Raises StoreError for any other."""

    url: str = "sqlite:///tollgauge.sqlite"

    def __post_init__(self) -> None:
        parse_url(self.url)

    @property
    def in_memory(self) -> bool:
        """Whether the database ends with the process."""
        url = parse_url(self.url)
        return is_sqlite(url) and sqlite.in_memory(url)


class ReadOnlyStore(Protocol):
    """The part of a store that reads. What a paid route makes its answer from: it writes under its
    payment's claim alone (web/paid/claim).
    """

    def read(self) -> AbstractAsyncContextManager[Transaction]:
        """As `Store.read`."""

    async def reading(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """As `Store.reading`."""

    async def lookup(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """As `Store.lookup`."""


class Store:
    """An open database. `dialect` is `sqlite` or `postgresql`."""

    def __init__(self, database: Database) -> None:
        self.dialect: Final = database.dialect
        self._database: Final = database
        self._damaged = False

    @classmethod
    def open(cls, url: str, *, pool_size: int = 8) -> Self:
        """The store behind a URL: `sqlite:///file`, `sqlite://` (gone at the end), or
        `postgresql://…`; the driver's name may be spelled out. Nothing is connected yet.

        Raises StoreError for any other URL.
        """
        parsed = parse_url(url)
        if is_sqlite(parsed):
            return cls(Sqlite(parsed, readers=pool_size))
        return cls(Postgres(parsed, connections=pool_size))

    async def migrate(self) -> None:
        """Bring the tables to the newest version. Safe to call from several processes at once,
        and again.
        """
        await self.writing(_migrate)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        """A transaction that may write; it commits at the end, or rolls back on any exception.

        Raises StoreUnavailable when the database cannot serve now.
        """
        with translated(tell=self._note):
            async with self._database.transaction(writing=True) as tx:
                yield tx

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        """A transaction that only reads, all of it as of one moment.

        Raises StoreUnavailable when the database cannot serve now.
        """
        with translated(tell=self._note):
            async with self._database.transaction(writing=False) as tx:
                yield tx

    async def writing(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in a `write` of its own. It is done, or not, also when the caller is
        cancelled meanwhile.
        """
        with translated(tell=self._note):
            return await self._database.once(_bound(work, args, kwargs), writing=True)

    async def reading(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in a `read` of its own."""
        with translated(tell=self._note):
            return await self._database.once(_bound(work, args, kwargs), writing=False)

    async def lookup(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function that reads a few rows by their keys, and nothing else, in a `read` of its
        own. On SQLite that is done on the spot: crossing to a thread and back costs many times as
        much.
        """
        with translated(tell=self._note):
            return await self._database.lookup(_bound(work, args, kwargs))

    async def try_write(self, work: Work[[], None], *, seconds: float) -> None:
        """Run a function in a `write` that is rolled back. On SQLite the connection is a new one,
        which knows nothing of the file yet, and what it writes reaches the disk.

        Raises StoreUnavailable also where that takes longer than `seconds` or the tables are not
        those that the function knows, and from the first statement on that met damage in a file:
        it does not heal.
        """
        if self._damaged:
            raise StoreUnavailable("a part of it is damaged", Cause.CORRUPT)
        slow = Cause.LOCKED if self.dialect == "sqlite" else Cause.UNREACHABLE
        try:
            with translated(tell=self._note):
                async with asyncio.timeout(seconds):
                    await self._database.rolled_back(work)
        except TimeoutError as error:
            raise StoreUnavailable("it did not answer in time", slow) from error
        except DBAPIError as error:
            standby = getattr(error.orig, "sqlstate", None) == _READ_ONLY
            cause = Cause.READ_ONLY if standby else Cause.TABLES
            raise StoreUnavailable("a statement failed", cause) from error

    async def close(self) -> None:
        """Close every connection."""
        await self._database.close()
        self._damaged = False

    def _note(self, cause: Cause) -> None:
        self._damaged |= cause is Cause.CORRUPT and self.dialect == "sqlite"


def _bound(work: Any, args: Any, kwargs: Any) -> Callable[[sa.Connection], Any]:
    return lambda connection: work(connection, *args, **kwargs)


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
