"""The one place that reaches behind SQLAlchemy, to the database driver's own connection.

SQLAlchemy takes longer to begin a transaction, or to find a row by its key, than the databases do.
Such statements go to sqlite3 or asyncpg themselves; the text and the converted arguments of the
frequent ones are db/prepared's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, cast

import asyncpg
import sqlalchemy as sa
from sqlalchemy.util import await_only

from tollgauge.db.database_errors import StoreUnavailable

Arguments = Sequence[Any]
"""The values of a statement's parameters, in their order."""


def sqlite_connection(connection: sa.Connection) -> sqlite3.Connection:
    """The sqlite3 connection behind SQLAlchemy's."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def asyncpg_connection(connection: sa.Connection) -> Any:
    """The asyncpg connection behind SQLAlchemy's. Raises asyncpg's InterfaceError if SQLAlchemy
    has already discarded it.
    """
    if connection.invalidated:
        raise asyncpg.InterfaceError("the connection was lost")
    return connection.connection.driver_connection


def fetch(connection: sa.Connection, text: str, arguments: Arguments) -> Sequence[Any]:
    """The rows of a SELECT, as the driver returns them."""
    if connection.dialect.name == "sqlite":
        return sqlite_connection(connection).execute(text, arguments).fetchall()
    rows: Sequence[Any] = _await_asyncpg(connection, "fetch", text, *arguments)
    return rows


def execute(connection: sa.Connection, text: str, arguments: Arguments) -> int:
    """Run an INSERT, UPDATE or DELETE; the number of rows that it changed."""
    if connection.dialect.name == "sqlite":
        return sqlite_connection(connection).execute(text, arguments).rowcount
    status: str = _await_asyncpg(connection, "execute", text, *arguments)
    return int(status.rpartition(" ")[2])  # such as "INSERT 0 1"


def execute_many(connection: sa.Connection, text: str, rows: Sequence[Arguments]) -> None:
    """Run one statement for several rows."""
    if connection.dialect.name == "sqlite":
        sqlite_connection(connection).executemany(text, rows)
    else:
        _await_asyncpg(connection, "executemany", text, rows)


def _await_asyncpg(connection: sa.Connection, method: str, *arguments: Any) -> Any:
    """Call an asyncpg method from the plain function that `AsyncConnection.run_sync` runs. Raises
    StoreUnavailable if the connection is lost.
    """
    dbapi_connection: Any = connection.connection.dbapi_connection
    driver = dbapi_connection.driver_connection
    try:
        return await_only(getattr(driver, method)(*arguments))
    except (asyncpg.InterfaceError, OSError) as error:
        if not driver.is_closed():
            raise
        raise StoreUnavailable("the connection was lost") from error
