"""The store's transactions, against real databases."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.support.command_server import command as prepared_command
from tests.support.statements import execute, fetch, open_transaction

from tollgauge.db import meta
from tollgauge.db.engine import Store, StoreError, StoreUnavailable

ROOT = Path(__file__).resolve().parents[2]
OpenStore = Callable[[], Store]
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
POSTGRES_ONLY = pytest.mark.parametrize("database", [POSTGRES], indirect=True)


WRITER = """
import asyncio, sys
from tests.support.statements import open_transaction
from tollgauge.db import meta
from tollgauge.db.engine import Store

async def main() -> None:
    store = Store.open(sys.argv[1])
    await store.writing(meta.put, "a", "committed")
    async with open_transaction(store, writing=True) as run:
        await run(meta.put, "a", "lost")
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_killed_writer_loses_only_its_transaction(store: Store, database: str) -> None:
    writer = await asyncio.create_subprocess_exec(
        *prepared_command("-c", WRITER, database), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert writer.stdout is not None
    assert await writer.stdout.readline() == b"ready\n"
    writer.kill()
    await writer.wait()
    assert await store.writing(meta.get, "a") == "committed"
    await store.writing(meta.put, "a", "mine")


async def test_in_memory_store_keeps_written_rows() -> None:
    store = Store.open("sqlite:///:memory:")
    await store.migrate()
    await store.writing(meta.put, "a", "1")

    assert await asyncio.gather(*(store.reading(meta.get, "a") for _ in range(5))) == ["1"] * 5
    await store.close()


async def test_exception_rolls_back_the_transaction(store: Store) -> None:
    with pytest.raises(RuntimeError):  # noqa: PT012 - the block is the transaction
        async with open_transaction(store, writing=True) as run:
            await run(meta.put, "a", "1")
            raise RuntimeError
    assert await store.reading(meta.get, "a") is None


async def test_cancelled_writer_leaves_no_row_and_no_lock(store: Store) -> None:
    entered = asyncio.Event()

    async def write() -> None:
        async with open_transaction(store, writing=True) as run:
            await run(meta.put, "a", "1")
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(write())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.writing(meta.get, "a") is None
    await store.writing(meta.put, "a", "2")


async def test_read_sees_one_snapshot(store: Store, open_store: OpenStore) -> None:
    other = open_store()
    async with open_transaction(store, writing=False) as run:
        assert await run(meta.get, "a") is None
        await other.writing(meta.put, "a", "1")
        assert await run(meta.get, "a") is None
    assert await store.reading(meta.get, "a") == "1"


async def test_writers_that_read_first_do_not_lose_updates(
    store: Store, open_store: OpenStore
) -> None:
    stores = [store, open_store(), open_store()]
    await store.writing(meta.put, "n", "0")

    def add_one(tx: sa.Connection) -> None:
        meta.take_turn(tx, "n")
        meta.put(tx, "n", str(int(meta.get(tx, "n") or 0) + 1))

    async def add(one: Store) -> None:
        for _ in range(10):
            await one.writing(add_one)

    async with asyncio.TaskGroup() as group:
        for one in (*stores, *stores):
            group.create_task(add(one))
    assert await store.reading(meta.get, "n") == "60"


async def test_sqlite_is_opened_to_survive_a_power_failure(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'a.db'}")
    await store.migrate()
    names = ("journal_mode", "synchronous", "foreign_keys", "page_size", "journal_size_limit")
    pragmas = {name: (await fetch(store, sa.text(f"PRAGMA {name}"))).scalar_one() for name in names}
    await store.close()
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "page_size": 8192,
        "journal_size_limit": 64 * 1024 * 1024,
    }


async def test_locked_file_is_unavailable_until_it_is_unlocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollgauge.db.sqlite.BUSY_MS", 50)
    path = tmp_path / "a.db"
    store = Store.open(f"sqlite:///{path}")
    await store.migrate()
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        await store.writing(meta.put, "a", "1")
    assert caught.value.hint
    assert await store.reading(meta.get, "a") is None
    blocker.execute("ROLLBACK")
    blocker.close()
    await store.writing(meta.put, "a", "1")
    await store.close()


async def test_full_disk_is_unavailable(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'a.db'}", pool_size=1)
    await store.migrate()
    await execute(store, sa.text("PRAGMA max_page_count = 1"))
    with pytest.raises(StoreUnavailable):
        await store.writing(meta.put, "a", "x" * 10_000_000)
    await store.close()


async def test_missing_folder_is_unavailable_until_the_tables_are_created(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'no' / 'a.db'}")
    with pytest.raises(StoreUnavailable):
        await store.reading(meta.get, "a")
    assert not (tmp_path / "no").exists()
    await store.migrate()
    assert await store.reading(meta.get, "a") is None
    await store.close()


async def test_missing_server_is_unavailable(tmp_path: Path) -> None:
    for url in (
        f"postgresql+asyncpg://a@/b?host={tmp_path}",
        "postgresql://a@127.0.0.1:1/b",
    ):
        store = Store.open(url)
        with pytest.raises(StoreUnavailable):
            await store.reading(meta.get, "a")
        await store.close()


async def end_others(store: Store) -> None:
    """End every other connection to a store's database, and wait until they have ended."""
    ended = sa.text(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await execute(store, ended)


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_lost_connection_is_unavailable_and_the_next_one_works(
    store: Store, open_store: OpenStore
) -> None:
    other = open_store()
    with pytest.raises(StoreUnavailable):  # noqa: PT012 - the block is the transaction
        async with open_transaction(store, writing=False) as run:
            await run(meta.get, "a")
            await end_others(other)
            await asyncio.sleep(0.05)
            await run(meta.get, "a")
    assert await store.reading(meta.get, "a") is None


@POSTGRES_ONLY
@pytest.mark.parametrize("writing", [False, True])
async def test_connection_lost_before_commit_is_unavailable_without_a_write(
    store: Store, open_store: OpenStore, writing: bool
) -> None:
    other = open_store()
    with pytest.raises(StoreUnavailable):  # noqa: PT012 - the block is the transaction
        async with open_transaction(store, writing=writing) as run:
            if writing:
                await run(meta.put, "a", "1")
            await run(meta.get, "a")
            await end_others(other)
            await asyncio.sleep(0.05)
    assert await store.reading(meta.get, "a") is None


@POSTGRES_ONLY
async def test_connection_lost_during_setup_is_unavailable(
    store: Store, open_store: OpenStore
) -> None:
    """The server ends each connection as soon as it is idle, somewhere before its first work."""
    await store.writing(
        lambda tx: tx.exec_driver_sql(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET idle_session_timeout = 1',"
            " current_database()); END $$"
        ).close()
    )
    outcomes = [
        outcome
        for _ in range(40)
        for outcome in await asyncio.gather(
            *(open_store().reading(meta.get, "a") for _ in range(3)), return_exceptions=True
        )
    ]
    assert {type(outcome) for outcome in outcomes} <= {StoreUnavailable, type(None)}
    assert any(outcomes)


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_lost_idle_connections_are_replaced_transparently(
    store: Store, open_store: OpenStore
) -> None:
    await asyncio.gather(*(store.reading(meta.get, "a") for _ in range(4)))
    other = open_store()
    await end_others(other)
    await store.writing(meta.put, "a", "1")
    results = await asyncio.gather(*(store.reading(meta.get, "a") for _ in range(4)))
    assert results == ["1"] * 4


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_statement_timeout_is_unavailable(database: str) -> None:
    store = Store.open(database, statement_ms=20)
    with pytest.raises(StoreUnavailable):
        await fetch(store, sa.text("SELECT pg_sleep(5)"))
    await store.close()


@POSTGRES_ONLY
async def test_server_does_not_jit_compile_statements(store: Store) -> None:
    assert (await fetch(store, sa.text("SHOW jit"))).scalar_one() == "off"


async def test_wrong_statement_raises_the_driver_error(store: Store) -> None:
    with pytest.raises(sa.exc.DBAPIError):
        await execute(store, sa.text("SELECT nothing FROM meta"))


@POSTGRES_ONLY
async def test_reader_cannot_write_on_postgres(store: Store) -> None:
    with pytest.raises(sa.exc.DBAPIError):
        await store.reading(meta.put, "a", "1")


@pytest.mark.parametrize("url", ["", "mysql://a/b", "not a url"])
def test_unsupported_databases_are_rejected_with_a_hint(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store.open(url)
    assert "sqlite" in caught.value.hint
