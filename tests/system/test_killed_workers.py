"""Workers that are killed at random lose no probe, and none is made twice.

`make test-all` (TOLLGAUGE_SCHEDULES) runs the long one: four workers, 20,000 endpoints of 4,000
hosts, a kill every five seconds for five minutes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.killed_workers import kill_at_random, overlaps, working
from tests.support.postgres import Databases, Postgres
from tests.support.probing_process import Order

from tollgauge.app import now_ms
from tollgauge.core.endpoint import Endpoint, endpoint_id
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How many endpoints and workers, for how long, and how often one is killed."""

    hosts: int
    endpoints: int
    every_ms: int
    lease_ms: int
    seconds: float
    kill_every_s: float


SHORT = Schedule(
    hosts=80, endpoints=240, every_ms=3_000, lease_ms=5_000, seconds=4, kill_every_s=0.7
)
LONG = Schedule(
    hosts=4_000, endpoints=20_000, every_ms=180_000, lease_ms=60_000, seconds=300, kill_every_s=5
)
SCHEDULE = LONG if int(os.environ.get("TOLLGAUGE_SCHEDULES", "0")) >= 300 else SHORT
WORKERS = 4


@pytest.fixture
def database_url(postgres: Postgres, postgres_databases: Databases) -> Iterator[str]:
    name = postgres_databases.take()
    yield postgres.url(name)
    postgres_databases.give_back(name)


def rows(schedule: Schedule, *, now: int) -> list[Endpoint]:
    """Endpoints whose first probes are spread over the cadence."""
    urls = [f"https://h{n % schedule.hosts}.example/{n}" for n in range(schedule.endpoints)]
    return [
        Endpoint(
            id=endpoint_id(url),
            resource=url,
            host=url.split("/")[2],
            first_seen=now,
            last_seen=now,
            next_due=now + number * schedule.every_ms // schedule.endpoints,
        )
        for number, url in enumerate(urls)
    ]


def recorded(tx: Connection) -> dict[str, list[int]]:
    """When each endpoint was probed, by its id."""
    table = schema.probe
    found: dict[str, list[int]] = {
        id_: [] for id_ in tx.execute(sa.select(schema.endpoint.c.id)).scalars()
    }
    for id_, at in tx.execute(sa.select(table.c.endpoint_id, table.c.at).order_by(table.c.at)):
        found[id_].append(at)
    return found


def unprobed_since(tx: Connection, at: int) -> int:
    """How many endpoints were not probed since an instant."""
    last = sa.func.coalesce(schema.endpoint.c.last_probed, 0)
    count = sa.select(sa.func.count()).select_from(schema.endpoint).where(last < at)
    return int(tx.execute(count).scalar_one())


async def caught_up(store: Store, *, since: int, seconds: float) -> bool:
    """Whether every endpoint is probed again within so long."""
    ends = time.monotonic() + seconds
    while await store.reading(unprobed_since, since):
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(0.1)
    return True


@pytest.mark.postgres
async def test_killed_workers_lose_no_probe_and_none_is_made_twice(
    database_url: str, tmp_path: Path
) -> None:
    plan = SCHEDULE
    store = Store.open(database_url)
    await store.writing(endpoints.insert, *rows(plan, now=now_ms()))
    order = Order(
        url=database_url,
        folder=str(tmp_path),
        every_ms=plan.every_ms,
        lease_ms=plan.lease_ms,
        host_gap_ms=100,
    )
    longest = plan.every_ms * 13 // 10 + plan.lease_ms
    began = now_ms()
    with working(order, workers=WORKERS) as group:
        await asyncio.to_thread(
            kill_at_random, group, seconds=plan.seconds, every_s=plan.kill_every_s, seed=402
        )
        last_kill = now_ms()
        assert await caught_up(store, since=last_kill, seconds=longest / 1000)
    ended, probed = now_ms(), await store.reading(recorded)
    await store.close()
    gaps = sorted(
        after - before
        for instants in probed.values()
        for before, after in pairwise([*instants, ended])
    )
    slots = [after - before for instants in probed.values() for before, after in pairwise(instants)]
    p99 = gaps[len(gaps) * 99 // 100]
    sys.stderr.write(
        f"\n{len(group.killed)} killed, {sum(map(len, probed.values()))} probes in "
        f"{(ended - began) / 1000:.0f} s, gaps p50 {gaps[len(gaps) // 2]} p99 {p99} "
        f"longest {gaps[-1]} ms, of at most {longest}\n"
    )
    assert len(group.killed) >= plan.seconds / plan.kill_every_s / 2
    assert all(probed.values())
    assert min(slots) >= plan.every_ms * 9 // 10, "one probe in a slot"
    assert p99 <= longest
    assert overlaps(tmp_path, group.killed) == [], "one prober a host at a time"
