"""PostgreSQL: connections beside the event loop.

Rules:
- a read sees one moment (REPEATABLE READ); writers of one process take turns, so that they leave
  connections to the readers;
- transactions are begun and ended by the driver, and SQLAlchemy runs its statements inside them as
  if there were none: its own way to begin and to end one costs more than most transactions do;
- a connection that stood idle is tried by beginning: one that was lost meanwhile (the server
  restarted) is replaced, and nobody notices. One whose caller was cancelled may still be at work
  and is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final, TypeVar

import asyncpg
import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

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
        self._turn = asyncio.Lock()
        self._free = asyncio.Semaphore(connections)
        self._idle: list[AsyncConnection] = []
        self._closed = False

    @asynccontextmanager
    async def transaction(self, *, writing: bool) -> AsyncIterator[Transaction]:
        """A transaction."""
        async with self._begun(writing=writing) as connection:
            tx = Transaction(self.dialect, connection.run_sync)
            try:
                yield tx
            finally:
                tx.end()

    async def once(self, work: Callable[[sa.Connection], R], *, writing: bool) -> R:
        """Work in a transaction of its own."""
        async with self._begun(writing=writing) as connection:
            return await connection.run_sync(work)

    async def lookup(self, work: Callable[[sa.Connection], R]) -> R:
        """Read a few rows, as any others."""
        return await self.once(work, writing=False)

    async def rolled_back(self, work: Callable[[sa.Connection], None]) -> None:
        """Work in a transaction of which nothing stays."""
        with contextlib.suppress(_RolledBack):
            async with self._begun(writing=True) as connection:
                await connection.run_sync(work)
                raise _RolledBack

    async def close(self) -> None:
        """Close every connection; those at work when they are done."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()
        await self._engine.dispose()

    @asynccontextmanager
    async def _begun(self, *, writing: bool) -> AsyncIterator[AsyncConnection]:
        async with self._turn if writing else nullcontext():
            await self._take_place()
            try:
                with translated(connecting=True):
                    connection = await self._begin(_WRITE if writing else _READ)
                try:
                    yield connection
                    await _commit(connection)
                except Exception:  # whatever the work raised is its caller's; nothing of it stays
                    await self._undo(connection)
                    raise
                except BaseException:
                    await _give_up(connection)
                    raise
                await self._keep(connection)
            finally:
                self._free.release()

    async def _take_place(self) -> None:
        """Wait for a connection. Raises SQLAlchemy's TimeoutError, as its pools do."""
        try:
            async with asyncio.timeout(_STATEMENT_MS / 1_000 if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError as error:
            raise sa.exc.TimeoutError("every connection is in use") from error

    async def _begin(self, words: str) -> AsyncConnection:
        """A connection with a transaction begun: one that nobody holds, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            try:
                await _say(connection, words)
            except BaseException as error:
                await _give_up(connection)
                if not isinstance(error, Exception):
                    raise
            else:
                return connection
        connection = await self._engine.connect()
        try:
            await _say(connection, words)
        except BaseException:
            await _give_up(connection)
            raise
        return connection

    async def _undo(self, connection: AsyncConnection) -> None:
        """End a transaction as if it had not been; with its connection, where that was lost."""
        try:
            await _say(connection, "ROLLBACK")
        except BaseException as error:
            await _give_up(connection)
            if not isinstance(error, Exception):
                raise
        else:
            await self._keep(connection)

    async def _keep(self, connection: AsyncConnection) -> None:
        """Let a connection wait for the next transaction, unless there will be none."""
        if self._closed:
            await connection.close()
        else:
            self._idle.append(connection)


def _driver(connection: AsyncConnection) -> Any:
    """The driver's own connection. Raises its InterfaceError where SQLAlchemy gave it up."""
    found = connection.sync_connection
    if found is None or found.invalidated:
        raise asyncpg.InterfaceError("the connection was lost")
    return found.connection.driver_connection


async def _say(connection: AsyncConnection, words: str) -> str:
    """What the server answers. Raises StoreUnavailable when the connection was lost."""
    try:
        return str(await _driver(connection).execute(words))
    except (asyncpg.InterfaceError, OSError) as error:
        raise StoreUnavailable("the connection was lost") from error


async def _commit(connection: AsyncConnection) -> None:
    """End a transaction. The server answers ROLLBACK where a statement had failed: work that lets
    such an error pass would believe itself done.
    """
    if await _say(connection, "COMMIT") != "COMMIT":
        raise RuntimeError("a statement of this transaction failed: nothing was written")


async def _give_up(connection: AsyncConnection) -> None:
    """End a connection at once, whatever it is at."""
    found = connection.sync_connection
    if found is not None and not found.invalidated:
        _driver(connection).terminate()
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
