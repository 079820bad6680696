"""The tables of a new database, and databases of other builds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.support.databases import DATABASES
from tests.support.statements import execute

import tollgauge.db
from docs.tables_sql import tables_sql
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.db import meta
from tollgauge.db.engine import VERSION_TABLE, Store
from tollgauge.store.tables import TABLES


def test_sql_files_create_the_declared_tables() -> None:
    folder = Path(tollgauge.db.__file__).parent
    for name, text in tables_sql().items():
        assert (folder / name).read_text(encoding="utf-8") == text, "run: make docs"


def columns(connection: sa.Connection) -> dict[str, list[str]]:
    inspector = sa.inspect(connection)
    return {
        name: [column["name"] for column in inspector.get_columns(name)]
        for name in inspector.get_table_names()
        if name != VERSION_TABLE
    }


async def test_new_database_has_every_table_and_column(store: Store) -> None:
    expected = {table.name: [column.name for column in table.columns] for table in TABLES}
    assert await store.writing(columns) == expected


async def test_migrating_again_changes_nothing(store: Store) -> None:
    await store.writing(meta.put, "kept", "yes")
    await store.migrate()
    await store.migrate()
    assert await store.reading(meta.get, "kept") == "yes"


@pytest.fixture(params=DATABASES)
def empty(request: pytest.FixtureRequest, tmp_path: Path, database_numbers: Iterator[int]) -> str:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new.db'}"
    server = request.getfixturevalue("postgres")
    name = f"empty_{next(database_numbers)}"
    server.sql(f"CREATE DATABASE {name}")
    url: str = server.url(name)
    return url


async def test_several_processes_can_migrate_an_empty_database_concurrently(empty: str) -> None:
    stores = [Store.open(empty) for _ in range(4)]
    async with asyncio.TaskGroup() as group:
        for one in stores:
            group.create_task(one.migrate())
    assert set(await stores[0].writing(columns)) == {table.name for table in TABLES}
    for one in stores:
        await one.close()


async def test_database_of_an_unreleased_build_is_rejected_and_not_changed(empty: str) -> None:
    store = Store.open(empty)
    await execute(store, sa.text(f"CREATE TABLE {VERSION_TABLE} (version TEXT NOT NULL)"))
    await execute(store, sa.text(f"INSERT INTO {VERSION_TABLE} VALUES ('0039')"))
    with pytest.raises(TollgaugeError, match="version 0039") as refused:
        await store.migrate()
    assert refused.value.hint == (
        "It was created by an unreleased version. Export your data with that version, or start "
        "with an empty database."
    )
    assert await store.reading(lambda tx: sa.inspect(tx).get_table_names()) == [VERSION_TABLE]
    await store.close()


async def test_database_of_a_build_without_this_version_table_is_rejected(empty: str) -> None:
    store = Store.open(empty)
    for table in ("alembic_version", "endpoint", "probe"):
        await execute(store, sa.text(f"CREATE TABLE {table} (id TEXT NOT NULL)"))
    with pytest.raises(TollgaugeError, match="version unknown"):
        await store.migrate()
    tables = await store.reading(lambda tx: sorted(sa.inspect(tx).get_table_names()))
    assert tables == ["alembic_version", "endpoint", "probe"]
    await store.close()
