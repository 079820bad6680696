"""PostgreSQL: asyncpg connections in SQLAlchemy's pool.

- A read sees one snapshot (REPEATABLE READ). Writers of one process wait for each other, which
  leaves connections to the readers.
- BEGIN, COMMIT and ROLLBACK go directly to asyncpg and SQLAlchemy is in AUTOCOMMIT mode: its own
  transaction handling takes longer than most transactions.
- A whole transaction, including checkout and return of the connection, runs in one greenlet: each
  of SQLAlchemy's asynchronous calls would start another one.
- A connection lost while idle (the server restarted) is replaced transparently. A connection whose
  caller was cancelled may still be busy and is discarded.
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

from tollgauge.db.database_errors import StoreUnavailable, translate_errors

R = TypeVar("R")

_STATEMENTS: Final = 512
"""Prepared statements cached per connection. Default: 100, fewer than the program uses."""
_WRITE: Final = "BEGIN"
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _RolledBack(Exception):  # noqa: N818 - not an error: it ends a transaction
    """Ends a transaction that must be rolled back."""


class Postgres:
    """A PostgreSQL database with up to `connections` connections.

    The server cancels a statement after `statement_ms` and closes a transaction that is idle for
    twice as long.
    """

    def __init__(self, url: URL, *, connections: int, statement_ms: int) -> None:
        self.dialect: Final = "postgresql"
        self._engine = _engine(url, connections, statement_ms)
        self._write_lock = asyncio.Lock()

    async def run(self, work: Callable[[sa.Connection], R], *, writing: bool) -> R:
        """Run work in its own transaction."""
        async with self._write_lock if writing else nullcontext():
            return await greenlet_spawn(self._run_transaction, work, _WRITE if writing else _READ)

    async def rolled_back(self, work: Callable[[sa.Connection], None]) -> None:
        """Run work in a transaction that is rolled back."""

        def work_and_roll_back(connection: sa.Connection) -> None:
            work(connection)
            raise _RolledBack

        with contextlib.suppress(_RolledBack):
            await self.run(work_and_roll_back, writing=True)

    async def close(self) -> None:
        """Close all connections, those in use at the end of their transactions. The next
        transaction opens new ones.
        """
        await greenlet_spawn(self._engine.dispose)

    def _run_transaction(self, work: Callable[[sa.Connection], R], begin: str) -> R:
        """Run work in a transaction, inside a greenlet."""
        pool = self._engine.pool  # compared below, to notice a close during the transaction
        with translate_errors(connecting=True):
            connection = self._begin(begin)
        try:
            result = work(connection)
            _commit(connection)
        except Exception:  # whatever the work raised
            _roll_back(connection)
            raise
        except BaseException:
            _discard(connection)  # cancelled: a statement may still be running
            raise
        finally:
            if self._engine.pool is not pool:  # the old pool would keep this connection open
                connection.invalidate()
            connection.close()
        return result

    def _begin(self, statement: str) -> sa.Connection:
        """Return a connection with a transaction.

        BEGIN tests the idle connection. If it was lost, the server has restarted and all idle
        connections are lost, so the pool is replaced.
        """
        try:
            return self._connect_and_begin(statement)
        except (StoreUnavailable, asyncpg.PostgresError):
            self._engine.dispose()
            return self._connect_and_begin(statement)

    def _connect_and_begin(self, statement: str) -> sa.Connection:
        connection = self._engine.connect()
        try:
            _execute(connection, statement)
        except BaseException:
            _discard(connection)
            connection.close()
            raise
        return connection


def _asyncpg_connection(connection: sa.Connection) -> Any:
    """Return the asyncpg connection behind SQLAlchemy's.

    Raises:
        InterfaceError: SQLAlchemy has discarded the connection.
    """
    if connection.invalidated:
        raise asyncpg.InterfaceError("the connection was lost")
    return connection.connection.driver_connection


def _execute(connection: sa.Connection, statement: str) -> str:
    """Execute a statement and return the server's command tag.

    Raises:
        StoreUnavailable: The connection was lost.
    """
    try:
        return str(await_only(_asyncpg_connection(connection).execute(statement)))
    except (asyncpg.InterfaceError, OSError) as error:
        raise StoreUnavailable("the connection was lost") from error


def _commit(connection: sa.Connection) -> None:
    """Commit the transaction.

    Raises:
        RuntimeError: The server answered ROLLBACK, as it does after a failed statement: work that
            caught the error would otherwise appear to be committed.
    """
    if _execute(connection, "COMMIT") != "COMMIT":
        raise RuntimeError("a statement of this transaction failed: nothing was written")


def _roll_back(connection: sa.Connection) -> None:
    """Roll back the transaction. A connection that fails to do so is discarded."""
    try:
        _execute(connection, "ROLLBACK")
    except BaseException as error:
        _discard(connection)
        if not isinstance(error, Exception):
            raise


def _discard(connection: sa.Connection) -> None:
    """Close a connection immediately, without waiting for a running statement."""
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
                # Compiling a statement takes a hundred times as long as running one of these.
                "jit": "off",
            },
        },
    )
    return engine.sync_engine
