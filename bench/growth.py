"""`tollgauge bench growth`: what a probe costs the database among 1,000, 10,000 and 100,000
endpoints.

Of each number a store with a month of history (bench/filled), in which each endpoint has its own
place in the schedule. Waves of WAVE endpoints are claimed as the probe loop claims them, as soon as
so many hosts have one that is due; their results are recorded, and their scores computed and saved.
So what a transaction writes lies as near together as in the service: what is due in the same second
was probed, and scored, in the same minute before. Endpoints that were chosen at random would touch
other pages of every index. The first WARM_WAVES are not measured: they read what every wave needs,
the hosts and the upper pages of each index, which a service that has run for a while has in memory.

Whoever writes the thousandth page of SQLite's log copies all of them into the database file, which
may be any of the steps: fewer waves would leave it to chance which of them pays for it.

The exchange knows nothing of how many endpoints there are; reads are measured by a bench of their
own. CPU seconds of this process, which SQLite's work is part of.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from bench import filled
from bench.database import opened
from bench.day import BEGIN, Clock, Day
from bench.measurement import Measurement, Report, rounded
from tollgauge.core.base.units import DAY_MS, SECOND_MS
from tollgauge.db import schema
from tollgauge.db.engine import Store

SIZES: Final = (1_000, 10_000, 100_000)
SAMPLE: Final = 2_000
WAVE: Final = 20
"""How many endpoints are claimed at once, in every store as many. 100,000 endpoints give some 14
results while one waits for others (jobs/probe.GATHER_S); and the smallest store has 50 hosts, each
of which gives one: a larger wave would wait there for hours of probes that the others do not have.
"""
WARM_WAVES: Final = 25
STEPS: Final = ("claim", "record", "score")


def run(sizes: tuple[int, ...] = SIZES, sample: int = SAMPLE, history: int = 30) -> Report:
    """Measure so many results in stores of these sizes, the smallest first."""
    measured = [asyncio.run(measure(size, sample, history)) for size in sizes]
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
    """CPU milliseconds of each step, for a result of the sample."""
    with tempfile.TemporaryDirectory() as name:
        async with opened(Path(name)) as store:
            clock = Clock(BEGIN + DAY_MS // 2)
            await filled.fill(store, endpoints=endpoints, days=history, now=clock.now)
            await live(store, clock, WARM_WAVES)
            return {"endpoints": endpoints, **await live(store, clock, sample // WAVE)}


async def live(store: Store, clock: Clock, waves: int) -> dict[str, float]:
    """Claim, record and score so many waves: CPU milliseconds of each step, for a result."""
    day = Day(store, clock, ())
    for _ in range(waves):
        clock.now = max(clock.now, await store.reading(_wave_due))
        due = await day.timed("claim", day.claim(WAVE))
        if len(due) < WAVE:
            raise RuntimeError(f"{len(due)} endpoints were claimed, and not {WAVE}")
        clock.now += SECOND_MS
        for batch in day.seen(due):
            await day.timed("record", day.record(batch))
        await day.timed("score", day.score())
    return {step: rounded(1e3 * used / (waves * WAVE)) for step, used in day.cpu.items()}


def _wave_due(tx: Connection) -> int:
    """When WAVE hosts may be claimed (ms UTC)."""
    due = schema.host.c.next_claim
    at: int = tx.execute(sa.select(due).order_by(due).offset(WAVE - 1).limit(1)).scalar_one()
    return at
