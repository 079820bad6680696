"""A journal in a PostgreSQL database, which guards on several machines share.

It has the tables of journal.sql, in the first schema of the connection's search path, and writes
one transaction at a time. A process is alive while the server sees its connection.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from tollgauge_guard.journal_file import SCHEMA, VERSION, JournalError, read_statements

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise JournalError(
        "A journal in PostgreSQL needs psycopg.",
        hint="pip install 'psycopg[binary]'",
    ) from error

_MARK: Final = f"tollgauge-guard journal, version {VERSION}"
_CREATING: Final = 0x746F6C6C  # advisory lock while the tables are created
_WRITING: Final = 0x67756172 << 32  # advisory lock of a transaction, with the OID of the table
_OWNER: Final = re.compile(r"[0-9]+-([0-9a-f]{8})([0-9a-f]{8})", re.ASCII)
# A guard that stops in the middle of a transaction must not stop the others, and one whose machine
# has disappeared must not hold a purchase for hours. A commit must survive the server's crash.
_SETTINGS: Final = """
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '10s';
SET tcp_keepalives_idle = 30;
SET tcp_keepalives_interval = 10;
SET tcp_keepalives_count = 3;
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""
_ALIVE: Final = """
SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
AND classid = %s AND objid = %s AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class PostgresStore:
    """An open database. Raises JournalError if it cannot be reached or used.

    Threads share one connection. It holds an advisory lock by which the guards of other machines
    see that this process is alive, so it must not pass a pooler that shares it between clients.
    """

    def __init__(self, url: str) -> None:
        self._url, self._writing = url, 0
        self._start_process()
        restart = weakref.WeakMethod(self._start_process)
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=lambda: (method := restart()) and method())
        with self.reading():
            pass

    @property
    def name(self) -> str:
        """The URL without its password."""
        parts = urlsplit(self._url)
        user, _, host = parts.netloc.rpartition("@")
        user = user.partition(":")[0]
        return urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host))

    @contextmanager
    def reading(self) -> Iterator[_Rows]:
        """Read without waiting for a writer."""
        with self._lock:
            try:
                yield _Rows(self._open())
            except psycopg.Error as error:
                message = f"The journal {self.name} cannot be read or written ({_line(error)})."
                raise JournalError(message) from error

    @contextmanager
    def transaction(self) -> Iterator[_Rows]:
        """Run one write transaction, exclusive among all guards of the database."""
        with self.reading() as rows:
            connection = rows.connection
            # READ COMMITTED: each statement sees the rows of the lock's previous holder.
            connection.execute(
                "BEGIN ISOLATION LEVEL READ COMMITTED;"  # one round trip
                f"SELECT pg_advisory_xact_lock({self._writing})".encode()
            )
            try:
                yield rows
            except BaseException:
                if not connection.closed:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def this_process(self) -> str:
        """Return the name of this process."""
        return f"{os.getpid()}-{self._key[0]:08x}{self._key[1]:08x}"

    def is_alive(self, owner: str) -> bool:
        """Whether the server sees a process, on any machine."""
        key = _OWNER.fullmatch(owner)
        if key is None:
            return False
        with self.reading() as rows:
            found = rows.connection.execute(_ALIVE, [int(half, 16) for half in key.groups()])
            return found.fetchone() is not None

    def close(self) -> None:
        """Close the connection; the next read or write opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _start_process(self) -> None:
        """Begin in a new process: an inherited connection and lock belong to its parent."""
        self._lock = threading.RLock()
        # psycopg does not close a connection of another process when it is collected.
        self._connection: psycopg.Connection[Any] | None = None
        self._key = (secrets.randbits(31), secrets.randbits(31))

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> psycopg.Connection[Any]:
        with ExitStack() as stack:
            try:
                options: dict[str, Any] = {"connect_timeout": 10}
                options |= conninfo_to_dict(self._url)
                connection = psycopg.connect(**options, autocommit=True)
                stack.callback(connection.close)
                connection.execute(_SETTINGS)
                connection.execute("SELECT pg_advisory_lock(%s, %s)", self._key)
                _create_tables(connection)
                found = connection.execute("SELECT 'payments'::regclass::oid::bigint").fetchone()
            except psycopg.Error as error:
                raise JournalError(
                    f"The journal {self.name} cannot be opened ({_line(error)}).",
                    hint="Name a database that can be written. Nothing is paid without a journal.",
                ) from error
            stack.pop_all()
        self._writing = _WRITING | (0 if found is None else found[0])
        return connection


class _Rows:
    """Runs the journal's statements, whose parameters are question marks."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def execute(self, statement: str, values: Iterable[Any] = (), /) -> Any:
        """Run a statement."""
        return self.connection.execute(_translate(statement), _clean(values))

    def executemany(self, statement: str, values: Iterable[Iterable[Any]], /) -> Any:
        """Run a statement once for each row of values."""
        with self.connection.cursor() as cursor:
            cursor.executemany(_translate(statement), [_clean(row) for row in values])


def _line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())


@lru_cache(maxsize=256)
def _translate(statement: str) -> bytes:
    return statement.replace("%", "%%").replace("?", "%s").encode()


def _clean(values: Iterable[Any]) -> list[Any]:
    """Replace NUL, which a seller's text may contain and PostgreSQL cannot store."""
    return [
        value.replace("\0", "\ufffd") if isinstance(value, str) and "\0" in value else value
        for value in values
    ]


def _create_tables(connection: psycopg.Connection[Any]) -> None:
    """Create the tables in a database without them. Raises JournalError for tables of others."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATING,))
        found = connection.execute(
            "SELECT to_regclass('payments') IS NOT NULL, obj_description(to_regclass('payments'))"
        ).fetchone()
        is_there, mark = found or (False, None)
        if is_there and mark != _MARK:
            raise JournalError(
                f"The table `payments` of the database is not a journal of version {VERSION}.",
                hint="Use a database or a schema of its own. Nothing was changed.",
            )
        if is_there:
            return
        for statement in read_statements(SCHEMA):
            if not statement.lstrip().startswith("PRAGMA"):
                connection.execute(_to_postgres(statement).encode())
        connection.execute(f"COMMENT ON TABLE payments IS '{_MARK}'".encode())


def _to_postgres(statement: str) -> str:
    """Return a statement of journal.sql for PostgreSQL."""
    identity = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    statement = statement.replace("INTEGER PRIMARY KEY", identity).replace("INTEGER", "BIGINT")
    return re.sub(r"\)\s*STRICT(, WITHOUT ROWID)?\s*$", ")", statement)
