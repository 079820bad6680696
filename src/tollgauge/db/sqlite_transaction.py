"""One transaction of an SQLite file, on the thread that has the connection.

sqlite3 never begins a transaction by itself here, and SQLAlchemy is in AUTOCOMMIT mode, so that it
begins none either.
"""

from __future__ import annotations

import contextlib
import sqlite3
import traceback
from collections.abc import Callable
from typing import Any, TypeVar, cast

import sqlalchemy as sa

R = TypeVar("R")


class CheckedConnection(sqlite3.Connection):
    """A connection for transactions that are whole.

    - While `checked`, a statement after the end of the transaction raises RuntimeError: SQLite ends
      one itself when the disk is full, and what came after it would be committed alone.
    - `close` ends the transaction at once. SQLite would keep it open, with its lock on the
      database, as long as a statement of it exists, and a traceback may refer to one until the next
      garbage collection.
    """

    checked = False

    def cursor(self, *arguments: Any) -> Any:
        """A cursor; `execute` takes one too."""
        if self.checked and not self.in_transaction:
            raise RuntimeError("this transaction has ended: nothing of it was written")
        return super().cursor(*arguments)

    def close(self) -> None:
        """Roll back what is open, and close."""
        self.checked = False
        with contextlib.suppress(sqlite3.Error):
            if self.in_transaction:
                self.rollback()
        super().close()


def sqlite_connection(connection: sa.Connection) -> sqlite3.Connection:
    """Return the sqlite3 connection behind SQLAlchemy's."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def run_transaction(
    engine: sa.Engine, work: Callable[[sa.Connection], R], *, begin: str, keep: bool = True
) -> R:
    """Run work in a transaction of its own; it is committed, or rolled back if nothing is to
    `keep` or an exception is raised.
    """
    with engine.connect() as connection:
        driver = cast("CheckedConnection", sqlite_connection(connection))
        try:
            driver.execute(begin)
            driver.checked = True
            result = work(connection)
            driver.execute("COMMIT" if keep else "ROLLBACK")
        except BaseException as error:
            release_frames(error)
            _roll_back(connection, driver)
            raise
        finally:
            driver.checked = False
    return result


def _roll_back(connection: sa.Connection, driver: sqlite3.Connection) -> None:
    """Roll back what is open; a connection that cannot do that is closed."""
    try:
        if driver.in_transaction:
            driver.execute("ROLLBACK")
    except sqlite3.Error:
        connection.invalidate()


def release_frames(error: BaseException) -> BaseException:
    """An error without the local variables of the functions that failed.

    A cursor among them that was not read to its end would keep its snapshot open for as long as
    anybody holds the error: later reads on the connection would see old rows, and a write could not
    begin (SQLITE_BUSY_SNAPSHOT).
    """
    current: BaseException | None = error
    while current is not None:
        traceback.clear_frames(current.__traceback__)
        current = current.__context__
    return error
