"""Due work of hosts, counted in SQL, and the budgets of claims."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy import Connection
from tests.support.databases import on_sqlite

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint, Listing, endpoint_id
from tollgauge.core.probe.budgets import ALL, BudgetPlan
from tollgauge.core.probe.schedule import ASKED_MS, DEAD_MS, NORMAL, Standing, find_standing
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import probe
from tollgauge.store.endpoints import endpoints
from tollgauge.store.schedule import claims, hosts

NOW = 1_795_000_000_000
INSTANTS = (None, NOW, NOW - DEAD_MS, NOW - DEAD_MS - 1, NOW - ASKED_MS, NOW - ASKED_MS - 1)


def endpoint(host: str, number: int = 0, *, due: int = 0) -> Endpoint:
    resource = f"https://{host}/{number}"
    return Endpoint(
        id=endpoint_id(resource),
        resource=resource,
        host=host,
        first_seen=0,
        last_seen=0,
        next_due=NOW + due,
    )


async def claim(store: Store, *, now: int = NOW, limit: int = 128) -> list[str]:
    claimed = await store.writing(
        claims.claim_due, owner="one", now=now, limit=limit, lease_ms=60_000
    )
    return [delivery.host for delivery in claimed]


async def plan(store: Store, *, catch_up: int = 2) -> dict[str, object]:
    return await probe.plan_intervals(store, cadence=NORMAL, catch_up=catch_up, clock=lambda: NOW)


async def test_sql_standing_equals_the_schedule(store: Store) -> None:
    everything = [
        replace(
            endpoint("a.com", number),
            status=status,
            watched_until=watched,
            asked_at=asked,
            down_since=down,
            listing_changed_at=changed,
        )
        for number, (status, watched, asked, down, changed) in enumerate(
            (status, watched, asked, down, changed)
            for status in (Listing.LISTED, Listing.DELISTED)
            for watched in (0, NOW, NOW + 1)
            for asked in INSTANTS
            for down in INSTANTS
            for changed in (None, NOW - DEAD_MS)
        )
    ]
    unlisted = replace(endpoint("b.com"), status=Listing.UNLISTED)
    await store.writing(endpoints.insert, *everything)
    await store.writing(endpoints.insert, unlisted, adopted=True)
    counted = (await store.reading(claims.census, now=NOW)).loads
    expected = Counter(find_standing(known, now=NOW) for known in everything)
    assert {load.host: load.endpoints for load in counted} == {
        "a.com": expected,
        "b.com": {Standing.LISTED: 1},
    }
    assert set(expected) == set(Standing)


async def test_overloaded_host_gets_a_share_until_it_has_room_again(store: Store) -> None:
    crowd = [endpoint("big.com", number) for number in range(2_000)]
    await store.writing(endpoints.insert, *crowd, endpoint("small.com"))
    assert (await plan(store))["changed"] == 1
    big, small = [await store.reading(hosts.get, host) for host in ("big.com", "small.com")]
    assert big.round_ms // 4 > 30 * MINUTE_MS
    assert (big.sharing, small.sharing, small.round_ms) == (2_000, 0, 0)
    assert (await plan(store))["changed"] == 0
    await store.writing(_delist, [known.id for known in crowd])
    assert (await plan(store))["changed"] == 1
    assert (await store.reading(hosts.get, "big.com")).round_ms == 0


def _delist(tx: Connection, ids: list[str]) -> None:
    rows = schema.endpoint.update().where(schema.endpoint.c.id.in_(ids))
    tx.execute(rows.values(status=Listing.DELISTED.value))


async def test_hosts_of_a_large_site_take_turns_without_delaying_others(store: Store) -> None:
    site = [endpoint(f"{number}.big.com", due=-HOUR_MS) for number in range(20)]
    await store.writing(endpoints.insert, *site, endpoint("small.com"))
    await plan(store, catch_up=1_000_000)
    began: Counter[int] = Counter()
    seen: list[str] = []
    for second in range(6):
        claimed = await claim(store, now=NOW + second * SECOND_MS, limit=10)
        began[second] = sum(host.endswith("big.com") for host in claimed)
        seen += claimed
    assert "small.com" in seen[:2], "no other host delays it"
    assert sorted(seen) == sorted([known.host for known in site] + ["small.com"])
    assert dict(began) == {0: 1, 1: 4, 2: 4, 3: 4, 4: 4, 5: 3}, "one in 250 ms"


async def test_host_with_many_overdue_paths_does_not_delay_others(store: Store) -> None:
    crowd = [endpoint("big.com", number, due=-HOUR_MS - number) for number in range(300)]
    small = [endpoint(f"{letter}.com", due=-1) for letter in "abcdef"]
    await store.writing(endpoints.insert, *crowd, *small)
    claimed: list[str] = []
    for second in range(4):
        now = NOW + 2 * second * SECOND_MS
        wave = await claim(store, now=now, limit=3)
        claimed += wave
        free_at = dict.fromkeys(wave, now + SECOND_MS)
        await store.writing(hosts.release, free_at, owner="one", now=now)
    assert set(claimed[:9]) == {known.host for known in (*crowd, *small)}, "in three waves of three"


async def test_turns_missed_during_downtime_cause_no_burst(store: Store) -> None:
    site = [endpoint(f"{number}.big.com", due=-HOUR_MS) for number in range(20)]
    await store.writing(endpoints.insert, *site)
    await plan(store, catch_up=1_000_000)
    assert len(await claim(store)) == 1
    assert len(await claim(store, now=NOW + 3 * HOUR_MS)) == 1


@on_sqlite
async def test_overdue_probes_are_made_up_at_twice_the_normal_rate(store: Store) -> None:
    rows = [endpoint(f"h{number}.com", due=-number) for number in range(360)]
    await store.writing(endpoints.insert, *rows)
    await plan(store)
    first = await claim(store, limit=32)
    assert first == [f"h{number}.com" for number in range(359, 327, -1)], "the oldest first"
    assert await claim(store, limit=32) == []
    assert len(await claim(store, now=NOW + 10 * SECOND_MS, limit=32)) == 4, "0.2 a second, twice"


@on_sqlite
async def test_watched_endpoint_does_not_wait_for_the_budget(store: Store) -> None:
    rows = [endpoint(f"h{number}.com") for number in range(40)]
    watched = replace(endpoint("watched.com", due=5), watched_until=NOW + HOUR_MS)
    await store.writing(endpoints.insert, *rows, watched)
    await plan(store)
    assert len(await claim(store, limit=32)) == 32
    assert await claim(store, now=NOW + 5) == ["watched.com"]


@on_sqlite
async def test_claims_are_unlimited_without_a_plan(store: Store) -> None:
    await store.writing(endpoints.insert, *[endpoint(f"{n}.big.com") for n in range(50)])
    assert len(await claim(store)) == 50


async def test_plan_deletes_unused_budgets(store: Store) -> None:
    await store.writing(claims.save_plan, BudgetPlan(shares={}, gaps_us={"old.com": 9, ALL: 9}), {})
    await plan(store)
    assert await store.writing(claims.lock_remaining_budget, now=NOW, most=7) == 7


@pytest.mark.parametrize("later", [1, HOUR_MS])
async def test_forgotten_host_becomes_due_again(store: Store, later: int) -> None:
    await store.writing(endpoints.insert, endpoint("a.com"))
    await store.writing(_lose, NOW + later)
    assert await claim(store) == []
    assert (await plan(store))["forgotten"] == 1
    assert await claim(store) == ["a.com"]


def _lose(tx: Connection, at: int) -> None:
    tx.execute(schema.host.update().values(next_claim=at))


@on_sqlite
async def test_pace_of_a_host_includes_probes_and_pauses(store: Store) -> None:
    await store.writing(endpoints.insert, endpoint("a.com"), endpoint("a.com", 1))
    now, paces = NOW, []
    for took, gap in ((300, 1_000), (700, 1_000), (10_000, 600_000)):
        assert await claim(store, now=now) == ["a.com"]
        now += took
        free_at = {"a.com": now + gap}
        await store.writing(hosts.release, free_at, owner="one", now=now)
        now += gap + 100_000  # time without this service is ignored
        (load,) = (await store.reading(claims.census, now=now)).loads
        paces.append(load.pace_ms)
    assert paces == [1_300, (7 * 1_300 + 1_700) // 8, (7 * 1_350 + 610_000) // 8]


async def test_alarm_is_raised_when_a_host_waits_too_long(store: Store) -> None:
    lateness = probe.LatenessMonitor(store=store, clock=lambda: NOW, late_ms=MINUTE_MS)
    await lateness.run()
    assert await store.reading(claims.overdue_ms, now=NOW) == {"all": 0, "watched": 0}
    watched = replace(endpoint("b.com", due=-30 * SECOND_MS), watched_until=NOW + 1)
    await store.writing(endpoints.insert, endpoint("a.com", due=-2 * MINUTE_MS), watched)
    overdue = await store.reading(claims.overdue_ms, now=NOW)
    assert overdue == {"all": 2 * MINUTE_MS, "watched": 30 * SECOND_MS}
    await lateness.run()
    assert lateness.is_late
    await claim(store)
    await lateness.run()
    assert not lateness.is_late
