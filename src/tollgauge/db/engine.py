"""Store: one database, SQLite or PostgreSQL, and its transactions.

- A transaction is one synchronous function of a connection, run by `writing` or `reading`. It must
  not wait for anything except the database. SQLite runs it on a thread, PostgreSQL in a greenlet of
  the event loop, in which asyncpg awaits each statement.
- A read sees one snapshot of the database (WAL snapshot or REPEATABLE READ).
- Writers of one process queue up instead of polling the file's lock.
- A database that cannot serve now (locked, full, unreachable, too slow) raises StoreUnavailable
  (db/database_errors); a wrong statement raises the driver's own error.
- The SQL files next to this module create the tables; `make docs` generates them from the
  declarations in db/schema and store. The version is a digest of that SQL, so a database with other
  tables is rejected. Upgrades begin with the first release.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa
from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.db import sqlite
from tollgauge.db.database_errors import Cause, StoreUnavailable, translate_errors
from tollgauge.db.sqlite import Sqlite

if TYPE_CHECKING:
    from tollgauge.db.postgres import Postgres

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
"""A function of a connection and further arguments."""

CONNECTIONS: Final = 8  # per process: one writer and seven readers
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
VERSION_TABLE: Final = "schema_version"


class StoreError(TollgaugeError, ValueError):
    """A database URL that is neither SQLite nor PostgreSQL."""


class UnknownVersionError(TollgaugeError):
    """The database's tables are of an unsupported version."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The database, and this process's share of it."""

    url: str = "sqlite:///tollgauge.sqlite"
    """`sqlite:///FILE` or `postgresql://user@host/database`. Put a URL with a password into the
    environment variable `DATABASE_URL`.
    """
    connections: Annotated[int, Field(ge=2, le=1_000)] = CONNECTIONS
    """Maximum connections of one process; processes x connections <= max_connections of the
    server.
    """
    statement_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = STATEMENT_MS
    """PostgreSQL cancels a statement that takes longer."""

    def __post_init__(self) -> None:
        parse_url(self.url)

    @property
    def in_memory(self) -> bool:
        """Whether the database ends with the process."""
        url = parse_url(self.url)
        return is_sqlite(url) and sqlite.in_memory(url)


class ReadOnlyStore(Protocol):
    """The reading part of a store, which products of paid routes receive. They may write only under
    their payment's claim (web/paid/sale).
    """

    async def reading(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Store.reading`."""


class Store:
    """A database. `dialect` is `sqlite` or `postgresql`.

    SQLite and PostgreSQL raise their drivers' errors; the store translates them.
    """

    def __init__(self, database: Sqlite | Postgres) -> None:
        self.dialect: Final = database.dialect
        self._database: Final = database
        self._damaged = False

    @classmethod
    def open(
        cls, url: str, *, pool_size: int = CONNECTIONS, statement_ms: int = STATEMENT_MS
    ) -> Store:
        """Return the store of a URL: `sqlite:///file`, `sqlite://` (in memory) or `postgresql://…`;
        the URL may also name the driver. Connections are opened later.

        At most `pool_size` connections are open; PostgreSQL cancels a statement after
        `statement_ms`.

        Raises:
            StoreError: The URL is not supported.
        """
        parsed = parse_url(url)
        if is_sqlite(parsed):
            return cls(Sqlite(parsed, readers=pool_size))
        # The import takes a tenth of a second, which commands on SQLite save.
        from tollgauge.db.postgres import Postgres

        return cls(Postgres(parsed, connections=pool_size, statement_ms=statement_ms))

    async def migrate(self) -> None:
        """Create or check the tables, and the folder of an SQLite file.

        Several processes may do so concurrently.
        """
        if isinstance(self._database, Sqlite):
            self._database.make_folder()
        await self.writing(_migrate)

    async def writing(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in a transaction that commits at its end and rolls back on any exception.

        If the caller is cancelled, the function is either run and committed or not run at all.

        Raises:
            StoreUnavailable: The database cannot serve now.
        """
        with translate_errors(writing=True, on_error=self._note):
            return await self._database.run(_bind(work, args, kwargs), writing=True)

    async def reading(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function that only reads, on one snapshot.

        Raises:
            StoreUnavailable: The database cannot serve now.
        """
        with translate_errors(on_error=self._note):
            return await self._database.run(_bind(work, args, kwargs), writing=False)

    async def try_write(self, work: Work[[], None], *, seconds: float) -> None:
        """Run a function in a transaction that is rolled back.

        On SQLite it gets a new connection with an empty cache, and its writes reach the disk.

        Raises:
            StoreUnavailable: The database cannot serve, took longer than `seconds`, lacks tables
                that the function needs, or was found damaged by an earlier statement.
        """
        self.check_undamaged()
        slow = Cause.LOCKED if self.dialect == "sqlite" else Cause.UNREACHABLE
        try:
            with translate_errors(writing=True, on_error=self._note):
                async with asyncio.timeout(seconds):
                    await self._database.rolled_back(work)
        except TimeoutError as error:
            raise StoreUnavailable("it did not answer in time", slow) from error
        except DBAPIError as error:
            raise StoreUnavailable("a statement failed", Cause.TABLES) from error

    def check_undamaged(self) -> None:
        """Raise StoreUnavailable if a statement has found the SQLite file damaged.

        Sales in progress may finish, but no new ones start with a damaged file.
        """
        if self._damaged:
            raise StoreUnavailable("a part of it is damaged", Cause.CORRUPT)

    async def close(self) -> None:
        """Close all connections. The next transaction opens new ones."""
        await self._database.close()
        self._damaged = False

    def _note(self, cause: Cause) -> None:
        self._damaged |= cause is Cause.CORRUPT and self.dialect == "sqlite"


def _bind(work: Any, args: Any, kwargs: Any) -> Callable[[sa.Connection], Any]:
    def call(connection: sa.Connection) -> Any:
        try:
            return work(connection, *args, **kwargs)
        except StopIteration as error:  # a future cannot hold it: its caller would wait forever
            raise RuntimeError("work raised StopIteration") from error

    return call


def _migrate(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SET LOCAL statement_timeout = 0"))  # may copy many rows
        # Concurrent starts of several processes migrate one after another.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    create_tables(connection)


def create_tables(connection: sa.Connection) -> None:
    """Create the tables of an empty database.

    Raises:
        UnknownVersionError: The database was created by another build; it is not changed.
    """
    current = version(connection)
    if current == newest_version():
        return
    if current is not None:
        raise UnknownVersionError(
            f"The database has schema version {current}, which this program does not support.",
            hint="It was created by an unreleased version. Export your data with that version, or "
            "start with an empty database.",
        )
    for statement in _read_sql(connection.dialect.name).split(";\n"):
        if statement.strip():
            connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"CREATE TABLE {VERSION_TABLE} (version TEXT NOT NULL)")
    connection.execute(
        sa.text(f"INSERT INTO {VERSION_TABLE} VALUES (:version)"),  # noqa: S608 - a constant
        {"version": newest_version()},
    )


@cache
def newest_version() -> str:
    """Return the version of the tables that this program creates."""
    return hashlib.sha256(_read_sql("sqlite").encode()).hexdigest()[:12]


def version(connection: sa.Connection) -> str | None:
    """Return the version of a database's tables, or None if it is empty.

    The first unreleased builds stored their version elsewhere: it is `unknown`.
    """
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return "unknown" if sa.inspect(connection).has_table("endpoint") else None
    query = sa.text(f"SELECT version FROM {VERSION_TABLE}")  # noqa: S608 - a constant
    return str(connection.execute(query).scalar())


def _read_sql(dialect: str) -> str:
    return files("tollgauge.db").joinpath(f"tables.{dialect}.sql").read_text(encoding="utf-8")


def parse_url(url: str) -> URL:
    """Parse a database URL and choose its driver.

    Raises:
        StoreError: The URL is not supported.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: the port is not a number
        raise StoreError("The database URL cannot be read.", hint=_HINT) from error
    if parsed.drivername not in _DRIVERS:
        raise StoreError(f"The database {parsed.drivername!r} is not supported.", hint=_HINT)
    parsed = parsed.set(drivername=_DRIVERS[parsed.drivername])
    unknown = set() if is_sqlite(parsed) else parsed.query.keys() - _PARAMETERS
    if unknown:
        raise StoreError(
            f"The database URL has unsupported parameters: {', '.join(sorted(unknown))}.",
            hint=f"Supported parameters: {', '.join(sorted(_PARAMETERS))}.",
        )
    return parsed


def is_sqlite(url: URL) -> bool:
    """Return whether a URL is of an SQLite database."""
    return url.drivername.startswith("sqlite")


_HINT: Final = "Use sqlite:///tollgauge.sqlite or postgresql+asyncpg://user@host/database."


_PARAMETERS: Final = frozenset({"host", "port", "ssl", "sslmode"})
"""Parameters of a PostgreSQL URL. `sslmode` is libpq's name for the driver's `ssl`, with the same
values.
"""
