"""A SQLite connection that crosses to its thread once a statement.

The driver (aiosqlite) runs every small step of a statement on the connection's thread: making the
cursor, executing, fetching, closing. A crossing costs as much as a small query, and a sale has
dozens of those, so here executing fetches and closes as well. Longer results stay open and are
fetched in parts, so that a stream is never held whole.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

import aiosqlite

T = TypeVar("T")
Row = tuple[Any, ...]

PART: Final = 1_000
"""How many rows are fetched at once."""
_STATEMENTS: Final = 512
"""How many compiled statements a connection keeps; the driver's default is 128."""


class Connection(aiosqlite.Connection):
    """The driver's connection with cursors that know their rows."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=PART)
        self._thread.daemon = True
        self._begun = 0
        self._ended = 0

    def cursor(self) -> Cursor:  # type: ignore[override]  # SQLAlchemy only opens and awaits it
        """A cursor; nothing happens before it executes."""
        return Cursor(self)

    async def on_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run some work on the connection, on its thread. It goes on when the caller is gone."""
        self._begun += 1
        # The driver writes no types for it.
        made: T = await self._execute(self._done, work)  # type: ignore[no-untyped-call]
        return made

    def _done(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._conn)
        finally:
            self._ended += 1  # by the thread alone, as the other is counted by the loop alone

    async def rollback(self) -> None:
        """End the transaction, where there is one: the pool asks after each commit as well."""
        if self._begun != self._ended or self._conn.in_transaction:
            await super().rollback()


class Cursor:
    """One statement and its rows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._open: sqlite3.Cursor | None = None
        self._rows: deque[Row] = deque()
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement and take the first part of its rows."""
        await self._connection.on_thread(
            lambda connection: self._take(connection.execute(sql, parameters))
        )

    async def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of many parameters."""
        await self._connection.on_thread(
            lambda connection: self._take(connection.executemany(sql, parameters))
        )

    def _take(self, made: sqlite3.Cursor) -> None:
        self.description = made.description
        if made.description:
            self._more(made)
        self.rowcount, self.lastrowid = made.rowcount, made.lastrowid
        if self._open is None:
            made.close()

    def _more(self, made: sqlite3.Cursor) -> None:
        part = made.fetchmany(PART)
        self._rows.extend(part)
        self._open = made if len(part) == PART else None

    async def _refill(self) -> None:
        """One more part of the rows, if there is any."""
        held = self._open
        if held is not None:
            await self._connection.on_thread(lambda _: self._more(held))

    async def fetchone(self) -> Row | None:
        """The next row, None after the last."""
        if not self._rows:
            await self._refill()
        return self._rows.popleft() if self._rows else None

    async def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next rows."""
        wanted = size or self.arraysize
        while len(self._rows) < wanted and self._open is not None:
            await self._refill()
        return [self._rows.popleft() for _ in range(min(wanted, len(self._rows)))]

    async def fetchall(self) -> list[Row]:
        """All rows that are left."""
        held = self._open
        if held is not None:
            self._open = None
            self._rows.extend(await self._connection.on_thread(lambda _: held.fetchall()))
        found = list(self._rows)
        self._rows.clear()
        return found

    async def close(self) -> None:
        """Let go of what was not fetched."""
        self._rows.clear()
        held, self._open = self._open, None
        if held is not None:
            await self._connection.on_thread(lambda _: held.close())


def connect(database: str, **options: Any) -> Connection:
    """A connection to be awaited, as `aiosqlite.connect` makes one."""
    return Connection(
        partial(sqlite3.connect, database, **{"cached_statements": _STATEMENTS, **options})
    )
