"""Functions of the store on connections that coroutines do not hold themselves."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tollgauge.store import meta
from tollgauge.store.engine import Store, StoreUnavailable


async def test_a_function_is_one_transaction(store: Store) -> None:
    await store.writing(meta.put, "a", "1")
    assert await store.reading(meta.get, "a") == "1"


async def test_a_function_that_fails_changes_nothing(store: Store) -> None:
    def half(tx: Connection) -> None:
        meta.put(tx, "a", "1")
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        await store.writing(half)
    assert await store.reading(meta.get, "a") is None


async def test_a_transaction_that_has_ended_takes_no_work(store: Store) -> None:
    async with store.write() as tx:
        await meta.put(tx, "a", "1")
    with pytest.raises(RuntimeError, match="has ended"):
        await meta.put(tx, "a", "2")
    assert await store.reading(meta.get, "a") == "1"


async def test_a_function_whose_caller_is_gone_happens_wholly_and_blocks_nobody(
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
        async with asyncio.timeout(5), store.write() as tx:
            assert await meta.get(tx, "a") == await meta.get(tx, "b")
            await meta.drop(tx, "a")
            await meta.drop(tx, "b")


async def test_a_store_in_memory_outlives_a_cancelled_reader() -> None:
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


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_store_in_memory_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store.open("sqlite://")
    await store.migrate()
    assert left_in(tmp_path)
    await store.close()
    assert not left_in(tmp_path)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_readers_take_turns_and_do_not_wait_for_ever(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(database, pool_size=1)
    assert await asyncio.gather(*(store.reading(meta.get, "a") for _ in range(9))) == [None] * 9
    monkeypatch.setattr("tollgauge.store.sqlite.WAIT_S", 0.01)
    async with store.read():
        with pytest.raises(StoreUnavailable, match="connections"):
            await store.reading(meta.get, "a")
    assert await store.reading(meta.get, "a") is None
    await store.close()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_nobody_waits_for_the_work_of_a_reader_that_left(database: str) -> None:
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
