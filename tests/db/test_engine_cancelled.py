"""A cancelled transaction ends immediately, even if a reference to its traceback remains."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from tollgauge.db import meta
from tollgauge.db.engine import Store


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_cancelled_writer_releases_its_lock(open_store: Callable[[], Store]) -> None:
    mine, other = open_store(), open_store()
    gc.disable()
    held: list[BaseException] = []
    try:
        for delay in range(40):
            task = asyncio.create_task(write_much(mine))
            await asyncio.wait({task}, timeout=delay / 4_000)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                held.append(error)
            async with asyncio.timeout(4):
                await other.writing(meta.put, "after", str(delay))
    finally:
        gc.enable()
    assert held


async def write_much(store: Store) -> None:
    await store.reading(meta.get, "before")
    await store.writing(put_and_get)


def put_and_get(tx: Connection) -> None:
    for number in range(50):
        meta.put(tx, f"key {number}", "value")
        meta.get(tx, f"key {number}")
