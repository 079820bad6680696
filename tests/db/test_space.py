"""Returning free pages of an SQLite file to the disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from tests.support.statements import execute, fetch

from tollgauge.db import disk, meta
from tollgauge.db.engine import Store

BIG = "x" * 100_000


def grow(tx: sa.Connection) -> None:
    for number in range(60):
        meta.put(tx, f"big:{number:02}", BIG)


async def pages(store: Store) -> int:
    return int((await fetch(store, sa.text("PRAGMA page_count"))).scalar_one())


async def give_back(store: Store) -> int:
    given = 0
    while more := await store.writing(disk.give_back_pages, pages=32):
        given += more
    return given


async def test_many_free_pages_are_returned_to_the_disk(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'new.db'}")
    await store.migrate()
    await store.writing(grow)
    full = await pages(store)
    await execute(store, sa.text("DELETE FROM meta WHERE key LIKE 'big:%' AND key > 'big:05'"))
    given = await give_back(store)
    assert await pages(store) == full - given
    free = (await fetch(store, sa.text("PRAGMA freelist_count"))).scalar_one()
    assert 0 < free <= (full - given) / disk.SPARE  # the next rows need no larger file
    assert await store.reading(meta.get, "big:05") == BIG
    await store.close()


async def test_few_free_pages_are_kept_for_reuse(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'new.db'}")
    await store.migrate()
    await store.writing(grow)
    await execute(store, sa.text("DELETE FROM meta WHERE key = 'big:05'"))
    assert await give_back(store) == 0
    await store.close()


async def test_database_that_cannot_return_pages_is_not_changed(
    database: str, open_store: Callable[[], Store], tmp_path: Path
) -> None:
    """PostgreSQL, and a file from before files kept the map for it."""
    if database.startswith("sqlite"):
        path = database.removeprefix("sqlite:///")
        with sqlite3.connect(path, isolation_level=None) as old:
            for pragma in ("journal_mode = DELETE", "auto_vacuum = NONE"):
                old.execute(f"PRAGMA {pragma}")
            old.execute("VACUUM")
    store = open_store()
    await store.writing(grow)
    await execute(store, sa.text("DELETE FROM meta"))
    assert await store.writing(disk.give_back_pages) == 0
