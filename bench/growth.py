"""`tollgauge bench growth`: database cost of a probe among 1,000, 10,000 and 100,000 endpoints.

Each size has a store with a month of history (bench/filled) in which each endpoint has its own
probe times. As in the probe loop, WAVE endpoints are claimed as soon as that number of hosts has a
due endpoint; their results are recorded, and their scores computed and saved. The rows of a
transaction are therefore as close together as in the service: endpoints that are due in the same
second were also probed and scored in the same minute before. A random choice would touch more pages
of every index.

The first WARM_WAVES are not measured: they load the hosts and the upper pages of each index, which
a running service has in memory. The step that writes the thousandth page of SQLite's log pays for
copying them into the database file. With fewer waves, chance would decide which step that is.

The exchange does not depend on the number of endpoints, and reads have a separate measurement. CPU
seconds are of this process and include SQLite.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from bench import filled
from bench.database import open_store
from bench.day import BEGIN, Clock, Day
from bench.measurement import Measurement, Report, round_figure
from tollgauge.core.base.units import DAY_MS, SECOND_MS
from tollgauge.db import schema
from tollgauge.db.engine import Store

SIZES: Final = (1_000, 10_000, 100_000)
SAMPLE: Final = 2_000
WAVE: Final = 20
"""Endpoints per wave. With 100,000 endpoints, about 14 results arrive while the first waits for
others (jobs/probe.GATHER_S). The smallest store has 50 hosts with one endpoint per wave each: a
larger wave would wait for hours there, and only there.
"""
WARM_WAVES: Final = 25
STEPS: Final = ("claim", "record", "score")


def run(sizes: tuple[int, ...] = SIZES, sample: int = SAMPLE, history: int = 30) -> Report:
    """Measure `sample` results in stores of these sizes, the smallest first."""
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
    """Return the CPU milliseconds of each step per result."""
    with tempfile.TemporaryDirectory() as name:
        async with open_store(Path(name)) as store:
            clock = Clock(BEGIN + DAY_MS // 2)
            await filled.fill(store, endpoints=endpoints, days=history, now=clock.now)
            await live(store, clock, WARM_WAVES)
            return {"endpoints": endpoints, **await live(store, clock, sample // WAVE)}


async def live(store: Store, clock: Clock, waves: int) -> dict[str, float]:
    """Claim, record and score waves. Returns the CPU milliseconds of each step per result."""
    day = Day(store, clock, ())
    for _ in range(waves):
        clock.now = max(clock.now, await store.reading(_wave_due))
        due = await day.measure("claim", day.claim(WAVE))
        if len(due) < WAVE:
            raise RuntimeError(f"{len(due)} endpoints were claimed instead of {WAVE}.")
        clock.now += SECOND_MS
        for batch in day.invent_results(due):
            await day.measure("record", day.record(batch))
        await day.measure("score", day.score())
    return {step: round_figure(1e3 * used / (waves * WAVE)) for step, used in day.cpu.items()}


def _wave_due(tx: Connection) -> int:
    """Return the time (ms UTC) when WAVE hosts can be claimed."""
    due = schema.host.c.next_claim
    at: int = tx.execute(sa.select(due).order_by(due).offset(WAVE - 1).limit(1)).scalar_one()
    return at
