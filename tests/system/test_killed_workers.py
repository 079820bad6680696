"""Workers and database servers that are killed at random lose no probe and repeat none.

`make test-all` (TOLLGAUGE_SCHEDULES) runs the long schedules: four workers, 20,000 endpoints on
4,000 hosts, a kill every five seconds for five minutes.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.killed_workers import Workers, kill_at_random, overlaps, run_workers
from tests.support.postgres import Databases, Postgres, Server
from tests.support.probing_process import Order

from tollgauge.app import now_ms
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Numbers of endpoints and workers, the duration, and the interval of the kills."""

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
    """Return endpoints whose first probes are spread over the cadence."""
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


def load_probe_times(tx: Connection) -> dict[str, list[int]]:
    """Return the times of each endpoint's probes, by ID."""
    table = schema.probe
    instants: dict[str, list[int]] = {
        id_: [] for id_ in tx.execute(sa.select(schema.endpoint.c.id)).scalars()
    }
    for id_, at in tx.execute(sa.select(table.c.endpoint_id, table.c.at).order_by(table.c.at)):
        instants[id_].append(at)
    return instants


def count_unprobed(tx: Connection, at: int) -> int:
    """Return the number of endpoints that were not probed since a time."""
    last = sa.func.coalesce(schema.endpoint.c.last_probed, 0)
    count = sa.select(sa.func.count()).select_from(schema.endpoint).where(last < at)
    return int(tx.execute(count).scalar_one())


async def is_caught_up(store: Store, *, since: int, seconds: float) -> bool:
    """Return whether every endpoint is probed again before the timeout."""
    ends = time.monotonic() + seconds
    while await store.reading(count_unprobed, since):
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(0.1)
    return True


@pytest.mark.postgres
async def test_killed_workers_lose_and_repeat_no_probe(database_url: str, tmp_path: Path) -> None:
    await lose_no_probe(database_url, tmp_path, Workers.replace_one)


@pytest.mark.postgres
async def test_killed_database_server_loses_and_repeats_no_probe(
    killable_postgres: Server, tmp_path: Path
) -> None:
    """Kills hit the server, one of its processes, or a worker at random. The death of the server
    must not end a worker.
    """
    killable_postgres.postgres.copy_template("killed")

    def kill_any(group: Workers, dice: random.Random) -> None:
        kind = dice.randrange(3)
        if kind == 0:
            group.replace_one(dice)
        elif kind == 1:
            killable_postgres.kill_one(dice)
        else:
            killable_postgres.kill()
            time.sleep(dice.uniform(0, SCHEDULE.kill_every_s / 2))
            killable_postgres.start_again()

    await lose_no_probe(killable_postgres.postgres.url("killed"), tmp_path, kill_any)


async def lose_no_probe(
    database_url: str, folder: Path, kill: Callable[[Workers, random.Random], None]
) -> None:
    """Let workers probe while processes are killed repeatedly."""
    plan = SCHEDULE
    store = Store.open(database_url)
    await store.writing(endpoints.insert, *rows(plan, now=now_ms()))
    order = Order(
        url=database_url,
        folder=str(folder),
        every_ms=plan.every_ms,
        lease_ms=plan.lease_ms,
        host_gap_ms=100,
    )
    longest = plan.every_ms * 11 // 6 + plan.lease_ms
    began = now_ms()
    with run_workers(order, workers=WORKERS) as group:
        kills = await asyncio.to_thread(
            kill_at_random,
            partial(kill, group),
            seconds=plan.seconds,
            every_s=plan.kill_every_s,
            seed=402,
        )
        workers, last_kill = len(group.killed), now_ms()
        assert await is_caught_up(store, since=last_kill, seconds=longest / 1000)
        assert group.find_ended() == set(), "a worker ended without a kill"
    ended, probed = now_ms(), await store.reading(load_probe_times)
    await store.close()
    gaps = sorted(
        after - before
        for instants in probed.values()
        for before, after in pairwise([*instants, ended])
    )
    slots = [after - before for instants in probed.values() for before, after in pairwise(instants)]
    p99 = gaps[len(gaps) * 99 // 100]
    sys.stderr.write(
        f"\n{kills} kills, {workers} of workers, {sum(map(len, probed.values()))} probes "
        f"in {(ended - began) / 1000:.0f} s, gaps p50 {gaps[len(gaps) // 2]} p99 {p99} "
        f"longest {gaps[-1]} ms, of at most {longest}\n"
    )
    assert all(probed.values())
    # Gaps are drawn between 1/6 and 11/6 of the interval; a shorter one is a repeated probe. On a
    # very busy machine, each endpoint may have been probed only once.
    assert min(slots, default=plan.every_ms) >= plan.every_ms // 6, "one probe per drawn gap"
    assert p99 <= longest
    assert overlaps(folder, group.killed) == [], "one concurrent prober per host"
