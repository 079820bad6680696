"""Store: one database, SQLite or PostgreSQL, and its transactions.

Rules:
- all writing happens in `write()`, all reading in `read()`; a read sees one moment of the
  database from its first statement to its end (a WAL snapshot, or REPEATABLE READ);
- on SQLite a writer says BEGIN IMMEDIATE: a transaction that reads first and then
  wants to write would fail as busy, whatever its time-out. The driver never begins by itself;
- writers of one process queue in a lock here instead of spinning on the file's;
- `synchronous=FULL`: what was committed survives a power cut;
- a database that cannot serve now (locked, full, gone, too slow) is `StoreUnavailable`, decided
  in store/faults.py; a statement that is wrong stays the driver's own error.

What the rows mean is the sibling modules' work; each takes a transaction as its first argument.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass
from typing import Any, Final, Self

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from tollgauge.core.errors import TollgaugeError
from tollgauge.store import sqlite
from tollgauge.store.faults import StoreUnavailable, translated
from tollgauge.store.migrations import upgrade

__all__ = ["Store", "StoreError", "StoreSettings", "StoreUnavailable"]

_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
_BUSY_MS: Final = 5_000
_STATEMENT_MS: Final = 30_000
_MIGRATION_LOCK: Final = 8_402_402
_BEGIN: Final = "tollgauge_begin"
_IN_MEMORY: Final = frozenset({None, "", ":memory:"})


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
        return is_sqlite(url) and url.database in _IN_MEMORY


class Store:
    """An open database. `dialect` is `sqlite` or `postgresql`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.dialect: Final = engine.dialect.name
        self._engine: Final = engine
        self._turn: Final = asyncio.Lock()
        # An in-memory database has one connection, which readers and writers take in turns.
        self._read_turn: Final[AbstractAsyncContextManager[None] | None] = (
            self._turn if isinstance(engine.pool, StaticPool) else None
        )
        if self.dialect == "sqlite":
            self._reader = engine
            self._writer = engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
        else:
            self._reader = engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            self._writer = engine

    @classmethod
    def open(cls, url: str, *, pool_size: int = 8) -> Self:
        """The store behind a URL: `sqlite:///file`, `sqlite://` (in memory), or
        `postgresql://…`; the async driver's name may be spelled out. Nothing is connected yet.

        Raises StoreError for any other URL.
        """
        parsed = parse_url(url)
        if is_sqlite(parsed):
            return cls(_sqlite(parsed, pool_size))
        return cls(_postgres(parsed, pool_size))

    async def migrate(self) -> None:
        """Bring the tables to the newest version. Safe to call from several processes at once,
        and again.
        """
        async with self.write() as tx:
            if self.dialect == "postgresql":
                await tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            await tx.run_sync(upgrade)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may write; it commits at the end, or rolls back on any exception.

        Raises StoreUnavailable when the database cannot serve now.
        """
        async with self._turn, self._transaction(self._writer) as tx:
            yield tx

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads, all of it as of one moment.

        On an in-memory database do not nest it inside a `write` of the same task.
        Raises StoreUnavailable when the database cannot serve now.
        """
        async with self._read_turn or nullcontext(), self._transaction(self._reader) as tx:
            yield tx

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        with translated():
            async with AsyncExitStack() as stack:
                with translated(connecting=True):
                    tx = await stack.enter_async_context(engine.begin())
                yield tx


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


class _Connection(sqlite3.Connection):
    """Closing one ends its transaction at once. SQLite would keep it, with its lock on the
    database, for as long as a statement of it exists, and the traceback of a cancelled task may
    hold one until the next garbage collection.
    """

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self.in_transaction:
                self.rollback()
        super().close()


_CONNECTING: Final = {"factory": _Connection, "async_creator_fn": sqlite.connect}


def _sqlite(url: URL, pool_size: int) -> AsyncEngine:
    memory = url.database in _IN_MEMORY
    pool: dict[str, Any] = (
        {"poolclass": StaticPool} if memory else {"pool_size": pool_size, "max_overflow": 0}
    )
    engine = create_async_engine(url, connect_args=_CONNECTING, **pool)
    sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    sa.event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    """`isolation_level = None` stops the driver from beginning transactions of its own. The page
    size holds for a new file only: packed days overflow 4 KB pages.
    """
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {_BUSY_MS}",
        "page_size = 16384",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "cache_size = -32768",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    connection.exec_driver_sql(options.get(_BEGIN, "BEGIN"))


def _postgres(url: URL, pool_size: int) -> AsyncEngine:
    query = {"ssl" if name == "sslmode" else name: value for name, value in url.query.items()}
    return create_async_engine(
        url.set(query=query),
        pool_size=pool_size,
        max_overflow=0,
        pool_pre_ping=True,
        pool_timeout=_STATEMENT_MS / 1_000,
        connect_args={
            "timeout": 10,
            "server_settings": {
                "application_name": "tollgauge",
                "statement_timeout": str(_STATEMENT_MS),
                "idle_in_transaction_session_timeout": str(2 * _STATEMENT_MS),
            },
        },
    )
