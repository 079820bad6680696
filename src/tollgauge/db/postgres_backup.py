"""Back up and restore with PostgreSQL's `pg_dump` and `pg_restore`, and move an SQLite copy into
PostgreSQL.

- Passwords are passed in the environment, never on a command line that other users can list.
- A dump gets its name only once it is complete and verified. Only its owner can read it.
- A dump is restored only into an empty database, in one transaction. The previous database remains
  until the operator drops it.
- If the tools are missing, the error contains the command to run, without its password.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.engine import URL

from tollgauge.db import backup
from tollgauge.db.backup import (
    BackupDamagedError,
    BackupError,
    Copy,
    check_target,
    copy_of_version,
    temporary_file,
)
from tollgauge.db.engine import VERSION_TABLE, Store, create_tables, parse_url

_VERSION: Final = re.compile(r"^([0-9a-f]{12})$", re.MULTILINE)
_LINE_MAX: Final = 300
_MAGIC: Final = b"PGDMP"
"""The first bytes of a dump in pg_dump's custom format."""


def dump(url: str, target: Path, *, force: bool) -> Copy:
    """Dump a database, which may be in use, to one file.

    Raises:
        BackupError: The dump cannot be made.
        BackupDamagedError: The database is not of tollgauge.
    """
    check_target(target, force=force)
    with temporary_file(target) as part:
        part.touch(mode=0o600)
        words = ["pg_dump", "--format=custom", "--no-owner", "--no-privileges"]
        _run([*words, f"--file={part}"], parse_url(url), by_hand=[*words, f"--file={target}"])
        copy = examine(part)
        part.replace(target)
    return replace(copy, path=target)


def examine(path: Path) -> Copy:
    """Verify a dump to its end.

    Raises:
        BackupError: The file does not exist.
        BackupDamagedError: The dump is not complete or not of tollgauge.
    """
    if not path.is_file():
        raise BackupError(f"{path} does not exist.", hint="Name a file that `backup` wrote.")
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    if head != _MAGIC:
        raise BackupDamagedError(f"{path} is not a pg_dump file.", hint="Use an older copy.")
    try:
        # Turning the whole dump into SQL reads it to its last byte.
        _run(["pg_restore", "--file=/dev/null", str(path)], None)
        words = ["pg_restore", "--data-only", f"--table={VERSION_TABLE}", "--file=-", str(path)]
        match = _VERSION.search(_run(words, None))
    except BackupError as error:
        raise BackupDamagedError(
            f"{path} is not a complete dump: {error}", hint=error.hint
        ) from error
    if match is None:
        raise BackupDamagedError(
            f"{path} is not a dump of a tollgauge database.", hint="Use an older copy."
        )
    return copy_of_version(path, match.group(1), rows={})


async def restore(dumped: Path, url: str) -> Copy:
    """Restore a dump into an empty database.

    Raises:
        BackupDamagedError: The dump is not complete or not of tollgauge.
        BackupError: The database is not empty, or pg_restore failed.
        StoreUnavailable: The database cannot serve.
    """
    parsed, copy = parse_url(url), examine(dumped)
    await check_empty(url)
    words = ["pg_restore", "--no-owner", "--no-privileges", "--single-transaction"]
    command = [*words, f"--dbname={parsed.database}", str(dumped)]
    _run(command, parsed, by_hand=command)
    return copy


async def check_empty(url: str) -> None:
    """Check that a database has no tables.

    Raises:
        BackupError: It has tables.
        StoreUnavailable: The database cannot serve.
    """
    store = Store.open(url, pool_size=1)
    try:
        tables = await store.reading(lambda connection: connection.execute(_TABLES).scalar_one())
    finally:
        await store.close()
    if tables:
        raise BackupError(
            f"The database {parse_url(url).database} contains {tables} tables. A copy can be "
            "restored only into an empty database.",
            hint="Create one (createdb NEW), set DATABASE_URL to it and try again. The service "
            "then uses NEW, and the previous database is kept.",
        )


_TABLES: Final = sa.text(
    "SELECT count(*) FROM information_schema.tables "
    "WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
)


def _run(command: list[str], url: URL | None, *, by_hand: list[str] | None = None) -> str:
    """Run a tool and return its output.

    Raises:
        BackupError: The tool is missing or failed.
    """
    program = shutil.which(command[0])
    if program is None:
        typed = shlex.join(by_hand or command)
        place = f"PGPASSWORD=… {_mask_password(url)}{typed}" if url is not None else typed
        raise BackupError(
            f"{command[0]} is not installed here.",
            hint="Install PostgreSQL's client programs, or run this on a machine that has them: "
            + place,
        )
    process = subprocess.run(  # noqa: S603 - a fixed program without a shell
        [program, *command[1:]],
        env=os.environ | (_environment(url) if url is not None else {}),
        capture_output=True,
        check=False,
        text=True,
        errors="replace",
    )
    if process.returncode:
        message = (process.stderr.strip().splitlines() or ["no error message"])[0][:_LINE_MAX]
        raise BackupError(f"{command[0]} failed: {message}")
    return process.stdout


def _environment(url: URL) -> dict[str, str]:
    """Return libpq's environment variables for a database."""
    named = {
        "PGHOST": url.query.get("host") or url.host,
        "PGPORT": url.query.get("port") or url.port,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGDATABASE": url.database,
        "PGSSLMODE": url.query.get("sslmode") or url.query.get("ssl"),
    }
    return {name: str(value) for name, value in named.items() if value}


def _mask_password(url: URL) -> str:
    """Return the same variables as shell assignments, without the password."""
    named = {name: value for name, value in _environment(url).items() if name != "PGPASSWORD"}
    return "".join(f"{name}={shlex.quote(value)} " for name, value in named.items())


Progress = Callable[[int, int], None]
"""Called with the number of copied rows and the total."""

_SQLITE_MAGIC: Final = b"SQLite format 3\x00"
"""The first bytes of an SQLite file (https://sqlite.org/fileformat.html, section 1.3.1)."""
_BATCH: Final = 1_000


def is_sqlite_file(path: Path) -> bool:
    """Return whether a file starts like an SQLite file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


async def move_from_sqlite(copy: Path, url: str, *, progress: Progress) -> Copy:
    """Copy all rows of an SQLite copy into an empty PostgreSQL database, in one transaction.

    Raises:
        BackupDamagedError: The copy is not complete or not of tollgauge.
        BackupError: The database is not empty.
        StoreUnavailable: The database cannot serve.
    """
    examined = backup.examine(copy)
    await check_empty(url)
    source = _open_copy(copy)
    store = Store.open(url, pool_size=1)
    try:
        with source.connect() as read:
            await store.writing(_copy_rows, read, progress=progress)
    finally:
        source.dispose()
        await store.close()
    return examined


def _open_copy(copy: Path) -> sa.Engine:
    uri = f"{copy.absolute().as_uri()}?mode=ro"
    return sa.create_engine("sqlite://", creator=partial(sqlite3.connect, uri, uri=True))


def _copy_rows(tx: Connection, read: Connection, *, progress: Progress) -> None:
    tx.execute(sa.text("SET LOCAL statement_timeout = 0"))
    create_tables(tx)
    metadata = sa.MetaData()
    metadata.reflect(tx)
    tables = [table for table in metadata.sorted_tables if table.name != VERSION_TABLE]
    total = sum(_count(read, table) for table in tables)
    done = 0
    for table in tables:
        for rows in read.execute(sa.select(table)).mappings().partitions(_BATCH):
            tx.execute(table.insert(), [dict(row) for row in rows])
            done += len(rows)
            progress(done, total)
        _advance_sequence(tx, table)


def _count(read: Connection, table: sa.Table) -> int:
    return read.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def _advance_sequence(tx: Connection, table: sa.Table) -> None:
    """Advance the sequence of a generated key to the highest copied key."""
    for column in table.primary_key:
        sequence = tx.scalar(sa.select(sa.func.pg_get_serial_sequence(table.name, column.name)))
        highest = tx.scalar(sa.select(sa.func.max(column))) if sequence else None
        if highest is not None:
            tx.execute(sa.select(sa.func.setval(sequence, highest)))
