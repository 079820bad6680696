"""Classify errors of database drivers that mean "not now".

A locked file, a full disk, a lost connection or a timeout says nothing about the work itself:
callers answer 503 or try again later. All other errors (a wrong statement, a violated constraint)
are bugs and remain the driver's own exceptions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from sqlalchemy import exc

from tollgauge.core.base.errors import TollgaugeError


class Cause(StrEnum):
    """Why a database cannot serve."""

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
"""Primary result codes (https://sqlite.org/rescode.html)."""
_SQLITE_FULL: Final = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
"""Extended codes for a quota or a limit on the file size; SQLITE_FULL covers only ENOSPC."""

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
"""Prefixes of SQLSTATE (PostgreSQL, appendix A); the first match applies.

In this order: disk full, other resources, idle timeout, rollback, lock not available, statement
timeout, no such table, damaged data or index, connection, no such database, login, operator
intervention (shutdown) and system errors.
"""

_READ_ONLY: Final = "25006"
"""SQLSTATE read_only_sql_transaction: the server is a standby or accepts no writes.

In a read transaction it is a bug: a function under `reading` writes.
"""

_Reason = tuple[str, Cause]
"""A description for the log, and the cause."""


class StoreUnavailable(TollgaugeError):  # noqa: N818 (named for what callers see)
    """The database cannot serve now.

    The transaction was not committed, except that this is unknown if the connection was lost during
    the commit.
    """

    def __init__(self, reason: str, cause: Cause = Cause.UNREACHABLE) -> None:
        super().__init__(
            f"The database is not available: {reason}.",
            hint="Try again. If the problem persists, check the database's disk, locks and log.",
        )
        self.cause: Final = cause


@contextmanager
def translate_errors(
    *,
    connecting: bool = False,
    writing: bool = False,
    on_error: Callable[[Cause], None] | None = None,
) -> Iterator[None]:
    """Raise StoreUnavailable in place of a driver's error that means "not now".

    - `connecting`: socket errors count too. Later they do not, because code in a transaction block
      may use sockets itself.
    - `writing`: a server that accepts no writes counts too.
    - `on_error` is called with the cause.
    """
    try:
        yield
    except Exception as error:  # other errors are raised again below
        origin = error.orig if isinstance(error, exc.DBAPIError) else error
        reason = _find_reason(error, origin, connecting=connecting)
        if writing and getattr(origin, "sqlstate", None) == _READ_ONLY:
            reason = (f"SQLSTATE {_READ_ONLY}", Cause.READ_ONLY)
        if reason is None:
            raise
        text, cause = reason
        if on_error is not None:
            on_error(cause)
        raise StoreUnavailable(text, cause) from error


_LOST: Final = ("the connection was lost", Cause.UNREACHABLE)


def _find_reason(
    error: Exception, origin: BaseException | None, *, connecting: bool
) -> _Reason | None:
    """Return the reason of an error; `origin` is the driver's error if SQLAlchemy wrapped it."""
    # 20 ms of CPU time, which commands on SQLite save.
    from asyncpg import InterfaceError

    if isinstance(error, exc.TimeoutError):
        return "all connections are in use", Cause.LOCKED
    if isinstance(origin, sqlite3.Error):
        return _sqlite_reason(origin)
    invalidated = isinstance(error, exc.DBAPIError) and error.connection_invalidated
    if invalidated or _is_lost(origin) or (origin is not None and _is_lost(origin.__cause__)):
        return _LOST
    if connecting and isinstance(error, OSError):  # refused, no such socket, timed out
        return "no connection", Cause.UNREACHABLE
    if connecting and isinstance(error, InterfaceError):
        # A ValueError would be a wrong argument, which is a bug.
        return None if isinstance(error, ValueError) else _LOST
    return _sqlstate_reason(getattr(origin, "sqlstate", None))


def _is_lost(error: BaseException | None) -> bool:
    """Return whether an asyncpg error means that the connection is lost."""
    from asyncpg.exceptions import InterfaceError, InternalClientError

    closed = isinstance(error, InterfaceError) and "connection is closed" in str(error)
    # InternalClientError: the server went away during a reply.
    return closed or isinstance(error, InternalClientError)


def _sqlite_reason(error: sqlite3.Error) -> _Reason | None:
    code = getattr(error, "sqlite_errorcode", None)
    cause = None if code is None else _SQLITE.get(code & 0xFF)
    if code == sqlite3.SQLITE_ERROR and str(error).startswith("no such table"):
        cause = Cause.TABLES
    if cause is None:
        return None
    name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    return name, Cause.FULL if code in _SQLITE_FULL else cause


def _sqlstate_reason(sqlstate: object) -> _Reason | None:
    if not isinstance(sqlstate, str):
        return None
    cause = next((cause for prefix, cause in _POSTGRES if sqlstate.startswith(prefix)), None)
    return None if cause is None else (f"SQLSTATE {sqlstate}", cause)
