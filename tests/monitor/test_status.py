"""The status for operators, from rows of real databases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from tests.support.databases import on_sqlite
from tests.support.statements import execute

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, Listing, endpoint_id
from tollgauge.core.guard.bundle import Variant
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.core.sale.payment_state import State
from tollgauge.db import meta, schema
from tollgauge.db.engine import Store
from tollgauge.monitor import status
from tollgauge.monitor.status import BACKUP_KEY, Figures
from tollgauge.store import backlog
from tollgauge.store.chain.cursors import chain_cursor
from tollgauge.store.endpoints import crawls, endpoints
from tollgauge.store.ledger.payments import payment
from tollgauge.store.scores import trust_records
from tollgauge.store.scores.trust_records import StoredBundle
from tollgauge.store.watches.outbox import DEAD, QUEUED, delivery

NOW = 1_795_000_000_000


def at_host(number: int, **changes: Any) -> Endpoint:
    url = f"https://s{number}.dev/x"
    seen = {"first_seen": NOW - DAY_MS, "last_seen": NOW, "next_due": NOW + MINUTE_MS}
    fields = {"id": endpoint_id(url), "resource": url, "host": f"s{number}.dev"} | seen | changes
    return Endpoint(**fields)


async def fill_store(store: Store, *added: Endpoint) -> None:
    await store.writing(endpoints.insert, *added)
    await insert_settled(store)


async def insert_settled(store: Store) -> None:
    """Set up a service without due scores and with a recent backup."""
    await execute(store, schema.endpoint.update().values(score_due=NOW + DAY_MS))
    await store.writing(meta.put, BACKUP_KEY, str(NOW - HOUR_MS))


async def figures(store: Store, *, now: int = NOW) -> Figures:
    return await store.reading(status.read, now=now, cadence=NORMAL)


async def find_problems(store: Store, *, now: int = NOW, **named: list[str]) -> list[str]:
    sources, loops = named.get("sources", []), named.get("loops", [])
    return list(
        status.find_problems(
            of_a_calm_machine(await figures(store, now=now)), sources=sources, loops=loops
        )
    )


def document(read: Figures) -> dict[str, Any]:
    return status.document(status.assess(read, sources=[], loops=[], advice=[]))


def of_a_calm_machine(read: Figures) -> Figures:
    """Return the figures of a machine with free disk space and the test's clock."""
    return replace(read, size=replace(read.size, free=9, total=10), skew_ms=None)


@on_sqlite
async def test_healthy_service_needs_no_attention(store: Store) -> None:
    await fill_store(store, at_host(1), at_host(2, next_due=NOW - MINUTE_MS))
    calm = of_a_calm_machine(await figures(store))
    assert not list(status.find_problems(calm, sources=[], loops=[]))
    assert not list(status.find_warnings(calm))
    assessed = status.assess(calm, sources=[], loops=[], advice=["a word"])
    assert (assessed.good, assessed.warnings) == (True, ("a word",))
    assert status.document(assessed)["probes"] == {
        "monitored": 2,
        "due": 1,
        "oldestSeconds": 60,
        "late": 0,
        "perMinute": 0.0,
        "last": None,
    }


async def test_overdue_endpoints_are_reported_if_they_are_many(
    store: Store,
) -> None:
    many = [at_host(n, next_due=NOW - HOUR_MS * n) for n in range(5)]
    await fill_store(store, *many, *(at_host(n) for n in range(5, 40)))
    assert "4 of 40 endpoints are overdue" in (await find_problems(store))[0]
    await execute(
        store,
        schema.endpoint.update().where(schema.endpoint.c.host != "s1.dev").values(next_due=NOW),
    )
    assert (await figures(store)).probes.late == 1
    assert not [words for words in await find_problems(store) if "overdue" in words]


async def test_host_with_a_retry_after_is_not_due(store: Store) -> None:
    await fill_store(store, at_host(1, next_due=NOW - DAY_MS))
    await execute(store, schema.host.update().values(free_at=NOW + 1))
    assert (await figures(store)).probes.due == 0


@on_sqlite
async def test_probe_rate_covers_the_last_ten_minutes(store: Store) -> None:
    lately = [at_host(n, last_probed=NOW - n * MINUTE_MS) for n in range(1, 20)]
    await fill_store(store, *lately, at_host(30, status=Listing.DELISTED))
    probes = document(await figures(store))["probes"]
    assert (probes["monitored"], probes["perMinute"]) == (19, 0.9)


@on_sqlite
async def test_scores_due_for_an_hour_are_reported(store: Store) -> None:
    await fill_store(store, at_host(1))
    await execute(store, schema.endpoint.update().values(score_due=NOW - 2 * HOUR_MS))
    assert await find_problems(store) == [
        "1 scores are due, the oldest for 2 h; 0 for more than a day."
    ]


async def test_stuck_payment_is_named_without_its_payer(store: Store) -> None:
    columns = {
        column.name: 0 if isinstance(column.type, sa.Integer) else "x"
        for column in payment.columns
        if not column.nullable
    }
    old = {"created_at": NOW - HOUR_MS, "updated_at": NOW - HOUR_MS, "payer": "0xpayer"}
    stuck = {"id": "p1", "state": State.UNKNOWN.value, "nonce": "1", "route": "/v1/x402-trust"}
    paid = {"id": "p2", "state": State.SETTLED.value, "nonce": "2"}
    await execute(store, payment.insert(), [columns | old | stuck, columns | old | paid])
    assert await find_problems(store) == [
        "The payment p1 (/v1/x402-trust) has been unknown for 60 min."
    ]
    payments = document(await figures(store))["payments"]
    assert payments["byState"] == {"settled": 1, "unknown": 1}
    assert payments["stuck"] == [
        {"id": "p1", "state": "unknown", "route": "/v1/x402-trust", "forSeconds": 3_600}
    ]
    assert "0xpayer" not in str(document(await figures(store)))


async def test_waiting_and_dead_deliveries_are_reported(store: Store) -> None:
    row: dict[str, Any] = {
        "watch_id": "w",
        "destination_id": "d",
        "event_id": "e",
        "type": "t",
        "body": "{}",
    }
    row |= {"created_at": NOW, "attempts": 1, "last_error": ""}
    waiting = {"id": "1", "state": QUEUED, "due": NOW - HOUR_MS}
    await execute(
        store, delivery.insert(), [row | waiting, row | {"id": "2", "state": DEAD, "due": 0}]
    )
    assert await find_problems(store) == [
        "1 deliveries are queued, the oldest for 60 min.",
        "1 deliveries failed permanently: `tollgauge watch list --dead`.",
    ]


async def test_bundle_older_than_three_hours_is_reported(store: Store) -> None:
    built = StoredBundle(
        variant=Variant.ALL,
        as_of=NOW - 3 * HOUR_MS,
        took_ms=2_500,
        policy_version=2,
        records=7,
        scored=5,
        size=900,
        digest="00",
        signature=None,
        key_id=None,
    )
    await store.writing(trust_records.save_bundles, [(built, b"")])
    assert await find_problems(store) == []
    (words,) = await find_problems(store, now=NOW + 1)
    assert words.startswith("The bundle of trust records is 3 h old")
    assert document(await figures(store))["bundles"] == [
        {
            "variant": "all",
            "at": "2026-11-18T08:06:40Z",
            "ageSeconds": 10_800,
            "records": 7,
            "bytes": 900,
            "buildSeconds": 2.5,
            "signed": False,
        }
    ]


async def test_index_that_fell_behind_is_reported(store: Store) -> None:
    cursor = {"chain": 8453, "number": 9, "hash": b"h", "at": NOW - HOUR_MS, "finalized": 8}
    cursor |= {"audited": 8, "audited_at": 0, "version": 0}
    await execute(store, chain_cursor.insert(), [cursor])
    # Only final blocks of chain 42161 are followed: they are up to an hour old.
    fast = cursor | {"chain": 42161}
    await execute(store, chain_cursor.insert(), [fast])
    assert await find_problems(store) == ["The index of chain 8453 is 60 min behind."]
    late = chain_cursor.update().where(chain_cursor.c.chain == 42161)
    await execute(store, late.values(at=NOW - 2 * HOUR_MS))
    assert "The index of chain 42161 is 2 h behind." in await find_problems(store)
    assert document(await figures(store))["chains"][0]["lagSeconds"] == 3_600


@on_sqlite
async def test_sources_without_a_complete_crawl_for_a_day_are_reported(store: Store) -> None:
    whole = await store.writing(crawls.begin_crawl, "old", now=NOW - 3 * DAY_MS)
    await store.writing(
        crawls.end_crawl, whole, complete=True, suspicious=False, now=NOW - 3 * DAY_MS
    )
    await store.writing(crawls.begin_crawl, "old", now=NOW - HOUR_MS)
    shrunk = await store.writing(crawls.begin_crawl, "shrunk", now=NOW - HOUR_MS)
    await store.writing(crawls.end_crawl, shrunk, complete=False, suspicious=True, now=NOW)
    sources = ["new", "old", "shrunk"]
    assert await find_problems(store, sources=sources) == [
        "The source new was never crawled.",
        "The last complete crawl of old was 3 d ago.",
        "The last crawl of shrunk is suspicious: it listed 0.",
    ]
    assert not await find_problems(store)
    kept = document(await figures(store))["crawls"]
    assert [(crawl["source"], crawl["finishedAt"] is None) for crawl in kept] == [
        ("old", True),
        ("shrunk", False),
    ]


@on_sqlite
async def test_directory_and_node_that_never_answered_are_reported_after_one_round(
    store: Store,
) -> None:
    async def note(name: str) -> None:
        await store.writing(
            backlog.note_round, name, ended_at=NOW, took_ms=20, expected_by=NOW + MINUTE_MS
        )

    sources, loops = ["dir"], ["discover", "index-137"]
    await store.writing(crawls.begin_crawl, "dir", now=NOW - MINUTE_MS)
    assert await find_problems(store, sources=sources, loops=loops) == [
        "Loops that never ran: discover, index-137. Check that a worker is running."
    ]
    await note("discover")
    await note("index-137")
    assert await find_problems(store, sources=sources, loops=loops) == [
        "No crawl of dir reached its end. Run `tollgauge doctor` to check it.",
        "Chain 137 was not read yet. Run `tollgauge doctor` to check its nodes.",
    ]
    assert not await find_problems(store)
    await store.writing(crawls.begin_crawl, "new", now=NOW + 1)
    assert not await find_problems(store, sources=["new"])


@on_sqlite
async def test_failing_and_stalled_loops_are_reported(store: Store) -> None:
    async def note(name: str, at: int, **more: Any) -> None:
        await store.writing(
            backlog.note_round,
            name,
            ended_at=at,
            took_ms=20,
            expected_by=at + 5 * MINUTE_MS,
            **more,
        )

    await note("probe", NOW - HOUR_MS)
    await note("score", NOW - MINUTE_MS, error="KeyError score.py:88")
    await note("alert", NOW - MINUTE_MS, error="OSError")
    await note("alert", NOW)
    assert await find_problems(store, loops=["probe", "score", "alert", "settle"]) == [
        "Loops that never ran: settle. Check that a worker is running.",
        "Loops without a round for 60 min: probe. Check that a worker is running.",
        "The `score` loop is failing: KeyError score.py:88.",
    ]
    alert = next(job for job in (await figures(store)).jobs if job.name == "alert")
    assert (alert.failing, alert.failed_at, alert.error) == (False, NOW - MINUTE_MS, "OSError")


async def test_wrong_clock_and_full_disk_are_reported(store: Store) -> None:
    read = await figures(store)
    assert read.size.database > 0
    assert (read.skew_ms is None) == (read.size.free is not None) == (store.dialect == "sqlite")
    wrong = replace(
        read,
        skew_ms=5_000,
        size=replace(read.size, free=19, total=100),
    )
    assert list(status.find_problems(wrong, sources=[], loops=[])) == [
        "The database's clock differs from this machine's by 5 s.",
        "The database's disk is 81% full.",
    ]
    ahead = replace(read, skew_ms=None, last_probed=NOW + HOUR_MS, size=wrong.size)
    assert "in the future" in next(status.find_problems(ahead, sources=[], loops=[]))


@on_sqlite
async def test_old_or_missing_backup_gets_advice(store: Store) -> None:
    assert list(status.find_warnings(await figures(store))) == [
        "No backup exists. Run `tollgauge backup`."
    ]
    await store.writing(meta.put, BACKUP_KEY, str(NOW - 2 * DAY_MS))
    assert list(status.find_warnings(await figures(store))) == ["The newest backup is 2 d old."]
