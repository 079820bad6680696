"""Backup: an SQLite database as one whole file, and back.

Rules:
- a copy is of one moment, while the service goes on: the read transaction that it is made in is
  held from the first page to the last;
- a copy gets its name only when it is whole, checked and on the disk; it is readable by its owner
  alone, because a ledger is in it;
- only a file of ours goes back in place: whole, and of a version that this program knows. Older
  ones are brought up to date by the next start, and can give space back from then on;
- nothing is put in the place of a database that another process has open, and the replaced
  database is kept beside it.

PostgreSQL brings its own tools for this; see db/postgres_backup.
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
from tollgauge.db.engine import is_sqlite, parse_url
from tollgauge.db.migrations import VERSION_TABLE, newest_version

Progress = Callable[[int, int], None]
"""Called with how many pages are copied, and of how many."""

STEP_PAGES: Final = 256
WAIT_S: Final = 5.0
TABLES: Final = ("endpoint", "probe", "score", "payment", "watch")
"""Tables that every version of ours has had since it has payments, as far as a summary needs."""
_PENDING_BYTE: Final = 0x40000000
_LOCK_BYTES: Final = 512
"""Where SQLite's locks are in a file (its file format, section 1.2, the lock-byte page)."""
_SIDES: Final = ("-wal", "-shm", "-journal")


class BackupError(TollgaugeError):
    """A copy that cannot be made or put in place, for a reason outside of the copy."""


class BackupDamagedError(TollgaugeError):
    """A file that is no whole copy of a database of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A verified backup: its size in bytes, the version of its tables, and rows by table."""

    path: Path
    bytes: int
    version: str
    rows: dict[str, int]


def database_file(url: str) -> Path:
    """The file of an SQLite database. Raises BackupError for a database in memory."""
    parsed = parse_url(url)
    if not is_sqlite(parsed) or parsed.database in (None, "", ":memory:"):
        raise BackupError(
            "This database is no file, so there is nothing to copy.",
            hint="Set store.url (or DATABASE_URL) to the database of the service.",
        )
    return Path(str(parsed.database))


def check_target(target: Path, *, force: bool) -> None:
    """Raises BackupError unless a copy may be written to `target`."""
    if target.is_dir():
        raise BackupError(f"{target} is a folder.", hint="Name the file to write.")
    if target.exists() and not force:
        raise BackupError(f"{target} exists already.", hint="Name another file, or add --force.")
    if not target.parent.is_dir():
        raise BackupError(f"There is no folder {target.parent}.", hint="Make it first.")


def save(source: Path, target: Path, *, force: bool, progress: Progress) -> Copy:
    """Copy a database, which may be in use, to one file. Raises BackupError where that cannot be
    done, and BackupDamagedError where the database itself is damaged; no file is left then.
    """
    check_target(target, force=force)
    if not source.is_file():
        raise BackupError(f"There is no database {source}.", hint="Check store.url.")
    if target.exists() and target.samefile(source):
        raise BackupError("The copy and the database are the same file.")
    with written_beside(target) as part:
        with _translated(source, "cannot be copied"):
            _copy(source, part, progress)
        copy = examine(part)
        _flush_to_disk(part)
        part.replace(target)
        _flush_to_disk(target.parent)
    return replace(copy, path=target)


@contextlib.contextmanager
def written_beside(target: Path) -> Iterator[Path]:
    """The path of an unfinished file beside `target`, which takes its name when it is whole. What
    is left of it at the end is removed. Raises an OSError of the block as BackupError.
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
    """Read a copy from its first page to its last. Raises BackupError where there is no file, and
    BackupDamagedError where it is not whole or not of ours.
    """
    if not path.is_file():
        raise BackupError(f"There is no file {path}.", hint="Name a file that `backup` wrote.")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            if db.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
                raise BackupDamagedError(f"{path} is damaged.", hint=_OTHER)
            names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            if VERSION_TABLE not in names or "endpoint" not in names:
                raise BackupDamagedError(f"{path} is no database of tollgauge.", hint=_OTHER)
            (version,) = db.execute(f"SELECT version FROM {VERSION_TABLE}").fetchone()  # noqa: S608
            rows = {
                name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608 - TABLES
                for name in TABLES
                if name in names
            }
    except (sqlite3.DatabaseError, TypeError) as error:
        raise BackupDamagedError(f"{path} is no whole SQLite database.", hint=_OTHER) from error
    return copy_of_version(path, version, rows)


def copy_of_version(path: Path, version: str, rows: dict[str, int]) -> Copy:
    """A copy that was read to its end. Raises BackupDamagedError for a version of a newer
    program.
    """
    if version != newest_version():
        raise BackupDamagedError(
            f"{path} is of version {version}, which this program does not know.",
            hint="A newer tollgauge or an unreleased one wrote it: restore it with that one.",
        )
    return Copy(path=path, bytes=path.stat().st_size, version=version, rows=rows)


def restore(
    copy: Path, target: Path, *, stamp: str, progress: Progress
) -> tuple[Copy, Path | None]:
    """Put a copy in the place of a database; the copy, and the path where the replaced database is
    kept, None if there was none. `stamp` goes into the name of that path.

    Raises BackupDamagedError for a copy that is not whole or not of ours, and BackupError where
    another process has the database open or a file cannot be written; the database stays then.
    """
    examined = examine(copy)
    if target.exists() and target.samefile(copy):
        raise BackupError("The copy and the database are the same file.")
    replaced: Path | None = None
    with written_beside(target) as part:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _translated(copy, "cannot be read"):
            _copy(copy, part, progress)
            _make_shrinkable(part)
        _flush_to_disk(part)
        if target.exists():
            replaced = _move_aside(target, stamp)
        part.replace(target)
        _flush_to_disk(target.parent)
    return examined, replaced


def _copy(source: Path, target: Path, progress: Progress) -> None:
    """A copy of one moment, in one file without a journal beside it."""
    target.touch(mode=0o600)
    uri = f"{source.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True, timeout=WAIT_S, isolation_level=None)) as read,
        closing(sqlite3.connect(target, isolation_level=None)) as write,
    ):
        # Held to the end: else each write of the service would start the copy again.
        read.execute("BEGIN")
        read.execute("SELECT count(*) FROM sqlite_master").fetchone()
        read.backup(
            write, pages=STEP_PAGES, progress=lambda _, left, total: progress(total - left, total)
        )
        write.execute("PRAGMA journal_mode = DELETE")


def _make_shrinkable(path: Path) -> None:
    """Rewrite a copy of a file from before files could give space back (db/disk)."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (mode,) = db.execute("PRAGMA auto_vacuum").fetchone()
        if mode != INCREMENTAL:
            db.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
            db.execute("VACUUM")


def _move_aside(target: Path, stamp: str) -> Path:
    """Rename a database that nobody has open, together with its side files; returns its path."""
    _check_unused(target)
    replaced = target.with_name(f"{target.name}.replaced-{stamp}")
    if replaced.exists():
        raise BackupError(f"{replaced} exists already.", hint="Move it away first.")
    for side_file in _side_files(target):  # a damaged database may still have them
        if side_file.exists():
            suffix = side_file.name.removeprefix(target.name)
            side_file.replace(replaced.with_name(replaced.name + suffix))
    target.replace(replaced)
    return replaced


def _check_unused(target: Path) -> None:
    """Make sure that no other process has a database open, and put what its log holds into it.
    Raises BackupError.
    """
    in_use = BackupError(
        f"Another process has {target} open.",
        hint="Stop every tollgauge process that works on it, then try again.",
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
        pass  # damaged: it is kept as it is


@contextlib.contextmanager
def _translated(path: Path, what: str) -> Iterator[None]:
    """Raise SQLite's errors as BackupError or BackupDamagedError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise BackupError(f"{path} {what} ({_name(error)}).", hint=_ROOM) from error
    except sqlite3.DatabaseError as error:
        raise BackupDamagedError(f"{path} is no whole SQLite database.", hint=_OTHER) from error


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or "SQLite's error"


def _side_files(path: Path) -> list[Path]:
    return [path.with_name(path.name + side) for side in _SIDES]


def _flush_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_ROOM: Final = "Check that the disk has room and that this user may write there."
_OTHER: Final = "Take an older copy."
