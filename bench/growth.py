"""`tollgauge bench growth`: what a probe costs the database among 1,000, 10,000 and 100,000
endpoints.

Of each number a store with a month of history (bench/filled), and in it SAMPLE endpoints that are
due: claimed as the probe loop claims them, their results recorded, their scores computed and saved.
The exchange knows nothing of how many endpoints there are; reads are measured by a bench of their
own. CPU seconds of this process, which SQLite's work is part of.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from bench import filled
from bench.database import opened
from bench.day import BEGIN, Clock, Day, everybody
from bench.measurement import Measurement, Report, rounded
from tollgauge.core.units import DAY_MS, MINUTE_MS
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import claims
from tollgauge.store.endpoints import endpoints as endpoint_rows

SIZES: Final = (1_000, 10_000, 100_000)
SAMPLE: Final = 1_000
WAVE: Final = 50
"""How many endpoints are claimed at once: as many as the smallest store has hosts, each of which
gives one, so that a wave is as large in every store.
"""
STEPS: Final = ("claim", "record", "score")


def run(sizes: tuple[int, ...] = SIZES, sample: int = SAMPLE, history: int = 30) -> Report:
    """Measure a sample of endpoints in stores of these sizes, the smallest first."""
    measured = [asyncio.run(measure(size, min(sample, size), history)) for size in sizes]
    smallest = measured[0]
    return Report(
        measurements=tuple(
            Measurement(
                name=f"{step} at {one['endpoints']:,}",
                figure=one[step],
                unit="ms of CPU",
                goal=1.3,
                peer=f"{smallest['endpoints']:,} endpoints",
                peer_figure=smallest[step],
            )
            for one in measured[1:]
            for step in STEPS
        ),
        details={"sizes": measured},
    )


async def measure(endpoints: int, sample: int, history: int) -> dict[str, Any]:
    """CPU milliseconds of each step, for an endpoint of the sample."""
    with tempfile.TemporaryDirectory() as name:
        async with opened(Path(name)) as store:
            clock = Clock(BEGIN + DAY_MS // 2)
            await filled.fill(store, endpoints=endpoints, days=history, now=clock.now)
            known = await store.reading(everybody)
            chosen = random.Random(1).sample(known, sample)  # noqa: S311 - the same each time
            day = Day(store, clock, chosen)
            clock.now += MINUTE_MS
            cpu = dict.fromkeys(STEPS, 0.0)
            cpu["claim"] = await _claim(store, clock.now, waves=sample // WAVE)
            for batch in day.seen(chosen):
                began = time.process_time()
                await day.record(batch)
                cpu["record"] += time.process_time() - began
            began = time.process_time()
            await day.score()
            cpu["score"] = time.process_time() - began
    ms = {step: rounded(1e3 * used / sample) for step, used in cpu.items()}
    return {"endpoints": endpoints, **ms}


async def _claim(store: Store, now: int, *, waves: int) -> float:
    """CPU seconds of claiming endpoints, every host having one that is due."""
    await store.writing(_all_due)
    claimed = 0
    began = time.process_time()
    for number in range(waves):
        claimed += len(
            await store.writing(
                claims.claim_due, owner=f"bench-{number}", now=now, limit=WAVE, lease_ms=1
            )
        )
        now += MINUTE_MS
    used = time.process_time() - began
    if claimed < waves * WAVE:
        raise RuntimeError(f"{claimed} endpoints were claimed, and not {waves * WAVE}")
    return used


def _all_due(tx: Connection) -> None:
    tx.execute(sa.update(schema.host).values(lease_until=0, free_at=0))
    endpoint_rows.make_due(tx, now=0)
