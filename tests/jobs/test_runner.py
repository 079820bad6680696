"""Exclusive rounds: one worker at a time, and the work of a dead worker is taken over soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs
from tests.support.statements import execute, fetch

from tollgauge.db import meta
from tollgauge.db.engine import Store
from tollgauge.jobs import prune, runner
from tollgauge.jobs.runner import Job, Tally, run_jobs
from tollgauge.store import backlog

HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def job(run: Callable[[], object]) -> Job:
    async def round_() -> Tally:
        tally = run()
        if asyncio.iscoroutine(tally):
            await tally
        return {}

    return Job("index", round_, every_s=0.01, timeout_s=3_600, exclusive=True)


async def until(store: Store) -> int:
    query = sa.select(meta.lease.c.until).where(meta.lease.c.name == "index")
    return int((await fetch(store, query)).scalar_one())


async def move_lease(store: Store, owner: str) -> None:
    """Give the lease to another worker, as after a pause in which this worker's lease ended."""
    change = meta.lease.update().where(meta.lease.c.name == "index")
    await execute(store, change.values(owner=owner, until=now_ms() + HOUR_MS))


async def test_work_of_a_dead_worker_is_free_within_two_minutes(store: Store) -> None:
    """A dead worker does not renew its lease, so the lease ends regardless of the round's limit."""
    stop = asyncio.Event()
    held: list[int] = []

    async def look() -> None:
        held.append(await until(store) - now_ms())
        stop.set()

    await run_jobs([job(look)], store=store, clock=now_ms, owner="one", stop=stop)
    assert 0 < held[0] <= 120_000 - runner.RENEW_MS
    later = now_ms() + 120_000
    assert await store.writing(meta.take_lease, "index", owner="two", now=later, ttl_ms=1)


async def test_long_round_keeps_its_lease(
    store: Store, open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RENEW_MS", 20)
    stop = asyncio.Event()
    other = open_store()

    async def long() -> None:
        first = await until(other)
        while await until(other) == first:  # noqa: ASYNC110 (a row tells no one)
            await asyncio.sleep(0.01)
        when = first + 1
        assert not await other.writing(
            meta.take_lease, "index", owner="two", now=when, ttl_ms=HOUR_MS
        )
        stop.set()

    await run_jobs([job(long)], store=store, clock=now_ms, owner="one", stop=stop)
    assert await store.writing(meta.take_lease, "index", owner="two", now=now_ms(), ttl_ms=1), (
        "given back"
    )


async def test_round_whose_lease_is_lost_is_cancelled(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RENEW_MS", 20)
    stop = asyncio.Event()
    ended: list[str] = []

    async def lose_lease() -> None:
        await move_lease(store, "two")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            stop.set()
            raise

    await run_jobs([job(lose_lease)], store=store, clock=now_ms, owner="one", stop=stop)
    assert ended == ["cancelled"]
    assert not await store.writing(meta.take_lease, "index", owner="one", now=now_ms(), ttl_ms=1)


async def test_round_that_cannot_renew_its_lease_ends_before_the_lease(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This worker has lost the database. It must stop before another worker may begin."""
    monkeypatch.setattr(runner, "LEASE_MS", 600)
    monkeypatch.setattr(runner, "MARGIN_MS", 300)
    monkeypatch.setattr(runner, "RENEW_MS", HOUR_MS)
    stop = asyncio.Event()
    left: list[int] = []

    async def endless() -> None:
        lease = await until(store)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            left.append(lease - now_ms())
            stop.set()
            raise

    await run_jobs([job(endless)], store=store, clock=now_ms, owner="one", stop=stop)
    assert len(left) == 1


async def test_results_of_rounds_are_logged_when_they_change(store: Store) -> None:
    stop = asyncio.Event()
    noted: list[backlog.JobRound] = []
    rounds = 0

    async def unlucky() -> None:
        nonlocal rounds
        noted.extend(await store.reading(backlog.job_rounds))
        rounds += 1
        if rounds == 2:
            raise KeyError("not told")
        if rounds == 4:
            stop.set()

    await run_jobs([job(unlucky)], store=store, clock=now_ms, owner="one", stop=stop)
    first, failed, mended = noted
    assert (first.name, first.failing, first.failed_at) == ("index", False, None)
    assert failed.failing
    assert failed.error.startswith("KeyError")
    assert "not told" not in failed.error
    assert (mended.failing, mended.failed_at) == (False, failed.failed_at)
    assert mended.expected_by > now_ms() + HOUR_MS


async def test_failure_in_a_task_of_a_round_is_reported_instead_of_its_group(
    store: Store,
) -> None:
    stop = asyncio.Event()

    async def fail() -> None:
        stop.set()
        raise ZeroDivisionError

    async def tasks() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    with capture_logs() as lines:
        await run_jobs([job(tasks)], store=store, clock=now_ms, owner="one", stop=stop)
    assert [line["error"] for line in lines if line["event"] == "job.fail"] == ["ZeroDivisionError"]
    (noted,) = await store.reading(backlog.job_rounds)
    assert noted.error.split()[0] == "ZeroDivisionError"


async def test_round_without_its_database_names_the_step_that_failed(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'missing' / 'a.db'}")
    stop = asyncio.Event()

    async def prune_once() -> Tally:
        stop.set()
        return await prune.run(store, clock=now_ms)

    prunes = Job("prune", prune_once, every_s=0.01, timeout_s=60)
    with capture_logs() as lines:
        await run_jobs([prunes], store=store, clock=now_ms, owner="one", stop=stop)
    await store.close()
    (failed,) = (line for line in lines if line["event"] == "job.fail")
    assert failed["error"] == "StoreUnavailable"
    assert failed["where"].startswith("prune.py:")
