"""An audit hook that fails when a process opens an SQLite file that it already has a connection to.

Closing any descriptor of a file drops all POSIX locks that the process has on it, SQLite's too
(https://sqlite.org/howtocorrupt.html, section 2.2). Another process that closes the database then
deletes the log, and the transactions committed to it are lost. conftest.py installs the hook before
it forks, so all test workers and all commands of the command server have it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

_DATABASES: Final[set[str]] = set()
"""All files that this process has ever connected to, and their side files."""


class OpenedBesideSqliteError(BaseException):
    """A program opened a database that it has a connection to. Not an Exception, so that no handler
    of the service hides it.
    """


def install() -> None:
    """Watch this process and all processes forked from it later."""
    sys.addaudithook(_check)


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect":
        database = os.fsdecode(arguments[0]).removeprefix("file://").partition("?")[0]
        path = os.path.realpath(database)
        _DATABASES.update((path, f"{path}-wal", f"{path}-shm"))
    elif event == "open" and _DATABASES and not isinstance(arguments[0], int):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path in _DATABASES and _is_open(path):
            raise OpenedBesideSqliteError(f"{path} is opened beside a connection to it")


def _is_open(path: str) -> bool:
    """Return whether this process has a descriptor of the file. It must be SQLite's, because no
    other is allowed.
    """
    try:
        wanted = Path(path).stat()
    except OSError:
        return False
    for link in Path("/proc/self/fd").iterdir():
        try:
            if os.path.samestat(wanted, link.stat()):
                return True
        except OSError:
            continue  # closed in the meantime
    return False
