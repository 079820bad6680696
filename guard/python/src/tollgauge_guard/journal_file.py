"""The journal's file: an SQLite database that threads and processes share, or memory.

Opens it, creates its tables, and gives out transactions.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from tollgauge_guard.errors import GuardError

MEMORY: Final = ":memory:"
VERSION: Final = 2  # user_version of journal.sql
_BUSY_S: Final = 10.0
_START: Final = secrets.token_hex(5)  # process IDs are reused, in containers at every start
SCHEMA: Final = files("tollgauge_guard").joinpath("journal.sql").read_text(encoding="utf-8")


class JournalError(GuardError):
    """The journal cannot be used."""


class Rows(Protocol):
    """Runs statements of SQLite, as `sqlite3.Connection` does."""

    def execute(self, statement: str, values: Any = ..., /) -> Any:
        """Run a statement; the result has `fetchone`, `fetchall` and `description`."""

    def executemany(self, statement: str, values: Any, /) -> Any:
        """Run a statement once for each row of values."""


class Store(Protocol):
    """Where a journal keeps its rows. `JournalFile` is one; runtimes without files give another."""

    def reading(self) -> AbstractContextManager[Rows]:
        """Read without waiting for a writer."""

    def transaction(self) -> AbstractContextManager[Rows]:
        """Run one write transaction, exclusive among all guards of the store."""

    def close(self) -> None:
        """Close the store."""


@runtime_checkable
class Processes(Protocol):
    """The processes that use a journal. A store that several machines share is one too; for any
    other store, a process that does not run on this machine is dead.
    """

    def this_process(self) -> str:
        """Return a name of this process that no other one has or had."""

    def is_alive(self, owner: str) -> bool:
        """Whether a process is running."""


def is_postgres(where: object) -> bool:
    """Whether a journal's place is the URL of a PostgreSQL database."""
    return isinstance(where, str) and where.startswith(("postgresql://", "postgres://"))


def create_tables(store: Store) -> None:
    """Create the tables of a journal in a store that has none."""
    with store.transaction() as rows:
        tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'payments'"
        if rows.execute(tables).fetchone() is not None:
            return
        for statement in read_statements(SCHEMA):
            if not statement.lstrip().startswith("PRAGMA"):
                rows.execute(statement)


class JournalFile:
    """An open file, or memory, which ends with its process.

    With `is_durable` a transaction also survives a power failure. Raises JournalError if the file
    cannot be opened.
    """

    def __init__(self, path: str, *, is_durable: bool = False) -> None:
        self._path, self._is_durable = path, is_durable
        self._lock = threading.RLock()
        self._inode = 0
        self._connection: sqlite3.Connection | None = None
        with self.reading():
            pass
        if self._path != MEMORY:
            _close_before_forks(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read without waiting for a writer."""
        with self._lock:
            try:
                yield self._open()
            except sqlite3.Error as error:
                message = f"The journal {self._path} cannot be read or written ({error})."
                raise JournalError(message) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run one write transaction, exclusive among threads and processes."""
        with self.reading() as connection:
            if self._inode != _inode(self._path):
                raise JournalError(
                    f"The journal {self._path} was removed or replaced.",
                    hint="Start again. Another journal does not know what was paid.",
                )
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def close(self) -> None:
        """Close the file; the next read or write opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        """Return the connection of this process; open it if there is none."""
        if self._connection is None:
            self._connection = _connect(self._path, is_durable=self._is_durable)
            self._inode = _inode(self._path)
        return self._connection


def _close_before_forks(file: JournalFile) -> None:
    """Close a file before this process forks.

    A child that inherits a connection assumes locks that it does not have, and loses writes when
    the parent closes the file (https://sqlite.org/howtocorrupt.html, section 2.6).
    """
    close = weakref.WeakMethod(file.close)
    if sys.platform != "win32":
        os.register_at_fork(before=lambda: (method := close()) and method())


def _connect(path: str, *, is_durable: bool) -> sqlite3.Connection:
    try:
        if path != MEMORY:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            _create(Path(path))
        connection = sqlite3.connect(
            path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        _write_ahead(connection)
        # NORMAL survives the death of any process; FULL also a power failure, and costs a wait for
        # the disk per transition.
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
        # 16 MB, as in the guard for TypeScript: a checkpoint waits for the disk.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA secure_delete = ON")
        _create_tables(connection)
    except (OSError, sqlite3.Error) as error:
        raise JournalError(
            f"The journal {path} cannot be opened ({error}).",
            hint="Name a file that can be written. Nothing is paid without a journal.",
        ) from error
    return connection


def _create(path: Path) -> None:
    """Create the file with mode 0600.

    It is not opened under its own name: closing any descriptor of an SQLite file drops the locks
    of this process's other connections to it (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    if path.exists():
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(descriptor)
    try:
        os.link(name, path)
    except FileExistsError:
        pass  # another process created it
    finally:
        Path(name).unlink()


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file, in one transaction. Raises JournalError for the file of
    another version.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and tables == 0:
            for statement in read_statements(SCHEMA):
                connection.execute(statement)
        elif version != VERSION:
            raise JournalError(
                f"The journal has version {version}, and this guard reads {VERSION}.",
                hint="Use the guard that wrote it, or name another file: what it counted is "
                "then forgotten. Nothing was changed, and nothing is paid.",
            )
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def read_statements(schema: str) -> Iterator[str]:
    """Yield the statements of journal.sql without comments."""
    # executescript() would commit the transaction that is open.
    lines = (line.partition("--")[0] for line in schema.splitlines())
    return (statement for statement in "\n".join(lines).split(";") if statement.strip())


def _inode(path: str) -> int:
    """Return the inode of a file; 0 for memory and for a missing file."""
    try:
        return 0 if path == MEMORY else os.stat(path).st_ino  # noqa: PTH116  # pathlib takes longer, and each call needs it five times
    except OSError:
        return 0


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL, so that readers do not wait for a writer."""
    # SQLite does not apply its busy timeout here when another process opens the same new file.
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def this_process() -> str:
    """Return a name of this process that no earlier process of this machine had."""
    return f"{os.getpid()}-{_START}"


def is_alive(owner: str) -> bool:
    """Whether a process of this machine is running; True if that cannot be determined."""
    number = owner.partition("-")[0]
    if not number.isdecimal():
        return False
    if int(number) == os.getpid():
        return owner == this_process()
    try:
        if os.name == "posix":
            os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


class LocalProcesses:
    """The processes of this machine."""

    this_process = staticmethod(this_process)
    is_alive = staticmethod(is_alive)
