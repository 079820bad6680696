"""Concurrent workers and rounds of the probe loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.probe_loop import START, Clock, Loop, endpoint, run_counting_seller, worker

from tollgauge.app import now_ms
from tollgauge.core.base.units import DAY_MS
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.db import meta
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.jobs.loop_settings import ScoreSettings
from tollgauge.jobs.runner import Job, run_jobs
from tollgauge.store.endpoints import endpoints
from tollgauge.store.scores import scores


@pytest.fixture
async def empty() -> AsyncIterator[Store]:
    store = Store.open("sqlite://")
    await store.migrate()
    yield store
    await store.close()


async def test_two_workers_never_probe_one_host_concurrently(
    store: Store, open_store: Callable[[], Store], tmp_path: Path
) -> None:
    hosts = {f"host-{number}.example" for number in range(4)}
    added = [
        endpoint(f"https://{host}/paid/report-{n}") for host in sorted(hosts) for n in range(6)
    ]
    async with run_counting_seller(tmp_path, hosts) as server, contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(worker(one, server.mapped, ca_file=server.ca_file))
            for one in (store, open_store())
        ]
        for number, loop in enumerate(workers):
            loop.owner, loop.clock = f"worker-{number}", now_ms
            loop.settings = replace(loop.settings, wave=2)
        await workers[0].add(*added)

        async def until_done(loop: Loop) -> int:
            probed = 0
            for _ in range(200):
                probed += int(str((await loop.probe()).get("probed", 0)))
                if sum(server.asked[e.resource.removeprefix("https://")] for e in added) >= 24:
                    break
                await asyncio.sleep(0.005)
            return probed

        done = await asyncio.gather(*(until_done(loop) for loop in workers))
        assert sum(done) == 24
        assert all(done), "both workers must probe"
        for paid in added:
            assert len(await workers[0].history(paid.id)) == 1
    assert set(server.most.values()) == {1}, (
        "one concurrent request per host, including wildcard tests"
    )
    listed = {one.resource.removeprefix("https://") for one in added}
    unlisted = Counter(path.split("/")[0] for path in server.asked if path not in listed)
    assert sum(server.asked[path] for path in listed) == 24
    assert unlisted == dict.fromkeys(hosts, 2), "two unlisted paths of each host"


async def test_endpoint_that_cannot_be_scored_does_not_stop_others(empty: Store) -> None:
    odd = replace(endpoint("https://api.site-0.example/paid"), first_seen=2**60)
    others = [endpoint(f"https://api.site-{number}.example/paid") for number in range(1, 6)]
    await empty.writing(endpoints.insert, odd, *others)
    await empty.writing(endpoints.mark_dirty, [odd.id], now=START)
    clock = Clock(START + DAY_MS)
    tally = await score.run(empty, settings=ScoreSettings(), cadence=NORMAL, clock=clock)
    assert (tally["scored"], tally["failed"]) == (6, 1)
    assert await empty.reading(scores.get, odd.id) is None
    assert len(await empty.reading(scores.results, [other.id for other in others])) == 5


async def test_rounds_of_a_loop_overlap_up_to_its_concurrency(empty: Store) -> None:
    stop, under_way, most = asyncio.Event(), set[object](), 0
    full = asyncio.Event()

    async def run() -> dict[str, object]:
        nonlocal most
        mine = object()
        under_way.add(mine)
        most = max(most, len(under_way))
        if len(under_way) == 3:
            full.set()
        await full.wait()
        stop.set()
        under_way.discard(mine)
        return {}

    job = Job("probe", run, every_s=0.01, timeout_s=60, concurrency=3)
    async with asyncio.timeout(20):
        await run_jobs([job], store=empty, clock=now_ms, owner="one", stop=stop)
    assert most == 3, "a waiting round must not block others"


async def test_stopping_worker_releases_its_exclusive_rounds(
    store: Store, open_store: Callable[[], Store]
) -> None:
    stop, rounds = asyncio.Event(), Counter[str]()

    def job(owner: str, halt: asyncio.Event) -> Job:
        async def run() -> dict[str, object]:
            rounds[owner] += 1
            halt.set()
            return {}

        return Job("prune", run, every_s=0.01, timeout_s=60, exclusive=True)

    await run_jobs([job("one", stop)], store=store, clock=now_ms, owner="one", stop=stop)
    assert await store.writing(meta.take_lease, "prune", owner="three", now=now_ms(), ttl_ms=60_000)
    await store.writing(meta.end_lease, "prune", owner="three")
    other = asyncio.Event()
    second = open_store()
    await run_jobs([job("two", other)], store=second, clock=now_ms, owner="two", stop=other)
    assert rounds == {"one": 1, "two": 1}
