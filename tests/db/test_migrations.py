"""The tables: the declared ones, and databases of other versions."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import pkgutil
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.support import quick_start
from tests.support.statements import execute

import tollgauge.store
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.db import meta, migrations
from tollgauge.db.engine import Store
from tollgauge.store.tables import TABLES

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


def differences(connection: sa.Connection) -> list[Any]:
    for module in pkgutil.iter_modules(tollgauge.store.__path__):
        if module.name != "migrations":
            importlib.import_module(f"tollgauge.store.{module.name}")
    context = MigrationContext.configure(connection, opts={"compare_server_default": False})
    return list(compare_metadata(context, TABLES[0].metadata))


async def test_the_migrated_tables_are_the_declared_ones(store: Store) -> None:
    assert await store.writing(differences) == []


async def test_a_missing_index_would_be_noticed(store: Store) -> None:
    await execute(store, sa.text("DROP INDEX ix_endpoint_score_due"))
    assert await store.writing(differences) != []


def test_the_names_of_the_versions_are_those_that_alembic_follows(tmp_path: Path) -> None:
    with sa.create_engine(f"sqlite:///{tmp_path / 'none.db'}").connect() as connection:
        scripts = ScriptDirectory.from_config(migrations.configuration(connection))
    newest_first = [script.revision for script in scripts.walk_revisions()]
    assert migrations.versions() == tuple(reversed(newest_first))


async def test_migrating_again_changes_nothing(store: Store) -> None:
    await store.writing(meta.put, "kept", "yes")
    await store.migrate()
    await store.migrate()
    assert await store.reading(meta.get, "kept") == "yes"


@pytest.fixture(params=["sqlite", POSTGRES])
def empty(request: pytest.FixtureRequest, tmp_path: Path, database_numbers: Iterator[int]) -> str:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new.db'}"
    server = request.getfixturevalue("postgres")
    name = f"empty_{next(database_numbers)}"
    server.sql(f"CREATE DATABASE {name}")
    url: str = server.url(name)
    return url


async def test_several_processes_may_migrate_an_empty_database_at_once(empty: str) -> None:
    stores = [Store.open(empty) for _ in range(4)]
    async with asyncio.TaskGroup() as group:
        for one in stores:
            group.create_task(one.migrate())
    assert await stores[0].writing(differences) == []
    for one in stores:
        await one.close()


async def test_a_database_of_an_unreleased_version_is_refused_untouched(empty: str) -> None:
    store = Store.open(empty)
    await execute(store, sa.text("CREATE TABLE alembic_version (version_num TEXT NOT NULL)"))
    await execute(store, sa.text("INSERT INTO alembic_version VALUES ('0039')"))
    with pytest.raises(TollgaugeError, match="version 0039") as refused:
        await store.migrate()
    assert refused.value.hint == (
        "It was made by an unreleased version; export what you need with that version or start "
        "with an empty file."
    )
    assert await store.reading(lambda tx: sa.inspect(tx).get_table_names()) == ["alembic_version"]
    await store.close()


def test_a_change_of_the_tables_renames_their_version() -> None:
    """Until the first release: databases of builds with other tables are refused by this name."""
    (script,) = Path(migrations.__file__).parent.glob("versions/[0-9]*.py")
    text = script.read_text(encoding="utf-8")
    digest = hashlib.sha256(text.partition("def upgrade()")[2].encode()).hexdigest()[:12]
    assert (migrations.versions(), digest) == (("20261126",), "17d755b2e0cc")


def test_the_tables_that_other_tests_begin_with_are_those_of_the_versions(tmp_path: Path) -> None:
    def dump(name: str, upgrade: Callable[[sa.Connection], None]) -> list[str]:
        engine = sa.create_engine(f"sqlite:///{tmp_path / name}")
        with engine.begin() as connection:
            upgrade(connection)
        engine.dispose()
        return list(sqlite3.connect(tmp_path / name).iterdump())

    ready = partial(quick_start.upgrade, statements=quick_start.statements())
    assert dump("ready.db", ready) == dump("versions.db", migrations.upgrade)
