"""Which errors of a database driver mean "not now", and the one error that says so.

Rules: a locked file, a full disk, a lost connection or a time-out
says nothing about the work that was asked; callers answer 503 and try again. Everything else (a
wrong statement, a broken constraint) is a fault of ours and passes through.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg
from asyncpg.exceptions import InternalClientError
from sqlalchemy import exc

from tollgauge.core.errors import TollgaugeError

_SQLITE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
    }
)
"""Primary result codes, https://sqlite.org/rescode.html."""

_POSTGRES_CLASSES: Final = ("08", "25P0", "3D", "28", "40", "53", "55P03", "57", "58")
"""Prefixes of SQLSTATE: connection, idle time-out, no such database, login, rollback, resources,
lock not available, operator intervention (statement time-out, shutdown) and system errors.
"""


class StoreUnavailable(TollgaugeError):  # noqa: N818 (named for what callers see)
    """The database cannot serve now; the transaction did not happen, or (only when the commit
    itself was cut off) cannot be known to have happened.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The database is not available: {reason}.",
            hint="Try again soon; if it stays, look at the database's disk, locks and log.",
        )


@contextmanager
def translated(*, connecting: bool = False) -> Iterator[None]:
    """Turn a driver's "not now" into StoreUnavailable. While `connecting`, errors of the socket
    count too; they may not, later, because the body of a transaction is not only the database's.
    """
    try:
        yield
    except exc.SQLAlchemyError as error:
        reason = _reason(error)
        if reason is None:
            raise
        raise StoreUnavailable(reason) from error
    except (sqlite3.Error, asyncpg.PostgresError) as error:
        reason = _driver_reason(error)
        if reason is None:
            raise
        raise StoreUnavailable(reason) from error
    except InternalClientError as error:  # its server went away in the middle
        raise StoreUnavailable("the connection was lost") from error
    except Exception as error:
        reason = _connect_reason(error) if connecting else None
        if reason is None:
            raise
        raise StoreUnavailable(reason) from error


def _reason(error: exc.SQLAlchemyError) -> str | None:
    if isinstance(error, exc.TimeoutError):
        return "all connections are in use"
    if not isinstance(error, exc.DBAPIError):
        return None
    origin = error.orig
    if isinstance(origin, sqlite3.Error):
        return _driver_reason(origin)
    gone = origin is not None and isinstance(origin.__cause__, InternalClientError)
    if error.connection_invalidated or gone:
        return "the connection was lost"
    return _state_reason(getattr(origin, "sqlstate", None))


def _driver_reason(error: sqlite3.Error | asyncpg.PostgresError) -> str | None:
    if isinstance(error, asyncpg.PostgresError):
        return _state_reason(error.sqlstate)
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    return name if code is not None and code & 0xFF in _SQLITE else None


def _connect_reason(error: Exception) -> str | None:
    if isinstance(error, OSError):  # refused, no such socket, timed out
        return "no connection"
    if isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError):
        return "the connection was lost"  # a ValueError: the driver was asked for the wrong thing
    return _state_reason(getattr(error, "sqlstate", None))


def _state_reason(state: object) -> str | None:
    if isinstance(state, str) and state.startswith(_POSTGRES_CLASSES):
        return f"SQLSTATE {state}"
    return None
