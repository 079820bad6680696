"""Store functions whose connections are managed by the store."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, OperationalError
from tests.support.statements import fetch, open_transaction

from tollgauge.db import meta, schema, sqlite
from tollgauge.db.engine import Store, StoreUnavailable
from tollgauge.db.sqlite import run_transaction
from tollgauge.store.endpoints import endpoints


async def test_function_runs_in_one_transaction(store: Store) -> None:
    await store.writing(meta.put, "a", "1")
    assert await store.reading(meta.get, "a") == "1"


async def test_failing_function_changes_nothing(store: Store) -> None:
    def half(tx: Connection) -> None:
        meta.put(tx, "a", "1")
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        await store.writing(half)
    assert await store.reading(meta.get, "a") is None


async def test_function_of_a_cancelled_caller_completes_without_blocking_others(
    store: Store,
) -> None:
    def both(tx: Connection) -> None:
        meta.put(tx, "a", "1")
        meta.put(tx, "b", "1")

    for number in range(20):
        task = asyncio.create_task(store.writing(both))
        await asyncio.wait({task}, timeout=number / 10_000)
        task.cancel()
        await asyncio.wait({task})
        async with asyncio.timeout(5):
            assert await store.reading(lambda tx: meta.get(tx, "a") == meta.get(tx, "b"))
            await store.writing(meta.drop, "a")
            await store.writing(meta.drop, "b")


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_work_that_swallows_a_failed_statement_is_rolled_back(store: Store) -> None:
    def careless(tx: Connection) -> None:
        with pytest.raises(IntegrityError):
            tx.execute(schema.meta.insert(), {"key": "a", "value": "2"})

    await store.writing(meta.put, "a", "1")
    with pytest.raises(RuntimeError, match="nothing was written"):
        await store.writing(careless)
    assert await store.reading(meta.get, "a") == "1"


async def test_read_sees_earlier_writes(store: Store) -> None:
    for number in range(3):
        await store.writing(meta.put, "a", str(number))
        assert await store.reading(meta.get, "a") == str(number)


async def test_failed_read_does_not_affect_the_next(store: Store) -> None:
    def fails(tx: Connection) -> None:
        meta.get(tx, "a")
        raise LookupError

    with pytest.raises(LookupError):
        await store.reading(fails)
    await store.writing(meta.put, "a", "1")
    assert await store.reading(meta.get, "a") == "1"


@pytest.mark.parametrize("looked_up", [meta.get, endpoints.get])
async def test_read_of_a_locked_file_does_not_block_the_event_loop(
    tmp_path: Path, looked_up: Callable[[Connection, str], object]
) -> None:
    url = f"sqlite:///{tmp_path / 'held.db'}"
    before = Store.open(url)
    await before.migrate()
    await before.close()
    holder = sqlite3.connect(tmp_path / "held.db", isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    holder.execute("COMMIT")
    store = Store.open(url)
    asked = asyncio.create_task(store.reading(looked_up, "a"))
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert not asked.done()
    holder.close()
    assert await asked is None
    await store.close()


RESTORER = """
import fcntl, sys
with open(sys.argv[1], "r+b", buffering=0) as index:
    fcntl.lockf(index, fcntl.LOCK_EX, 3, 120)  # to write, to checkpoint, to recover
    index.write(bytes(96))  # both copies of the header: it is to be made anew
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_read_of_a_file_in_recovery_does_not_block_the_event_loop(
    store: Store, database: str
) -> None:
    """As after a crash: the first connection rebuilds the index of the write-ahead log."""
    await store.writing(meta.put, "a", "1")
    assert await store.reading(meta.get, "a") == "1"
    index = database.removeprefix("sqlite:///") + "-shm"
    restorer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RESTORER, index, stdin=PIPE, stdout=PIPE
    )
    assert restorer.stdout is not None
    assert await restorer.stdout.readline() == b"ready\n"
    asked = asyncio.create_task(store.reading(meta.get, "a"))
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert not asked.done()
    await restorer.communicate(b"")
    assert await asked == "1"


async def test_in_memory_store_survives_a_cancelled_reader() -> None:
    store = Store.open("sqlite://")
    await store.migrate()
    await store.writing(meta.put, "a", "1")
    waiting, done = asyncio.Event(), threading.Event()

    def slow(_: Connection) -> None:
        loop.call_soon_threadsafe(waiting.set)
        done.wait(5)

    loop = asyncio.get_running_loop()
    task = asyncio.create_task(store.reading(slow))
    await waiting.wait()
    task.cancel()
    done.set()
    await asyncio.wait({task})
    assert await store.reading(meta.get, "a") == "1"
    await store.close()


def list_files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_in_memory_store_deletes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store.open("sqlite://")
    await store.migrate()
    assert list_files(tmp_path)
    await store.close()
    assert not list_files(tmp_path)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_readers_queue_with_a_timeout(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(database, pool_size=1)
    assert await asyncio.gather(*(store.reading(meta.get, "a") for _ in range(9))) == [None] * 9
    monkeypatch.setattr("tollgauge.db.sqlite.WAIT_S", 0.01)
    async with open_transaction(store, writing=False):
        with pytest.raises(StoreUnavailable, match="connections"):
            await store.reading(meta.get, "a")
    assert await store.reading(meta.get, "a") is None
    await store.close()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_work_of_a_cancelled_reader_is_not_waited_for(database: str) -> None:
    store = Store.open(database, pool_size=2)
    begun, ends = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(_: Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        ends.wait(30)

    left = asyncio.create_task(store.reading(slow))
    await begun.wait()
    left.cancel()
    await asyncio.wait({left})
    try:
        async with asyncio.timeout(10):
            assert [await store.reading(meta.get, "a") for _ in range(5)] == [None] * 5
    finally:
        ends.set()
    await store.close()


async def both(store: Store, number: int) -> None:
    """Write one of many rows; every third fails after it has written."""

    def work(tx: Connection) -> None:
        meta.put(tx, f"row {number}", "written")
        if number % 3 == 0:
            raise ArithmeticError(number)

    await store.writing(work)


async def test_failing_function_in_a_shared_commit_does_not_fail_others(store: Store) -> None:
    outcomes = await asyncio.gather(*(both(store, n) for n in range(30)), return_exceptions=True)
    for number, outcome in enumerate(outcomes):
        kept = await store.reading(meta.get, f"row {number}")
        if number % 3:
            assert (outcome, kept) == (None, "written")
        else:
            assert isinstance(outcome, ArithmeticError)
            assert (outcome.args, kept) == ((number,), None)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_queued_writers_share_a_commit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = 0

    def count_call(*args: Any, **kwargs: Any) -> Any:
        nonlocal transactions
        transactions += 1
        return run_transaction(*args, **kwargs)

    monkeypatch.setattr(sqlite, "run_transaction", count_call)
    await asyncio.gather(*(store.writing(meta.put, f"row {n}", "written") for n in range(50)))
    assert 1 <= transactions <= 3
    assert await store.reading(meta.get, "row 49") == "written"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_failed_commit_fails_all_its_functions(store: Store) -> None:
    await store.writing(lambda tx: tx.exec_driver_sql("PRAGMA max_page_count = 1").close())
    wishes = [store.writing(meta.put, f"row {n}", "x" * 1_000_000) for n in range(4)]
    outcomes = await asyncio.gather(*wishes, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 4
    await store.writing(lambda tx: tx.exec_driver_sql("PRAGMA max_page_count = 100000").close())
    assert [await store.reading(meta.get, f"row {n}") for n in range(4)] == [None] * 4
    await store.writing(meta.put, "a", "1")
    assert await store.reading(meta.get, "a") == "1"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_statements_after_a_full_disk_write_nothing(store: Store) -> None:
    await store.writing(lambda tx: tx.exec_driver_sql("PRAGMA max_page_count = 1").close())

    def careless(tx: Connection) -> None:
        meta.put(tx, "before", "1")
        with pytest.raises(OperationalError):
            meta.put(tx, "full", "x" * 1_000_000)
        meta.put(tx, "after", "1")

    with pytest.raises(sa.exc.StatementError, match="has ended"):
        await store.writing(careless)
    assert await store.reading(meta.get, "before") is None
    assert await store.reading(meta.get, "after") is None


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_connection_in_use_during_close_is_closed_afterwards(
    store: Store, open_store: Callable[[], Store]
) -> None:
    other = open_store()
    async with open_transaction(other, writing=True) as run:
        await run(meta.put, "a", "1")
        await other.close()
    others = sa.text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND application_name = 'tollgauge'"
    )
    assert await store.reading(meta.get, "a") == "1"
    for _ in range(500):  # a backend takes a moment to end
        if (await fetch(store, others)).scalar_one() == 0:
            break
        await asyncio.sleep(0.02)
    assert (await fetch(store, others)).scalar_one() == 0


def test_waiter_of_an_ended_loop_does_not_block_the_next_loop(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'a.db'}")
    ended = threading.Event()

    async def ends_early() -> None:
        await store.migrate()
        slow = asyncio.create_task(store.writing(lambda _: ended.wait(10)))
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(store.writing(meta.put, "a", "1"))
        await asyncio.sleep(0.01)
        assert not slow.done()
        assert not waiting.done()
        ended.set()

    async def next_one() -> str | None:
        async with asyncio.timeout(5):
            await store.writing(meta.put, "b", "1")
            value = await store.reading(meta.get, "b")
        await store.close()
        return value

    asyncio.run(ends_early())
    assert asyncio.run(next_one()) == "1"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_cancelled_close_completes_running_transactions(database: str) -> None:
    store, other = Store.open(database), Store.open(database)
    begun, ends = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(tx: Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        ends.wait(10)
        meta.put(tx, "a", "1")

    working = asyncio.create_task(store.writing(slow))
    await begun.wait()
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0.01)
    closing.cancel()
    ends.set()
    await asyncio.wait({working, closing})
    assert await other.reading(meta.get, "a") == "1"
    await store.close()
    await other.close()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_kept_error_does_not_hold_a_snapshot_open(database: str) -> None:
    store, other = Store.open(database, pool_size=1), Store.open(database)
    for number in range(3):
        await store.writing(meta.put, f"row {number}", "1")

    def break_transaction(tx: Connection) -> None:
        rows = tx.exec_driver_sql("SELECT key FROM meta")
        raise KeyError(rows.fetchone())

    kept = []
    for how in (store.reading, store.writing):
        with pytest.raises(KeyError) as caught:
            await how(break_transaction)
        kept.append(caught.value)
    await other.writing(meta.put, "late", "1")
    assert await store.reading(meta.get, "late") == "1"
    assert await store.reading(meta.get, "late") == "1"
    await store.writing(meta.put, "later", "1")
    assert len(kept) == 2
    await store.close()
    await other.close()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_stop_iteration_is_raised_as_runtime_error(store: Store) -> None:
    def bare(_: Connection) -> int:
        return next(iter(()))

    async with asyncio.timeout(5):
        for how in (store.reading, store.writing):
            with pytest.raises(RuntimeError):
                await how(bare)
        both = await asyncio.gather(
            store.writing(bare), store.writing(meta.put, "a", "1"), return_exceptions=True
        )
    assert (type(both[0]), both[1]) == (RuntimeError, None)
    assert await store.reading(meta.get, "a") == "1"
