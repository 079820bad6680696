"""The tables: the declared ones, and what becomes of those of older versions."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.support import ready_tables
from tests.support.day_spans import spans_by_day
from tests.support.probe_archive import DAY, START, A, B, lively
from tests.support.statements import execute, fetch

import tollgauge.store
from tollgauge.core.discovery import Census
from tollgauge.core.evidence import LastProbe
from tollgauge.core.latest_probes import Latest
from tollgauge.core.payment import State
from tollgauge.core.retention import ANSWERS_MS
from tollgauge.core.rollup import Rollup
from tollgauge.core.spans import NO_SPANS, Spans, Statement, statement
from tollgauge.core.units import DAY_MS, HOUR_MS, day_of
from tollgauge.core.window import ClosedDays
from tollgauge.db import meta, migrations
from tollgauge.db.compression import compress
from tollgauge.db.engine import Store
from tollgauge.db.packing import pack
from tollgauge.monitor import scoring
from tollgauge.store.endpoints import claims, crawls, endpoint_list, ranking, scores
from tollgauge.store.ledger import payments, retention
from tollgauge.store.ledger.answers import StoredAnswer
from tollgauge.store.probes import changes, closed_days, past_days, probes, window
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
    columns = [column.name for column in payments.payment.c if column.name != "tx_hash"]
    place = ", ".join([*columns, "answer_status", "answer_body"])
    values = ", ".join(f":{name}" for name in (*columns, "status", "body"))
    row: dict[str, object] = dict.fromkeys(columns, 1) | {
        column.name: "1" for column in payments.payment.c if isinstance(column.type, sa.String)
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
    stored = [await store.reading(payments.get, payment_id) for payment_id in ("a", "b", "c")]
    assert [row and (row.state, row.answer) for row in stored] == [
        (State.SETTLED, StoredAnswer(status=200, body=b"paid for")),
        (State.SETTLED, None),
        (State.UNKNOWN, StoredAnswer(status=200, body=b"not yet")),
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


async def test_an_endpoint_is_removed_after_an_upgrade_without_reading_all_probes(
    empty: str,
) -> None:
    """No table refers to it that has no index by endpoint. What was there stays."""
    store = Store.open(empty)
    await store.writing(probed_before)
    await store.migrate()
    assert await store.writing(differences) == []
    days = await store.reading(probes.days, A.id, first_day=1, last_day=1)
    assert [(day.day, day.probes) for day in days] == [(1, 1)]
    tables = await store.reading(lambda tx: sa.inspect(tx).get_foreign_keys("probe_day"))
    assert tables == []
    assert await store.writing(retention.forget_answers, now=6 + ANSWERS_MS, limit=9) == 1
    await execute(store, sa.text("DELETE FROM flip"))
    assert (await execute(store, sa.text("DELETE FROM endpoint"))).rowcount == 1
    await store.close()


def scheduled_before(connection: sa.Connection) -> None:
    """The tables of the version before hosts knew when they are due, with a watched endpoint."""
    command.upgrade(migrations.configuration(connection), "0019")
    fill(connection, "host", host="a.com")
    fill(connection, "host", host="b.com")
    for number, (host, watched) in enumerate((("a.com", 0), ("a.com", 0), ("b.com", 99))):
        known = {"id": str(number), "resource": str(number), "watched_until": watched}
        fill(connection, "endpoint", host=host, next_due=9 - number, status="listed", **known)


async def test_what_was_due_before_an_upgrade_is_due_after_it(empty: str) -> None:
    store = Store.open(empty)
    await store.writing(scheduled_before)
    await store.migrate()
    for now, ids in ((6, []), (7, ["2"]), (8, ["1"])):
        claimed = await store.writing(claims.claim_due, owner="one", now=now, limit=9, lease_ms=60)
        assert [endpoint.id for endpoint in claimed] == ids
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
    pasts = list(zip((A.id, B.id), PASTS, strict=True))
    for id_, results in [*pasts, *pasts]:
        seen = await store.reading(window.read, id_, as_of=as_of, recent_ms=1)
        await store.writing(closed_days.build, before_day=DAY + 33, limit=1)
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


def scored_before(connection: sa.Connection) -> None:
    """The tables of the version before endpoints had what ranks them, with scores of two."""
    command.upgrade(migrations.configuration(connection), "0019")
    fill(connection, "host")
    for id_, score in (("a", 900), ("b", None), ("c", None)):
        fill(connection, "endpoint", id=id_, resource=id_, status="listed")
        if id_ != "c":
            grade = "A" if score else None
            values = {"score_tenths": score, "grade": grade, "uptime_tenths": score}
            fill(connection, "score", endpoint_id=id_, compliant=True, **values)
    fill(connection, "flip", id=1, endpoint_id="a")


async def test_what_was_scored_before_an_upgrade_is_ranked(empty: str) -> None:
    store = Store.open(empty)
    await store.writing(scored_before)
    await store.migrate()
    assert await store.reading(ranking.at, 1) == "a"
    assert await store.reading(ranking.population) == ranking.Population(
        scored=1, reachable=1, compliant=1, grades=(("A", 1),)
    )
    assert (await fetch(store, sa.select(changes.change.c.host))).scalar_one() == "1"
    await store.close()


def shown_before(connection: sa.Connection) -> None:
    """The tables of the version before charts had rows, with a closed day and a score."""
    migrations.upgrade(connection, to="0030")
    fill(connection, "host", host="a.com")
    fill(connection, "endpoint", id="a", resource="https://a.com/", host="a.com", status="listed")
    fill(connection, "score", endpoint_id="a", payable_24h_permille=987)
    fill(connection, "probe_day", day=DAY, endpoint_id="a", up_ms=HOUR_MS, excluded="[]", scored=2)


@pytest.mark.parametrize("closed", [True, False])
async def test_what_pages_showed_before_an_upgrade_they_show_after_it(
    empty: str, closed: bool
) -> None:
    store = Store.open(empty)
    await store.writing(shown_before)
    if not closed:
        await execute(store, sa.text("DELETE FROM probe_day"))
    await store.migrate()
    assert await store.writing(differences) == []
    shown = await store.reading(past_days.read, "a", first_day=DAY - 89, before_day=DAY + 1)
    assert {day: (bar.up_ms, bar.scored) for day, bar in shown.items()} == (
        {DAY: (HOUR_MS, 2)} if closed else {}
    )
    since = await store.reading(meta.get, past_days.SINCE)
    assert since == (str(DAY + 1) if closed else None)
    listed = await store.reading(endpoint_list.described, ["a"])
    assert listed["a"].ranked_payable_24h == 987
    await store.close()


def known_before(connection: sa.Connection) -> None:
    """The tables of the version before endpoints had a site, with one of a site."""
    migrations.upgrade(connection, to="0032")
    fill(connection, "host", host="api.a.com", site="a.com")
    known = {"resource": "https://api.a.com/", "host": "api.a.com", "status": "listed"}
    fill(connection, "endpoint", id="a", ranked_score=300, **known)


async def test_new_paths_are_measured_by_those_that_were_known_before_an_upgrade(
    empty: str,
) -> None:
    store = Store.open(empty)
    await store.writing(known_before)
    await store.migrate()
    assert await store.writing(differences) == []
    assert await store.reading(scores.site_medians, "a.com", before={DAY_MS}) == {DAY_MS: 300}
    await store.close()


def leased_before(connection: sa.Connection) -> None:
    """The tables of the version before leases had their own; one of two hosts is leased."""
    migrations.upgrade(connection, to="0034")
    for host, lease in (
        ("a.com", {"lease_owner": "one", "lease_until": 9, "claimed_at": 1}),
        ("b.com", {}),
    ):
        fill(connection, "host", host=host, next_claim=0, **lease)
        fill(connection, "endpoint", id=host, resource=host, host=host, status="listed")


async def test_a_host_that_was_leased_before_an_upgrade_is_leased_after_it(empty: str) -> None:
    store = Store.open(empty)
    await store.writing(leased_before)
    await store.migrate()
    for now, ids in ((8, ["b.com"]), (9, ["a.com"])):
        claimed = await store.writing(claims.claim_due, owner="two", now=now, limit=9, lease_ms=60)
        assert [endpoint.id for endpoint in claimed] == ids
    await store.close()


def discovered_before(connection: sa.Connection) -> None:
    """The tables of the version before endpoints had an order, with one listed after another."""
    migrations.upgrade(connection, to="0035")
    fill(connection, "host", host="a.com")
    for id_ in ("b", "a"):
        fill(connection, "endpoint", id=id_, resource=id_, host="a.com", description=f"is {id_}")
        fill(connection, "listing", endpoint_id=id_, source="dir")


async def test_endpoints_are_in_the_order_of_their_ids_after_an_upgrade(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'new.db'}")
    await store.writing(discovered_before)
    await store.migrate()
    assert await store.writing(differences) == []
    kept = await fetch(store, sa.text("SELECT id, description FROM endpoint NOT INDEXED"))
    assert [tuple(row) for row in kept] == [("a", "is a"), ("b", "is b")]
    with pytest.raises(sa.exc.IntegrityError):
        await execute(store, sa.text("DELETE FROM endpoint"))  # listings name them still
    await store.close()


def test_the_tables_that_other_tests_begin_with_are_those_of_the_versions(tmp_path: Path) -> None:
    def dump(name: str, upgrade: Callable[[sa.Connection], None]) -> list[str]:
        engine = sa.create_engine(f"sqlite:///{tmp_path / name}")
        with engine.begin() as connection:
            upgrade(connection)
        engine.dispose()
        return list(sqlite3.connect(tmp_path / name).iterdump())

    ready = partial(ready_tables.upgrade, statements=ready_tables.statements())
    assert dump("ready.db", ready) == dump("versions.db", migrations.upgrade)


LATEST = Latest(
    last=LastProbe(
        at=START, outcome="open", up=True, payable=False, accepts=None, tls_not_after=None
    )
)
CLOSED = ClosedDays.of(
    {
        number: (
            Rollup(
                day=number,
                probes=2,
                scored=2,
                up=1,
                slots=6,
                latency_sum=240,
                latency=((120, 2),),
                spans=Spans(up=HOUR_MS, payable=7, down=number, compliance=9, failures=1),
            ),
            Statement(number * DAY_MS + 5, HOUR_MS, True, True, 96),
        )
        for number in (DAY - 1, DAY)
    },
    day=DAY,
    latest=LATEST,
    tail=[(5, True)],
)


def summed_before(connection: sa.Connection) -> None:
    """The tables of the version before the texts of closed days were apart from what they add up
    to, with an endpoint whose evidence a sold report named.
    """
    migrations.upgrade(connection, to="0033")
    fill(connection, "host")
    fill(connection, "endpoint", id="a", resource="a")
    columns = zip(*(astuple(sums.spans) for sums in CLOSED.rollups()), strict=True)
    counts = [getattr(CLOSED.totals, name) for name in window.TOTALS]
    sums: tuple[Any, ...] = (
        [sums.day for sums in CLOSED.rollups()],
        list(columns),
        counts,
        [120],
        [4],
        [],
        CLOSED.totals.spans,
    )
    head = orjson.dumps((*sums, CLOSED.latest, tuple(CLOSED.said or ()), CLOSED.tail))
    packed = compress(head + b"\n" + CLOSED.texts.text)
    fill(connection, "probe_window", endpoint_id="a", day=DAY, closed=packed)
    fill(connection, "score", endpoint_id="a", digest="d", evidence=compress(b'{"days":[]}'))
    fill(connection, "evidence", digest="d", named_at=77)


async def test_closed_days_and_named_evidence_are_known_after_an_upgrade(empty: str) -> None:
    store = Store.open(empty)
    await store.writing(summed_before)
    await store.migrate()
    assert await store.writing(differences) == []
    days = (await store.reading(window.latest_closed, ["a"]))["a"]
    assert days.texts.text == CLOSED.texts.text
    assert days.rollups() == CLOSED.rollups()
    assert days.weighted == CLOSED.weighted
    assert (days.totals, days.latest, days.said) == (CLOSED.totals, LATEST, CLOSED.said)
    row = await store.reading(scores.get, "a")
    assert row is not None
    assert row.evidence == b'{"days":[]}'
    assert (await fetch(store, sa.text("SELECT named_at FROM score"))).scalar_one() == 77
    await store.close()
