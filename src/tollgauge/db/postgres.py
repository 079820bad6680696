"""PostgreSQL: connections of asyncpg in SQLAlchemy's pool.

Rules:
- a read sees one moment (REPEATABLE READ); writers of one process wait for each other, so that
  they leave connections to the readers;
- BEGIN, COMMIT and ROLLBACK go to asyncpg itself, and SQLAlchemy is in AUTOCOMMIT mode:
  its own way to begin and end a transaction takes longer than most transactions do;
- a whole transaction, from the pool and back, runs in one greenlet: each of SQLAlchemy's own
  asynchronous calls would begin another;
- a connection that was lost while it was idle (the server restarted) is replaced unnoticed. One
  whose caller was cancelled may still be at work and is discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final, TypeVar

import asyncpg
import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.util import await_only, greenlet_spawn

from tollgauge.db.database_errors import StoreUnavailable, translated

R = TypeVar("R")

_STATEMENTS: Final = 512
"""Prepared statements that SQLAlchemy keeps per connection. Default: 100, fewer than there are."""
_WRITE: Final = "BEGIN"
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _RolledBack(Exception):  # noqa: N818 - not an error: it ends a transaction
    """Ends a transaction of which nothing should stay."""


class Postgres:
    """A PostgreSQL database with up to `connections` at once; the server ends a statement that
    takes longer than `statement_ms`, and a transaction that stands idle for twice as long.
    """

    def __init__(self, url: URL, *, connections: int, statement_ms: int) -> None:
        self.dialect: Final = "postgresql"
        self._engine = _engine(url, connections, statement_ms)
        self._write_lock = asyncio.Lock()

    async def run(self, work: Callable[[sa.Connection], R], *, writing: bool) -> R:
        """Run work in a transaction of its own."""
        async with self._write_lock if writing else nullcontext():
            return await greenlet_spawn(self._run_transaction, work, _WRITE if writing else _READ)

    async def rolled_back(self, work: Callable[[sa.Connection], None]) -> None:
        """Run work in a transaction that is rolled back."""

        def work_in_vain(connection: sa.Connection) -> None:
            work(connection)
            raise _RolledBack

        with contextlib.suppress(_RolledBack):
            await self.run(work_in_vain, writing=True)

    async def close(self) -> None:
        """Close every connection, those in use when their transactions end; the next transaction
        opens another.
        """
        await greenlet_spawn(self._engine.dispose)

    def _run_transaction(self, work: Callable[[sa.Connection], R], begin: str) -> R:
        """In a greenlet: take a connection, begin, work, and commit, or roll back on any error."""
        pool = self._engine.pool  # a close while we connect counts too
        with translated(connecting=True):
            connection = self._begin(begin)
        try:
            result = work(connection)
            _commit(connection)
        except Exception:  # whatever the work raised
            _roll_back(connection)
            raise
        except BaseException:
            _discard(connection)
            raise
        finally:
            if self._engine.pool is not pool:  # it was closed, and would leave this one open
                connection.invalidate()
            connection.close()
        return result

    def _begin(self, statement: str) -> sa.Connection:
        """A connection with a transaction begun. BEGIN is the test of an idle connection: where it
        was lost, the server restarted, and all idle ones are lost.
        """
        try:
            return self._begun(statement)
        except (StoreUnavailable, asyncpg.PostgresError):
            self._engine.dispose()
            return self._begun(statement)

    def _begun(self, statement: str) -> sa.Connection:
        connection = self._engine.connect()
        try:
            _execute(connection, statement)
        except BaseException:
            _discard(connection)
            connection.close()
            raise
        return connection


def _asyncpg_connection(connection: sa.Connection) -> Any:
    """Return the asyncpg connection behind SQLAlchemy's. Raises InterfaceError if SQLAlchemy has
    discarded it.
    """
    if connection.invalidated:
        raise asyncpg.InterfaceError("the connection was lost")
    return connection.connection.driver_connection


def _execute(connection: sa.Connection, statement: str) -> str:
    """The server's command tag for a statement. Raises StoreUnavailable if the connection was
    lost.
    """
    try:
        return str(await_only(_asyncpg_connection(connection).execute(statement)))
    except (asyncpg.InterfaceError, OSError) as error:
        raise StoreUnavailable("the connection was lost") from error


def _commit(connection: sa.Connection) -> None:
    """Commit. Raises RuntimeError if the server answers ROLLBACK, as it does after a statement
    failed: work that caught that error would otherwise pass for committed.
    """
    if _execute(connection, "COMMIT") != "COMMIT":
        raise RuntimeError("a statement of this transaction failed: nothing was written")


def _roll_back(connection: sa.Connection) -> None:
    """Roll back the transaction; a connection that cannot do that is discarded."""
    try:
        _execute(connection, "ROLLBACK")
    except BaseException as error:
        _discard(connection)
        if not isinstance(error, Exception):
            raise


def _discard(connection: sa.Connection) -> None:
    """Close a connection at once, without waiting for a statement that it still runs."""
    with contextlib.suppress(asyncpg.InterfaceError):  # SQLAlchemy has discarded it already
        _asyncpg_connection(connection).terminate()
    connection.invalidate()


def _engine(url: URL, connections: int, statement_ms: int) -> sa.Engine:
    query = {"ssl" if name == "sslmode" else name: value for name, value in url.query.items()}
    engine = create_async_engine(
        url.set(query=query),
        isolation_level="AUTOCOMMIT",
        pool_size=connections,
        max_overflow=0,
        pool_timeout=statement_ms / 1_000,
        pool_reset_on_return=None,  # every transaction is ended above
        connect_args={
            "timeout": 10,
            "prepared_statement_cache_size": _STATEMENTS,
            "server_settings": {
                "application_name": "tollgauge",
                "statement_timeout": str(statement_ms),
                "idle_in_transaction_session_timeout": str(2 * statement_ms),
                # To compile a statement takes a hundred times as long as to run any of ours.
                "jit": "off",
            },
        },
    )
    return engine.sync_engine
