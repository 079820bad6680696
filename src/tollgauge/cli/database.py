"""Commands for the whole database: `migrate`, `backup`, `restore`."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tollgauge.cli.terminal import (
    BAD,
    ConfigFile,
    Json,
    load_config,
    note,
    print_error,
    progress_bar,
    run_async,
    show,
)

if TYPE_CHECKING:
    from tollgauge.config import Config
    from tollgauge.db.backup import Copy


def migrate(config: ConfigFile = None, as_json: Json = False) -> None:
    """Migrate the database to the newest version. Starting the service does this too."""
    from tollgauge.db.engine import newest_version

    with progress_bar() as progress:
        progress("migrating the database", 0, 0)
        run_async(_migrate(load_config(config)))
    newest = newest_version()
    text = f"The database is up to date (version {newest})."
    show({"version": newest}, [text], as_json=as_json)


async def _migrate(config: Config) -> None:
    from tollgauge.db.engine import Store

    settings = config.store
    store = Store.open(settings.url, pool_size=1, statement_ms=settings.statement_ms)
    try:
        await store.migrate()
    finally:
        await store.close()


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Copy the database to one file while the service runs, and check the copy.

    Uses pg_dump on PostgreSQL. Exit 1 if the database is damaged.
    """
    from tollgauge.db import backup as files
    from tollgauge.db import postgres_backup
    from tollgauge.db.engine import is_sqlite, parse_url

    url = load_config(config).store.url
    try:
        if is_sqlite(parse_url(url)):
            with progress_bar() as progress:
                pages = partial(progress, "pages copied")
                copy = files.save(files.database_file(url), file, force=force, progress=pages)
        else:
            note("Running pg_dump.")
            copy = postgres_backup.dump(url, file, force=force)
    except files.BackupDamagedError as error:
        print_error(error)
        raise typer.Exit(BAD) from error
    run_async(_note_backup(url))
    _show_copy(copy, as_json=as_json)


async def _note_backup(url: str) -> None:
    """Record the backup in the database, for `tollgauge status`."""
    from tollgauge.db import meta
    from tollgauge.db.engine import Store, StoreUnavailable
    from tollgauge.monitor.status import BACKUP_KEY
    from tollgauge.service_status import now_ms

    store = Store.open(url, pool_size=1)
    try:
        await store.writing(meta.put, BACKUP_KEY, str(now_ms()))
    except StoreUnavailable as error:
        text = f"The copy is good, but it was not recorded for `tollgauge status`: {error}"
        note(text)
    finally:
        await store.close()


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `tollgauge backup` wrote.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Replace the database, which must not be in use, with a backup.

    The replaced database is kept in the same folder. On PostgreSQL the
    database must be empty; a backup of SQLite is copied to it row by row.
    Exit 1 if the backup is damaged.
    """
    from tollgauge.db import backup as files
    from tollgauge.db import postgres_backup
    from tollgauge.db.engine import is_sqlite, parse_url

    url, replaced = load_config(config).store.url, None
    try:
        if is_sqlite(parse_url(url)):
            with progress_bar() as progress:
                copy, replaced = files.restore(
                    file,
                    files.database_file(url),
                    stamp=datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"),
                    progress=partial(progress, "pages copied"),
                )
        elif postgres_backup.is_sqlite_file(file):
            with progress_bar() as progress:
                rows = partial(progress, "rows moved")
                copy = run_async(postgres_backup.move_from_sqlite(file, url, progress=rows))
        else:
            note("Running pg_restore.")
            copy = run_async(postgres_backup.restore(file, url))
    except files.BackupDamagedError as error:
        print_error(error)
        raise typer.Exit(BAD) from error
    _show_copy(copy, as_json=as_json, restored=True, replaced=replaced)


def _show_copy(
    copy: Copy, *, as_json: bool, restored: bool = False, replaced: Path | None = None
) -> None:
    document = {
        "file": str(copy.path),
        "bytes": copy.bytes,
        "version": copy.version,
        "rows": copy.rows,
    }
    more = {"replaced": None if replaced is None else str(replaced)} if restored else {}
    verb = "restored" if restored else "wrote"
    lines = [
        f"{verb} {copy.path}: {copy.bytes} bytes, checked, version {copy.version}",
        *(f"{name:10} {count}" for name, count in copy.rows.items()),
    ]
    if replaced is not None:
        lines.append(f"The replaced database is kept in {replaced}")
    show(document | more, lines, as_json=as_json)
