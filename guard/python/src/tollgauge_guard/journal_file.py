"""The journal's file: an SQLite database that threads and processes share, or memory.

It says how the file is opened, read and written safely. What is in it is the journal's.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tollgauge_guard.address import parse_address
from tollgauge_guard.errors import GuardError

MEMORY: Final = ":memory:"
_BUSY_S: Final = 10.0
VERSION: Final = 1
"""Of the schema (`user_version`). Files without one were written before payers had budgets."""
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS payment (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, host TEXT NOT NULL, resource TEXT NOT NULL,
  request_digest TEXT NOT NULL, network TEXT NOT NULL, asset TEXT NOT NULL, pay_to TEXT NOT NULL,
  amount TEXT NOT NULL, micro_usd INTEGER NOT NULL, owner INTEGER NOT NULL, payer TEXT, nonce TEXT,
  valid_before INTEGER, header TEXT, outcome TEXT NOT NULL, status INTEGER, settlement TEXT,
  UNIQUE (network, asset, payer, nonce));
CREATE INDEX IF NOT EXISTS payment_at ON payment (at);
CREATE INDEX IF NOT EXISTS payment_request ON payment (request_digest, at);
"""
_PAYER_OF_HEADER: Final = """
UPDATE payment SET payer = lower(payer_of(header)) WHERE payer IS NULL AND header IS NOT NULL
"""
_MIGRATION: Final = """
ALTER TABLE payment ADD COLUMN found_at INTEGER;
DELETE FROM payment WHERE nonce IS NULL AND header IS NULL;
UPDATE payment SET outcome = CASE
  WHEN outcome = 'unanswered' THEN 'in-flight'
  WHEN outcome IN ('unknown', 'refused') THEN 'open'
  WHEN outcome IN ('answered', 'settled') AND status NOT BETWEEN 200 AND 299 THEN 'open'
  WHEN outcome = 'taken' THEN 'paid-unanswered'
  WHEN outcome = 'not-taken' THEN 'dead'
  ELSE outcome END;
CREATE INDEX payment_nonce ON payment (nonce);
DROP VIEW IF EXISTS entry;
CREATE VIEW entry AS SELECT id, at, host, resource, request_digest, network, asset, pay_to, amount,
  micro_usd, payer, nonce, valid_before, outcome, status, settlement, found_at FROM payment
  WHERE nonce IS NOT NULL;
"""


class JournalError(GuardError):
    """The journal cannot do what it was asked."""


class JournalFile:
    """An open file, or memory, which forgets with its process. Raises JournalError where it cannot
    be opened.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._inode = 0
        self._connection: sqlite3.Connection | None = None
        with self.reading():
            pass
        if self._path != MEMORY:
            _close_before_forks(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The rows as they are, without waiting for a writer."""
        with self._lock:
            try:
                yield self._opened()
            except sqlite3.Error as error:
                message = f"The journal {self._path} cannot be read or written ({error})."
                raise JournalError(message) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, alone among threads and processes."""
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
        """Close the file; whatever is asked next opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _opened(self) -> sqlite3.Connection:
        """The connection of this process, opened where there is none."""
        if self._connection is None:
            self._connection = _connect(self._path)
            self._inode = _inode(self._path)
        return self._connection


def _close_before_forks(file: JournalFile) -> None:
    """Have a file closed before this process forks. With an open connection the new process would
    believe that it has the locks that only this one has, and lose what it writes when this one
    closes the file (https://sqlite.org/howtocorrupt.html, section 2.6).
    """
    close = weakref.WeakMethod(file.close)
    if sys.platform != "win32":
        os.register_at_fork(before=lambda: (method := close()) and method())


def _connect(path: str) -> sqlite3.Connection:
    try:
        if path != MEMORY:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            _create(Path(path))
        connection = sqlite3.connect(
            path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        _write_ahead(connection)
        # Safe from the death of any process; a power cut may take the last moments. To wait for
        # the disk at each step would cost a payment several milliseconds.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        _migrate(connection)
    except (OSError, sqlite3.Error) as error:
        raise JournalError(
            f"The journal {path} cannot be opened ({error}).",
            hint="Name a file that can be written. Nothing is paid without a journal.",
        ) from error
    return connection


def _create(path: Path) -> None:
    """Make the file, for its owner alone. It is not opened under its name: to close any descriptor
    of an SQLite file drops the locks of this process's other connections to it
    (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    if path.exists():
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(descriptor)
    try:
        os.link(name, path)
    except FileExistsError:
        pass  # another one made it meanwhile
    finally:
        Path(name).unlink()


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring a file, also a new one, to this version of the schema, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise JournalError(
                f"The journal has version {version}, and this guard writes {VERSION}.",
                hint="Install a newer tollgauge-guard. Nothing was changed, and nothing is paid.",
            )
        if version < VERSION:
            connection.create_function("payer_of", 1, payer_of, deterministic=True)
            for statement in (*_TABLE.split(";"), _PAYER_OF_HEADER, *_MIGRATION.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def payer_of(header: str) -> str | None:
    """Who signed the EIP-3009 authorization of a payment header, None where it names nobody."""
    try:
        payload = json.loads(base64.b64decode(header))["payload"]
        return parse_address(payload["authorization"]["from"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _inode(path: str) -> int:
    """The number of a file; 0 for memory, and for none."""
    try:
        return 0 if path == MEMORY else Path(path).stat().st_ino
    except OSError:
        return 0


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Have SQLite write ahead (WAL), so that reading waits for no writer. SQLite itself does not
    wait here for another process that opens the same new file.
    """
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
