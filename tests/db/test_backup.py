"""Backup and restore as an operator does them, while the service writes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.support.command_server import command as prepared_command
from tests.support.postgres import Postgres
from tests.support.statements import execute, fetch

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.db import backup, disk, postgres_backup
from tollgauge.db.backup import BackupDamagedError, BackupError
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger.attempts import payment_answer, payment_attempt

STAMP = "20260102T030405Z"
PAIRS = 40


def quiet(_done: int, _total: int) -> None:
    """Ignore the progress."""


@pytest.fixture
def running(empty_sqlite: Path, tmp_path: Path) -> Path:
    path = tmp_path / "tollgauge.sqlite"
    shutil.copy(empty_sqlite, path)
    return path


async def write_pairs(store: Store, first: int, count: int) -> None:
    """Two rows of the ledger a transaction: a copy of one moment never holds one without the
    other.
    """
    for number in range(first, first + count):
        row = {"payment_id": f"pay_{number}", "outcome": "x" * 200, "at": number}
        pair = [row | {"kind": kind, "ended_at": number} for kind in ("verify", "settle")]
        await execute(store, payment_attempt.insert(), pair)


def ledger(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT * FROM payment_attempt ORDER BY id").fetchall()


def beside(folder: Path, part: str) -> list[str]:
    return [name for name in sorted(path.name for path in folder.iterdir()) if part in name]


async def test_copy_made_during_writes_is_consistent(running: Path, tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{running}")
    loop = asyncio.get_running_loop()
    steps: list[tuple[int, int]] = []

    def write_meanwhile(done: int, total: int) -> None:
        first = 2 * PAIRS + len(steps) * 3
        asyncio.run_coroutine_threadsafe(write_pairs(store, first, 3), loop).result()
        steps.append((done, total))

    await write_pairs(store, 0, 2 * PAIRS)
    copy = tmp_path / "copy.sqlite"
    saved = await asyncio.to_thread(
        backup.save, running, copy, force=False, progress=write_meanwhile
    )
    await store.close()
    assert steps, "the copy was made in steps, and the service wrote between them"
    assert steps[-1][0] == steps[-1][1], "writes do not start the copy anew"
    rows = ledger(copy)
    assert len(rows) == 4 * PAIRS, "nothing that came after the first page"
    assert rows == ledger(running)[: len(rows)]
    assert saved.bytes == copy.stat().st_size
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert beside(tmp_path, "copy") == ["copy.sqlite"]


async def test_restored_copy_equals_the_original(running: Path, tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{running}")
    await write_pairs(store, 0, 3)
    copy = tmp_path / "copy.sqlite"
    backup.save(running, copy, force=False, progress=quiet)
    saved = ledger(running)
    await write_pairs(store, 3, 3)
    await store.close()
    later = ledger(running)
    _, kept = backup.restore(copy, running, stamp=STAMP, progress=quiet)
    assert ledger(running) == saved
    assert kept is not None
    assert kept.name == f"tollgauge.sqlite.replaced-{STAMP}"
    assert ledger(kept) == later
    again = Store.open(f"sqlite:///{running}")
    await again.migrate()
    await write_pairs(again, 9, 1)
    await again.close()


async def test_restored_copy_of_an_older_file_can_return_pages(
    running: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.sqlite"
    with closing(sqlite3.connect(running, isolation_level=None)) as old:
        for statement in ("journal_mode = DELETE", "auto_vacuum = NONE"):
            old.execute(f"PRAGMA {statement}")
        old.execute("VACUUM")
    backup.save(running, copy, force=False, progress=quiet)
    backup.restore(copy, running, stamp=STAMP, progress=quiet)
    with closing(sqlite3.connect(running)) as restored:
        assert restored.execute("PRAGMA auto_vacuum").fetchone() == (disk.INCREMENTAL,)
        assert restored.execute("PRAGMA page_size").fetchone() == (8192,)
        assert restored.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_copy_is_restored_without_a_previous_database(running: Path, tmp_path: Path) -> None:
    copy, elsewhere = tmp_path / "copy.sqlite", tmp_path / "new" / "folder" / "t.sqlite"
    backup.save(running, copy, force=False, progress=quiet)
    _, kept = backup.restore(copy, elsewhere, stamp=STAMP, progress=quiet)
    assert kept is None
    assert ledger(elsewhere) == ledger(running)


async def test_database_in_use_is_not_replaced(running: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    backup.save(running, copy, force=False, progress=quiet)
    store = Store.open(f"sqlite:///{running}")
    await fetch(store, sa.text("SELECT 1 FROM payment"))
    # In another process, because a process does not block on its own locks.
    child = await asyncio.create_subprocess_exec(
        *prepared_command("-c", RESTORE, str(copy), str(running)),
        stdout=asyncio.subprocess.PIPE,
    )
    errors, _ = await child.communicate()
    await write_pairs(store, 0, 1)
    await store.close()
    assert f"Another process has {running} open." in errors.decode()
    assert len(ledger(running)) == 2
    assert beside(tmp_path, "replaced") == beside(tmp_path, ".part") == []


RESTORE = """
import sys
from pathlib import Path
from tollgauge.db import backup
try:
    backup.restore(Path(sys.argv[1]), Path(sys.argv[2]), stamp="x", progress=lambda *_: None)
except backup.BackupError as error:
    print(error)
"""


def test_damaged_database_is_not_copied_but_can_be_replaced(running: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.sqlite", tmp_path / "bad.sqlite"
    backup.save(running, good, force=False, progress=quiet)
    data = bytearray(running.read_bytes())
    data[16_384 * 2 : 16_384 * 3] = os.urandom(16_384)
    running.write_bytes(data)
    with pytest.raises(BackupDamagedError):
        backup.save(running, bad, force=False, progress=quiet)
    assert not bad.exists()
    running.write_bytes(b"no database at all")
    _, kept = backup.restore(good, running, stamp=STAMP, progress=quiet)
    assert kept is not None
    assert kept.read_bytes() == b"no database at all"
    assert ledger(running) == []


def test_existing_file_is_overwritten_only_with_force(running: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    copy.write_text("precious")
    with pytest.raises(BackupError, match="already exists"):
        backup.save(running, copy, force=False, progress=quiet)
    assert copy.read_text() == "precious"
    backup.save(running, copy, force=True, progress=quiet)
    assert ledger(copy) == []
    for target, words in (
        (running, "the same file"),
        (tmp_path, "is a folder"),
        (tmp_path / "gone" / "x", "The folder .* does not exist"),
    ):
        with pytest.raises(BackupError, match=words):
            backup.save(running, target, force=True, progress=quiet)
    with pytest.raises(BackupError, match="does not exist"):
        backup.save(tmp_path / "gone", tmp_path / "x", force=False, progress=quiet)


def test_only_a_complete_tollgauge_database_is_restored(running: Path, tmp_path: Path) -> None:
    before = running.read_bytes()
    copy = tmp_path / "copy.sqlite"
    backup.save(running, copy, force=False, progress=quiet)
    cut, text, other, newer = (tmp_path / name for name in ("cut", "text", "other", "newer"))
    cut.write_bytes(copy.read_bytes()[: 3 * 16_384])
    text.write_text("this is a letter " * 500)
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE notes (words)")
    shutil.copy(copy, newer)
    with closing(sqlite3.connect(newer)) as db:
        db.execute("UPDATE schema_version SET version = '9999'")
        db.commit()
    for path, words in (
        (cut, "damaged|not a complete"),
        (text, "not a complete SQLite database"),
        (other, "not a tollgauge database"),
        (newer, "schema version 9999, which this program does not support"),
    ):
        with pytest.raises(BackupDamagedError, match=words):
            backup.restore(path, running, stamp=STAMP, progress=quiet)
    with pytest.raises(BackupError, match="does not exist"):
        backup.restore(tmp_path / "gone", running, stamp=STAMP, progress=quiet)
    assert running.read_bytes() == before
    assert beside(tmp_path, "replaced") == []


@pytest.mark.postgres
async def test_dump_is_restored_only_into_an_empty_database(
    postgres: Postgres, tmp_path: Path
) -> None:
    for name in ("kept", "fresh"):
        template = f" TEMPLATE {postgres.template}" if name == "kept" else ""
        postgres.sql(f"CREATE DATABASE {name}{template}")
    store, dump = Store.open(postgres.url("kept")), tmp_path / "copy.dump"
    await write_pairs(store, 0, 3)
    saved = await asyncio.to_thread(postgres_backup.dump, postgres.url("kept"), dump, force=False)
    await store.close()
    assert stat.S_IMODE(dump.stat().st_mode) == 0o600
    with pytest.raises(BackupError, match="already exists"):
        postgres_backup.dump(postgres.url("kept"), dump, force=False)
    with pytest.raises(BackupError, match="only into an empty database"):
        await postgres_backup.restore(dump, postgres.url("kept"))
    cut = tmp_path / "cut.dump"
    cut.write_bytes(dump.read_bytes()[:-3_000])
    with pytest.raises(BackupDamagedError):
        await postgres_backup.restore(cut, postgres.url("fresh"))
    assert await postgres_backup.restore(dump, postgres.url("fresh")) == saved
    again = Store.open(postgres.url("fresh"))
    await again.migrate()
    count = sa.select(sa.func.count()).select_from(payment_attempt)
    assert (await fetch(again, count)).scalar_one() == 6
    await again.close()


def test_missing_pg_dump_is_reported_with_its_command_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    url = "postgresql://me:hunter2@db.example.com:5433/trust?sslmode=require"
    with pytest.raises(BackupError, match="pg_dump is not installed") as caught:
        postgres_backup.dump(url, tmp_path / "copy.dump", force=False)
    assert caught.value.hint.endswith(
        "PGPASSWORD=… PGHOST=db.example.com PGPORT=5433 PGUSER=me PGDATABASE=trust "
        f"PGSSLMODE=require pg_dump --format=custom --no-owner --no-privileges "
        f"--file={tmp_path / 'copy.dump'}"
    )
    assert "hunter2" not in str(caught.value) + caught.value.hint
    assert not list(tmp_path.iterdir())


def test_large_file_is_rejected_by_its_first_bytes(tmp_path: Path) -> None:
    large = tmp_path / "large.dump"
    with large.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    try:
        with pytest.raises(BackupDamagedError, match="is not a pg_dump file"):
            postgres_backup.examine(large)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1024 * 1024


async def fill(path: Path) -> None:
    """Rows of many kinds: texts, bytes, truths, keys that are counted up, rows that need others."""
    resource = "https://api.example.com/é"
    endpoint = Endpoint(
        id=endpoint_id(resource),
        resource=resource,
        host="api.example.com",
        first_seen=DAY_MS,
        last_seen=DAY_MS,
        simulated=True,
    )
    store = Store.open(f"sqlite:///{path}")
    await store.writing(endpoints.insert, endpoint)
    await execute(store, payment_answer.insert(), ANSWER)
    await write_pairs(store, 0, 1_200)
    await store.close()


ANSWER = {"payment_id": "pay_1", "status": 200, "body": b"\x00\xff"}


def contents(connection: sa.Connection) -> dict[str, list[tuple[object, ...]]]:
    tables = sa.MetaData()
    tables.reflect(connection)
    return {
        table.name: sorted(map(tuple, connection.execute(sa.select(table))), key=repr)
        for table in tables.sorted_tables
    }


async def copy_of_many(running: Path, folder: Path) -> Path:
    await fill(running)
    copy = folder / "move.sqlite"
    backup.save(running, copy, force=False, progress=quiet)
    return copy


@pytest.mark.postgres
async def test_sqlite_copy_moves_to_postgresql_with_every_row(
    running: Path, tmp_path: Path, postgres: Postgres
) -> None:
    copy = await copy_of_many(running, tmp_path)
    postgres.sql("CREATE DATABASE moved")
    progress: list[tuple[int, int]] = []
    url = postgres.url("moved")
    saved = await postgres_backup.move_from_sqlite(
        copy, url, progress=lambda *step: progress.append(step)
    )
    assert saved.rows["endpoint"] == 1
    assert progress[-1][0] == progress[-1][1] >= 2_403
    store = Store.open(url)
    await store.migrate()
    before = Store.open(f"sqlite:///{copy}")
    assert await store.reading(contents) == await before.reading(contents)
    await before.close()
    await write_pairs(store, 5_000, 1)  # the keys continue
    newest = sa.select(sa.func.max(payment_attempt.c.id))
    assert (await fetch(store, newest)).scalar_one() == 2_402
    await store.close()
    with pytest.raises(BackupError, match="only into an empty database"):
        await postgres_backup.move_from_sqlite(copy, url, progress=quiet)


@pytest.mark.postgres
async def test_failed_move_leaves_the_database_empty(
    running: Path, tmp_path: Path, postgres: Postgres
) -> None:
    copy = await copy_of_many(running, tmp_path)
    postgres.sql("CREATE DATABASE stopped")

    def stop(done: int, _total: int) -> None:
        if done > 1_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await postgres_backup.move_from_sqlite(copy, postgres.url("stopped"), progress=stop)
    await postgres_backup.check_empty(postgres.url("stopped"))


async def test_incomplete_copy_is_not_moved(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    assert postgres_backup.is_sqlite_file(damaged)
    assert not postgres_backup.is_sqlite_file(tmp_path / "none")
    with pytest.raises(BackupDamagedError):
        await postgres_backup.move_from_sqlite(
            damaged, "postgresql://nobody@localhost/none", progress=quiet
        )
