"""The store's transactions and schema, against real databases."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.support.open_transaction import open_transaction
from tests.support.probe_archive import DAY, START, A, B, lively
from tests.support.statements import execute, fetch

import tollgauge.store
from tollgauge.core.discovery import Census
from tollgauge.core.payment import State
from tollgauge.core.retention import ANSWERS_MS
from tollgauge.core.spans import NO_SPANS, spans_by_day, statement
from tollgauge.core.units import DAY_MS, HOUR_MS, day_of
from tollgauge.db import meta, migrations
from tollgauge.db.engine import Store, StoreError, StoreUnavailable
from tollgauge.db.packing import pack
from tollgauge.monitor import scoring
from tollgauge.store.endpoints import crawls
from tollgauge.store.ledger import payments, retention
from tollgauge.store.probes import probes, window
from tollgauge.store.tables import TABLES

ROOT = Path(__file__).resolve().parents[2]
OpenStore = Callable[[], Store]
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
POSTGRES_ONLY = pytest.mark.parametrize("database", [POSTGRES], indirect=True)


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


def stored_before(connection: sa.Connection) -> None:
    """The tables of the version before answers had one of their own, with payments in it."""
    command.upgrade(migrations.configuration(connection), "0009")
    columns = [each.name for each in payments.payment.c if each.name != "tx_hash"]
    place = ", ".join([*columns, "answer_status", "answer_body"])
    values = ", ".join(f":{name}" for name in (*columns, "status", "body"))
    row: dict[str, object] = dict.fromkeys(columns, 1) | {
        each.name: "1" for each in payments.payment.c if isinstance(each.type, sa.String)
    }
    for nonce, state, status, body in (
        ("a", "settled", 200, b"paid for"),
        ("b", "settled", None, None),
        ("c", "ready", 200, b"not yet"),
    ):
        key = {"id": nonce, "nonce": nonce, "state": state, "status": status, "body": body}
        statement = sa.text(f"INSERT INTO payment ({place}) VALUES ({values})")
        connection.execute(statement, row | key)


async def test_answers_that_were_stored_before_can_still_be_fetched(empty: str) -> None:
    store = Store.open(empty)
    await store.writing(stored_before)
    await store.migrate()
    found = [await store.reading(payments.get, each) for each in ("a", "b", "c")]
    assert [row and (row.state, row.answer) for row in found] == [
        (State.SETTLED, payments.StoredAnswer(status=200, body=b"paid for")),
        (State.SETTLED, None),
        (State.UNKNOWN, payments.StoredAnswer(status=200, body=b"not yet")),
    ]
    await store.close()


def fill(connection: sa.Connection, name: str, **values: object) -> None:
    """A row of a table as it is now, every column that must have a value filled."""
    table = sa.Table(name, sa.MetaData(), autoload_with=connection)
    needed = {
        column.name: False if isinstance(column.type, sa.Boolean) else 1
        for column in table.c
        if not column.nullable and column.server_default is None
    }
    texts = {key: "1" for key in needed if isinstance(table.c[key].type, sa.String)}
    blobs = {key: b"" for key in needed if isinstance(table.c[key].type, sa.LargeBinary)}
    connection.execute(table.insert().values(needed | texts | blobs | values))


def crawled_before(connection: sa.Connection) -> None:
    """The tables of the version before crawls were counted, with a complete and an open crawl."""
    command.upgrade(migrations.configuration(connection), "0010")
    fill(connection, "crawl", id=1, source="dir", started=7, finished_at=8, complete=True)
    fill(connection, "crawl", id=2, source="dir", started=9)
    fill(connection, "host")
    for number in range(3):
        fill(connection, "endpoint", id=str(number), resource=str(number))
        fill(connection, "listing", endpoint_id=str(number), source="dir", crawl_id=1)


async def test_a_crawl_from_before_an_upgrade_is_what_the_next_one_is_compared_with(
    empty: str,
) -> None:
    store = Store.open(empty)
    await store.writing(crawled_before)
    await store.migrate()
    crawl = await store.writing(crawls.begin_crawl, "dir", now=10)
    assert await store.reading(crawls.census, crawl) == Census(listed=0, complete=3)
    assert await store.reading(crawls.last_taken, "dir") == 9
    await store.close()


def probed_before(connection: sa.Connection) -> None:
    """The tables of the version before day sums became months, with a row of most of them."""
    command.upgrade(migrations.configuration(connection), "0019")
    fill(connection, "host")
    fill(connection, "endpoint", id=A.id, resource="a")
    fill(connection, "probe", endpoint_id=A.id)
    fill(connection, "probe_day", endpoint_id=A.id, excluded="[]")
    fill(connection, "flip", id=7, endpoint_id=A.id)
    for id_, state in (("paid", "settled"), ("open", "unknown")):
        fill(connection, "payment", id=id_, nonce=id_, state=state, updated_at=5)
        fill(connection, "payment_answer", payment_id=id_, status=200)


async def test_an_endpoint_is_removed_after_an_upgrade_without_reading_days(empty: str) -> None:
    """No table refers to it that has no index by endpoint. What was there stays."""
    store = Store.open(empty)
    await store.writing(probed_before)
    await store.migrate()
    assert await store.writing(differences) == []
    assert len(await store.reading(probes.days, A.id, first_day=1, last_day=1)) == 1
    assert await store.reading(lambda tx: sa.inspect(tx).get_foreign_keys("probe_day")) == []
    assert await store.writing(retention.forget_answers, now=6 + ANSWERS_MS, limit=9) == 1
    await execute(store, sa.text("DELETE FROM flip"))
    await execute(store, sa.text("DELETE FROM endpoint"))
    await store.close()


SILENT = frozenset(range(DAY + 10, DAY + 14))
"""Days without probes."""


def closed_before(connection: sa.Connection, ids: Sequence[str], scored: bool) -> None:
    """The tables of the version before days had spans, with closed days of two endpoints."""
    command.upgrade(migrations.configuration(connection), "0015")
    fill(connection, "host")
    for id_, results in zip(ids, PASTS, strict=True):
        fill(connection, "endpoint", id=id_, resource=id_)
        for day in sorted({day_of(result.at) for result in results}):
            packed = pack([result for result in results if day_of(result.at) == day])
            fill(connection, "probe_day", day=day, endpoint_id=id_, packed=packed, excluded="[]")
    fill(connection, "probe_day", day=DAY + 20, endpoint_id=ids[0], packed=None, excluded="[]")
    if scored:
        fill(connection, "score", endpoint_id=ids[0])


PASTS = [
    [
        result
        for result in lively(seed, first=START, last=START + 33 * DAY_MS - 1, number=150)
        if day_of(result.at) not in {DAY + 20, *SILENT}
    ]
    for seed in range(2)
]


@pytest.mark.parametrize("scored", [True, False])
async def test_the_days_before_an_upgrade_get_their_spans(empty: str, scored: bool) -> None:
    store = Store.open(empty)
    await store.writing(closed_before, [A.id, B.id], scored)
    await store.migrate()
    as_of = START + 33 * DAY_MS
    for id_, results in zip((A.id, B.id), PASTS, strict=True):
        seen = await store.reading(window.read, id_, as_of=as_of, recent_ms=1)
        said = [one for one in map(statement, results) if one is not None]
        assert {day.day: day.spans for day in seen.days if day.spans != NO_SPANS} == {
            day: spans
            for day, spans in spans_by_day(said, until=as_of).items()
            if day >= DAY + 3 and spans != NO_SPANS
        }
    since = await store.reading(meta.get, scoring.POLICY_2_SINCE)
    assert (since is not None) == scored
    assert since is None or abs(int(since) - 1_000 * time.time()) < HOUR_MS
    await store.close()


WRITER = """
import asyncio, sys
from tests.support.open_transaction import open_transaction
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


async def test_a_killed_writer_loses_its_transaction_and_nothing_else(
    store: Store, database: str
) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, database, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert writer.stdout is not None
    assert await writer.stdout.readline() == b"ready\n"
    writer.kill()
    await writer.wait()
    assert await store.writing(meta.get, "a") == "committed"
    await store.writing(meta.put, "a", "mine")


async def test_a_store_in_memory_keeps_what_was_written() -> None:
    store = Store.open("sqlite:///:memory:")
    await store.migrate()
    await store.writing(meta.put, "a", "1")

    assert await asyncio.gather(*(store.reading(meta.get, "a") for _ in range(5))) == ["1"] * 5
    await store.close()


async def test_an_exception_rolls_everything_back(store: Store) -> None:
    with pytest.raises(RuntimeError):  # noqa: PT012
        async with open_transaction(store, writing=True) as run:
            await run(meta.put, "a", "1")
            raise RuntimeError
    assert await store.reading(meta.get, "a") is None


async def test_a_cancelled_writer_leaves_nothing_behind_and_blocks_nobody(store: Store) -> None:
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


async def test_a_read_sees_one_moment(store: Store, open_store: OpenStore) -> None:
    other = open_store()
    async with open_transaction(store, writing=False) as run:
        assert await run(meta.get, "a") is None
        await other.writing(meta.put, "a", "1")
        assert await run(meta.get, "a") is None
    assert await store.reading(meta.get, "a") == "1"


async def test_writers_that_read_first_lose_no_update(store: Store, open_store: OpenStore) -> None:
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


async def test_sqlite_is_opened_to_survive_a_power_cut(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'a.db'}")
    await store.migrate()
    names = ("journal_mode", "synchronous", "foreign_keys", "page_size", "journal_size_limit")
    found = {name: (await fetch(store, sa.text(f"PRAGMA {name}"))).scalar_one() for name in names}
    await store.close()
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "page_size": 8192,
        "journal_size_limit": 64 * 1024 * 1024,
    }


async def test_a_locked_file_is_unavailable_and_served_again_later(
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


async def test_a_full_disk_is_unavailable(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'a.db'}", pool_size=1)
    await store.migrate()
    await execute(store, sa.text("PRAGMA max_page_count = 1"))
    with pytest.raises(StoreUnavailable):
        await store.writing(meta.put, "a", "x" * 10_000_000)
    await store.close()


async def test_a_missing_folder_is_unavailable(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'no' / 'a.db'}")
    with pytest.raises(StoreUnavailable):
        await store.migrate()
    await store.close()


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
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
async def test_a_lost_connection_is_unavailable_and_the_next_one_works(
    store: Store, open_store: OpenStore
) -> None:
    other = open_store()
    with pytest.raises(StoreUnavailable):  # noqa: PT012
        async with open_transaction(store, writing=False) as run:
            await run(meta.get, "a")
            await end_others(other)
            await asyncio.sleep(0.05)
            await run(meta.get, "a")
    assert await store.reading(meta.get, "a") is None


@POSTGRES_ONLY
@pytest.mark.parametrize("writing", [False, True])
async def test_a_connection_lost_before_the_end_is_unavailable_and_nothing_was_written(
    store: Store, open_store: OpenStore, writing: bool
) -> None:
    other = open_store()
    with pytest.raises(StoreUnavailable):  # noqa: PT012
        async with open_transaction(store, writing=writing) as run:
            if writing:
                await run(meta.put, "a", "1")
            await run(meta.get, "a")
            await end_others(other)
            await asyncio.sleep(0.05)
    assert await store.reading(meta.get, "a") is None


@POSTGRES_ONLY
async def test_a_connection_lost_while_it_is_made_is_unavailable(
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
async def test_connections_that_were_lost_while_they_stood_idle_are_replaced_unnoticed(
    store: Store, open_store: OpenStore
) -> None:
    await asyncio.gather(*(store.reading(meta.get, "a") for _ in range(4)))
    other = open_store()
    await end_others(other)
    await store.writing(meta.put, "a", "1")
    found = await asyncio.gather(*(store.reading(meta.get, "a") for _ in range(4)))
    assert found == ["1"] * 4


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_a_statement_that_takes_too_long_is_unavailable(database: str) -> None:
    store = Store.open(database, statement_ms=20)
    with pytest.raises(StoreUnavailable):
        await fetch(store, sa.text("SELECT pg_sleep(5)"))
    await store.close()


async def test_a_wrong_statement_stays_an_error_of_ours(store: Store) -> None:
    with pytest.raises(sa.exc.DBAPIError):
        await execute(store, sa.text("SELECT nothing FROM nowhere"))


@POSTGRES_ONLY
async def test_a_reader_cannot_write_on_postgres(store: Store) -> None:
    with pytest.raises(sa.exc.DBAPIError):
        await store.reading(meta.put, "a", "1")


@pytest.mark.parametrize("url", ["", "mysql://a/b", "not a url"])
def test_other_databases_are_refused_with_advice(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store.open(url)
    assert "sqlite" in caught.value.hint
