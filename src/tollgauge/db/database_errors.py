"""Which errors of a database driver mean "not now", and the one error that says so.

A locked file, a full disk, a lost connection or a time-out says nothing about the work itself:
callers answer 503 or try again later. Everything else (a wrong statement, a violated constraint) is
a fault of ours and stays the driver's own error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

import asyncpg
from asyncpg.exceptions import InternalClientError
from sqlalchemy import exc

from tollgauge.core.base.errors import TollgaugeError


class Cause(StrEnum):
    """Why a database cannot serve, as an operator would say it."""

    CORRUPT = "corrupt"
    FULL = "full"
    LOCKED = "locked"
    READ_ONLY = "read-only"
    TABLES = "wrong-tables"
    UNREACHABLE = "unreachable"


_SQLITE: Final = {
    sqlite3.SQLITE_BUSY: Cause.LOCKED,
    sqlite3.SQLITE_LOCKED: Cause.LOCKED,
    sqlite3.SQLITE_PROTOCOL: Cause.LOCKED,
    sqlite3.SQLITE_CORRUPT: Cause.CORRUPT,
    sqlite3.SQLITE_NOTADB: Cause.CORRUPT,
    sqlite3.SQLITE_FULL: Cause.FULL,
    sqlite3.SQLITE_READONLY: Cause.READ_ONLY,
    sqlite3.SQLITE_IOERR: Cause.UNREACHABLE,
    sqlite3.SQLITE_NOMEM: Cause.UNREACHABLE,
    sqlite3.SQLITE_CANTOPEN: Cause.UNREACHABLE,
}
"""Primary result codes, https://sqlite.org/rescode.html."""
_SQLITE_FULL: Final = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
"""Extended codes for a quota or a limit on the size of a file; SQLITE_FULL is ENOSPC alone."""

_POSTGRES: Final = (
    ("53100", Cause.FULL),
    ("53", Cause.UNREACHABLE),
    ("25P0", Cause.LOCKED),
    ("40", Cause.LOCKED),
    ("55P03", Cause.LOCKED),
    ("57014", Cause.LOCKED),
    ("42P01", Cause.TABLES),
    ("XX001", Cause.CORRUPT),
    ("XX002", Cause.CORRUPT),
    ("08", Cause.UNREACHABLE),
    ("3D", Cause.UNREACHABLE),
    ("28", Cause.UNREACHABLE),
    ("57", Cause.UNREACHABLE),
    ("58", Cause.UNREACHABLE),
)
"""Prefixes of SQLSTATE (PostgreSQL, appendix A), the first that fits counts: disk full, other
resources, idle time-out, rollback, lock not available, statement time-out, no such table, damaged
data or index, connection, no such database, login, operator intervention (shutdown) and system
errors.
"""

_READ_ONLY: Final = "25006"
"""SQLSTATE read_only_sql_transaction: the server is a standby, or was told to take no writes. In a
transaction of ours that only reads, it is a fault of ours: a function under `reading` writes.
"""

_Reason = tuple[str, Cause]
"""What went wrong, for our log, and its cause."""


class StoreUnavailable(TollgaugeError):  # noqa: N818 (named for what callers see)
    """The database cannot serve now. The transaction was not committed; only if the connection was
    lost during the commit itself, that is unknown.
    """

    def __init__(self, reason: str, cause: Cause = Cause.UNREACHABLE) -> None:
        super().__init__(
            f"The database is not available: {reason}.",
            hint="Try again soon; if it stays, look at the database's disk, locks and log.",
        )
        self.cause: Final = cause


@contextmanager
def translated(
    *,
    connecting: bool = False,
    writing: bool = False,
    on_error: Callable[[Cause], None] | None = None,
) -> Iterator[None]:
    """Raise StoreUnavailable in place of a driver's error that means "not now"; `on_error` is
    called with its cause. While `connecting`, errors of sockets count too; later they do not,
    because code inside a transaction block may have sockets of its own. While `writing`, a server
    that takes no writes counts.
    """
    try:
        yield
    except Exception as error:  # what is not the database's is raised again
        reason = _reason(error) or (_connect_reason(error) if connecting else None)
        if writing and _sqlstate(error) == _READ_ONLY:
            reason = (f"SQLSTATE {_READ_ONLY}", Cause.READ_ONLY)
        if reason is None:
            raise
        text, cause = reason
        if on_error is not None:
            on_error(cause)
        raise StoreUnavailable(text, cause) from error


def _reason(error: Exception) -> _Reason | None:
    if isinstance(error, exc.SQLAlchemyError):
        return _sqlalchemy_reason(error)
    if isinstance(error, sqlite3.Error | asyncpg.PostgresError):
        return _driver_reason(error)
    if isinstance(error, InternalClientError):  # the server went away during a reply
        return _LOST
    return None


def _sqlstate(error: Exception) -> object:
    """The SQLSTATE of an error of asyncpg, or of one of SQLAlchemy around it."""
    origin = error.orig if isinstance(error, exc.DBAPIError) else error
    return getattr(origin, "sqlstate", None)


_LOST: Final = ("the connection was lost", Cause.UNREACHABLE)


def _sqlalchemy_reason(error: exc.SQLAlchemyError) -> _Reason | None:
    if isinstance(error, exc.TimeoutError):
        return "all connections are in use", Cause.LOCKED
    if not isinstance(error, exc.DBAPIError):
        return None
    origin = error.orig
    if isinstance(origin, sqlite3.Error):
        return _driver_reason(origin)
    if error.connection_invalidated or (origin is not None and _is_lost(origin.__cause__)):
        return _LOST
    return _sqlstate_reason(getattr(origin, "sqlstate", None))


def _is_lost(error: BaseException | None) -> bool:
    """Whether asyncpg says with an error that its connection is gone."""
    closed = isinstance(error, asyncpg.InterfaceError) and "connection is closed" in str(error)
    return closed or isinstance(error, InternalClientError)


def _driver_reason(error: sqlite3.Error | asyncpg.PostgresError) -> _Reason | None:
    if isinstance(error, asyncpg.PostgresError):
        return _sqlstate_reason(error.sqlstate)
    code = getattr(error, "sqlite_errorcode", None)
    cause = None if code is None else _SQLITE.get(code & 0xFF)
    if code == sqlite3.SQLITE_ERROR and str(error).startswith("no such table"):
        cause = Cause.TABLES
    if cause is None:
        return None
    name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    return name, Cause.FULL if code in _SQLITE_FULL else cause


def _connect_reason(error: Exception) -> _Reason | None:
    if isinstance(error, OSError):  # refused, no such socket, timed out
        return "no connection", Cause.UNREACHABLE
    if isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError):
        return _LOST  # a ValueError is a wrong argument of ours
    return _sqlstate_reason(getattr(error, "sqlstate", None))


def _sqlstate_reason(sqlstate: object) -> _Reason | None:
    if not isinstance(sqlstate, str):
        return None
    cause = next((cause for prefix, cause in _POSTGRES if sqlstate.startswith(prefix)), None)
    return None if cause is None else (f"SQLSTATE {sqlstate}", cause)
