"""PostgreSQL: connections of asyncpg, used through SQLAlchemy.

Rules:
- a read sees one moment (REPEATABLE READ); writers of one process wait for each other, so that
  they leave connections to the readers;
- BEGIN, COMMIT and ROLLBACK go to asyncpg itself (db/driver), and SQLAlchemy is in AUTOCOMMIT mode:
  its own way to begin and end a transaction takes longer than most transactions do;
- BEGIN is also the test of a connection that was idle: one that was lost meanwhile (the server
  restarted) is replaced. One whose caller was cancelled may still be at work and is discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Final, TypeVar

import asyncpg
import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from tollgauge.db.driver import asyncpg_connection
from tollgauge.db.errors import StoreUnavailable, translated
from tollgauge.db.transaction import Transaction

R = TypeVar("R")

_STATEMENT_MS: Final = 30_000
_WRITE: Final = "BEGIN"
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _RolledBack(Exception):  # noqa: N818 - not an error: it ends a transaction
    """Ends a transaction of which nothing should stay."""


class Postgres:
    """A PostgreSQL database with up to `connections` at once."""

    def __init__(self, url: URL, *, connections: int) -> None:
        self.dialect: Final = "postgresql"
        self._engine = _engine(url)
        self._write_lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[AsyncConnection] = []
        self._closed = False

    @asynccontextmanager
    async def transaction(self, *, writing: bool) -> AsyncIterator[Transaction]:
        """A transaction of several statements."""
        async with self._connection(writing=writing) as connection:
            tx = Transaction(self.dialect, connection.run_sync)
            try:
                yield tx
            finally:
                tx.end()

    async def run(self, work: Callable[[sa.Connection], R], *, writing: bool) -> R:
        """Run work in a transaction of its own."""
        async with self._connection(writing=writing) as connection:
            return await connection.run_sync(work)

    async def lookup(self, work: Callable[[sa.Connection], R]) -> R:
        """Read a few rows, as `run` does."""
        return await self.run(work, writing=False)

    async def rolled_back(self, work: Callable[[sa.Connection], None]) -> None:
        """Run work in a transaction that is rolled back."""
        with contextlib.suppress(_RolledBack):
            async with self._connection(writing=True) as connection:
                await connection.run_sync(work)
                raise _RolledBack

    async def close(self) -> None:
        """Close every connection; those in use when their transactions end."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()
        await self._engine.dispose()

    @asynccontextmanager
    async def _connection(self, *, writing: bool) -> AsyncIterator[AsyncConnection]:
        async with self._write_lock if writing else nullcontext():
            await self._acquire_slot()
            try:
                with translated(connecting=True):
                    connection = await self._begin(_WRITE if writing else _READ)
                try:
                    yield connection
                    await _commit(connection)
                except Exception:  # whatever the work raised
                    await self._roll_back(connection)
                    raise
                except BaseException:
                    await _discard(connection)
                    raise
                await self._put_back(connection)
            finally:
                self._slots.release()

    async def _acquire_slot(self) -> None:
        """Wait for a free connection. Raises SQLAlchemy's TimeoutError, as its pools do."""
        try:
            async with asyncio.timeout(_STATEMENT_MS / 1_000 if self._slots.locked() else None):
                await self._slots.acquire()
        except TimeoutError as error:
            raise sa.exc.TimeoutError("every connection is in use") from error

    async def _begin(self, begin_statement: str) -> AsyncConnection:
        """A connection, idle or new, with a transaction begun."""
        while self._idle:
            connection = self._idle.pop()
            try:
                await _execute(connection, begin_statement)
            except BaseException as error:
                await _discard(connection)
                if not isinstance(error, Exception):
                    raise
            else:
                return connection
        connection = await self._engine.connect()
        try:
            await _execute(connection, begin_statement)
        except BaseException:
            await _discard(connection)
            raise
        return connection

    async def _roll_back(self, connection: AsyncConnection) -> None:
        """Roll back the transaction; a connection that cannot do that is discarded."""
        try:
            await _execute(connection, "ROLLBACK")
        except BaseException as error:
            await _discard(connection)
            if not isinstance(error, Exception):
                raise
        else:
            await self._put_back(connection)

    async def _put_back(self, connection: AsyncConnection) -> None:
        """Keep a connection for the next transaction, unless the database was closed."""
        if self._closed:
            await connection.close()
        else:
            self._idle.append(connection)


async def _execute(connection: AsyncConnection, statement: str) -> str:
    """The server's command tag for a statement. Raises StoreUnavailable if the connection was
    lost.
    """
    try:
        return str(await asyncpg_connection(connection).execute(statement))
    except (asyncpg.InterfaceError, OSError) as error:
        raise StoreUnavailable("the connection was lost") from error


async def _commit(connection: AsyncConnection) -> None:
    """Commit. Raises RuntimeError if the server answers ROLLBACK, as it does after a statement
    failed: work that caught that error would otherwise pass for committed.
    """
    if await _execute(connection, "COMMIT") != "COMMIT":
        raise RuntimeError("a statement of this transaction failed: nothing was written")


async def _discard(connection: AsyncConnection) -> None:
    """Close a connection at once, without waiting for a statement that it still runs."""
    with contextlib.suppress(asyncpg.InterfaceError):  # SQLAlchemy has discarded it already
        asyncpg_connection(connection).terminate()
    await connection.invalidate()
    await connection.close()


def _engine(url: URL) -> AsyncEngine:
    query = {"ssl" if name == "sslmode" else name: value for name, value in url.query.items()}
    return create_async_engine(
        url.set(query=query),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={
            "timeout": 10,
            "server_settings": {
                "application_name": "tollgauge",
                "statement_timeout": str(_STATEMENT_MS),
                "idle_in_transaction_session_timeout": str(2 * _STATEMENT_MS),
            },
        },
    )
