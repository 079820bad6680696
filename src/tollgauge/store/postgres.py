"""PostgreSQL: connections beside the event loop. A read sees one moment (REPEATABLE READ); writers
of one process take turns, so that they leave connections to the readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tollgauge.store.faults import translated
from tollgauge.store.transaction import Transaction

R = TypeVar("R")

_STATEMENT_MS: Final = 30_000


class Postgres:
    """A PostgreSQL database with up to `connections` at once."""

    def __init__(self, url: URL, *, connections: int) -> None:
        self.dialect: Final = "postgresql"
        self._turn = asyncio.Lock()
        self._writer = _engine(url, connections)
        self._reader = self._writer.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

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

    async def close(self) -> None:
        """Close every connection."""
        await self._writer.dispose()

    @asynccontextmanager
    async def _begun(self, *, writing: bool) -> AsyncIterator[AsyncConnection]:
        engine = self._writer if writing else self._reader
        async with AsyncExitStack() as stack:
            if writing:
                await stack.enter_async_context(self._turn)
            with translated(connecting=True):
                connection = await stack.enter_async_context(engine.begin())
            yield connection


def _engine(url: URL, connections: int) -> AsyncEngine:
    query = {"ssl" if name == "sslmode" else name: value for name, value in url.query.items()}
    return create_async_engine(
        url.set(query=query),
        pool_size=connections,
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
