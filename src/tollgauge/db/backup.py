"""Back up an SQLite database to one file, and restore it.

- A copy is consistent although the service continues: it is made in one read transaction.
- A copy gets its name only once it is complete, verified and flushed to disk. Only its owner can
  read it, because it contains the ledger.
- Only a complete copy of a known version is restored.
- A database that another process has open is not replaced. The replaced database is kept.

For PostgreSQL see db/postgres_backup.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.db.disk import INCREMENTAL
from tollgauge.db.engine import VERSION_TABLE, is_sqlite, newest_version, parse_url

Progress = Callable[[int, int], None]
"""Called with the number of copied pages and the total."""

STEP_PAGES: Final = 256
WAIT_S: Final = 5.0
TABLES: Final = ("endpoint", "probe", "score", "payment", "watch")
"""Tables counted in a copy's summary."""
# Position of SQLite's locks in a file (file format, section 1.2, the lock-byte page).
_PENDING_BYTE: Final = 0x40000000
_LOCK_BYTES: Final = 512
_SIDES: Final = ("-wal", "-shm", "-journal")


class BackupError(TollgaugeError):
    """A copy cannot be made or restored, for a reason outside of the copy."""


class BackupDamagedError(TollgaugeError):
    """A file is not a complete copy of a tollgauge database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A verified backup: size in bytes, schema version and row counts by table."""

    path: Path
    bytes: int
    version: str
    rows: dict[str, int]


def database_file(url: str) -> Path:
    """Return the file of an SQLite database.

    Raises:
        BackupError: The database is in memory.
    """
    parsed = parse_url(url)
    if not is_sqlite(parsed) or parsed.database in (None, "", ":memory:"):
        raise BackupError(
            "This database is in memory and cannot be copied.",
            hint="Set store.url (or DATABASE_URL) to the database of the service.",
        )
    return Path(str(parsed.database))


def check_target(target: Path, *, force: bool) -> None:
    """Check that a copy may be written to `target`.

    Raises:
        BackupError: It must not.
    """
    if target.is_dir():
        raise BackupError(f"{target} is a folder.", hint="Name the file to write.")
    if target.exists() and not force:
        raise BackupError(f"{target} already exists.", hint="Name another file, or add --force.")
    if not target.parent.is_dir():
        raise BackupError(f"The folder {target.parent} does not exist.", hint="Create it first.")


def save(source: Path, target: Path, *, force: bool, progress: Progress) -> Copy:
    """Copy a database, which may be in use, to one file. After an error no file is left.

    Raises:
        BackupError: The copy cannot be made.
        BackupDamagedError: The database itself is damaged.
    """
    check_target(target, force=force)
    if not source.is_file():
        raise BackupError(f"The database {source} does not exist.", hint="Check store.url.")
    if target.exists() and target.samefile(source):
        raise BackupError("The copy and the database are the same file.")
    with temporary_file(target) as part:
        with _translate_errors(source, "cannot be copied"):
            _copy(source, part, progress)
        copy = examine(part)
        # In this order: after a power failure the name never belongs to an incomplete file.
        _flush_to_disk(part)
        part.replace(target)
        _flush_to_disk(target.parent)
    return replace(copy, path=target)


@contextlib.contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """Yield the path of a temporary file in the folder of `target`, to be renamed when complete.

    The file is deleted if it still exists at the end.

    Raises:
        BackupError: The block raised an OSError.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error.strerror}.", hint=_ROOM) from error
    finally:
        for leftover in (part, *_side_files(part)):
            leftover.unlink(missing_ok=True)


def examine(path: Path) -> Copy:
    """Verify a copy from its first page to its last.

    Raises:
        BackupError: The file does not exist.
        BackupDamagedError: The file is not complete or not of tollgauge.
    """
    if not path.is_file():
        raise BackupError(f"{path} does not exist.", hint="Name a file that `backup` wrote.")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            if db.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
                raise BackupDamagedError(f"{path} is damaged.", hint=_OTHER)
            names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            if VERSION_TABLE not in names or "endpoint" not in names:
                raise BackupDamagedError(f"{path} is not a tollgauge database.", hint=_OTHER)
            (version,) = db.execute(f"SELECT version FROM {VERSION_TABLE}").fetchone()  # noqa: S608
            rows = {
                name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608 - TABLES
                for name in TABLES
                if name in names
            }
    except (sqlite3.DatabaseError, TypeError) as error:
        raise BackupDamagedError(
            f"{path} is not a complete SQLite database.", hint=_OTHER
        ) from error
    return copy_of_version(path, version, rows)


def copy_of_version(path: Path, version: str, rows: dict[str, int]) -> Copy:
    """Build the description of a verified copy.

    Raises:
        BackupDamagedError: The copy is of another schema version.
    """
    if version != newest_version():
        raise BackupDamagedError(
            f"{path} has schema version {version}, which this program does not support.",
            hint="Restore it with the version of tollgauge that wrote it.",
        )
    return Copy(path=path, bytes=path.stat().st_size, version=version, rows=rows)


def restore(
    copy: Path, target: Path, *, stamp: str, progress: Progress
) -> tuple[Copy, Path | None]:
    """Replace a database by a copy. The database is unchanged after an error.

    Returns:
        The copy, and the path of the replaced database, whose name contains `stamp`, or None.

    Raises:
        BackupDamagedError: The copy is not complete or not of tollgauge.
        BackupError: Another process has the database open, or a file cannot be written.
    """
    examined = examine(copy)
    if target.exists() and target.samefile(copy):
        raise BackupError("The copy and the database are the same file.")
    replaced: Path | None = None
    with temporary_file(target) as part:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _translate_errors(copy, "cannot be read"):
            _copy(copy, part, progress)
            _make_shrinkable(part)
        _flush_to_disk(part)
        # The old database is touched only now that the new one is complete and on the disk.
        if target.exists():
            replaced = _move_aside(target, stamp)
        part.replace(target)
        _flush_to_disk(target.parent)
    return examined, replaced


def _copy(source: Path, target: Path, progress: Progress) -> None:
    """Copy a database in one read transaction to one file without a journal."""
    target.touch(mode=0o600)
    uri = f"{source.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True, timeout=WAIT_S, isolation_level=None)) as read,
        closing(sqlite3.connect(target, isolation_level=None)) as write,
    ):
        # Held until the end: otherwise each write of the service would restart the copy.
        read.execute("BEGIN")
        read.execute("SELECT count(*) FROM sqlite_master").fetchone()
        read.backup(
            write, pages=STEP_PAGES, progress=lambda _, left, total: progress(total - left, total)
        )
        write.execute("PRAGMA journal_mode = DELETE")


def _make_shrinkable(path: Path) -> None:
    """Rewrite a copy that cannot return free pages to the disk yet (db/disk)."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (mode,) = db.execute("PRAGMA auto_vacuum").fetchone()
        if mode != INCREMENTAL:
            db.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
            db.execute("VACUUM")


def _move_aside(target: Path, stamp: str) -> Path:
    """Rename an unused database with its side files; return its new path."""
    _check_unused(target)
    replaced = target.with_name(f"{target.name}.replaced-{stamp}")
    if replaced.exists():
        raise BackupError(f"{replaced} already exists.", hint="Move it away first.")
    for side_file in _side_files(target):  # a damaged database may still have them
        if side_file.exists():
            suffix = side_file.name.removeprefix(target.name)
            side_file.replace(replaced.with_name(replaced.name + suffix))
    target.replace(replaced)
    return replaced


def _check_unused(target: Path) -> None:
    """Check that no other process has a database open, and write its log back into the file.

    Raises:
        BackupError: Another process has it open.
    """
    in_use = BackupError(
        f"Another process has {target} open.",
        hint="Stop all tollgauge processes that use it, then try again.",
    )
    with target.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _PENDING_BYTE)
        except OSError as error:
            raise in_use from error
    try:
        with closing(sqlite3.connect(target, timeout=0.2, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise in_use from error
    except sqlite3.DatabaseError:
        pass  # a damaged database is kept unchanged


@contextlib.contextmanager
def _translate_errors(path: Path, what: str) -> Iterator[None]:
    """Raise SQLite's errors as BackupError or BackupDamagedError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise BackupError(f"{path} {what} ({_name(error)}).", hint=_ROOM) from error
    except sqlite3.DatabaseError as error:
        raise BackupDamagedError(
            f"{path} is not a complete SQLite database.", hint=_OTHER
        ) from error


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or "SQLite's error"


def _side_files(path: Path) -> list[Path]:
    return [path.with_name(path.name + side) for side in _SIDES]


def _flush_to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's names, would survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_ROOM: Final = "Check that the disk has free space and that this user can write there."
_OTHER: Final = "Use an older copy."
