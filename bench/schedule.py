"""`tollgauge bench schedule`: the cost of choosing the next endpoints to probe.

Measured are the claim of a wave of 64 hosts, the release of its leases, and the plan of all hosts'
shares, with 1,000 and 100,000 endpoints. Two hosts have 88% of the endpoints, and all are due. On
SQLite and on PostgreSQL; CPU is that of this process. The details also contain elapsed times.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import database, postgres
from bench.measurement import Measurement, Report
from tollgauge.core.base.units import DAY_MS, HOUR_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.db.engine import Store
from tollgauge.jobs import probe
from tollgauge.store.endpoints import endpoints
from tollgauge.store.rows import chunks
from tollgauge.store.schedule import claims, hosts

SIZES: Final = (1_000, 100_000)
WAVE: Final = 64
WAVES: Final = 60
PLANS: Final = 5
PLAN_EVERY_S: Final = 120
NOW: Final = 20_700 * DAY_MS
OPEN: Final = 10**9
"""A speed at which no budget ends a wave."""


def run(sizes: Sequence[int] = SIZES) -> Report:
    """Measure with each number of endpoints."""
    return asyncio.run(measure(sizes))


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU and elapsed seconds of each piece of work."""

    cpu: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        """Add the duration of the block."""
        cpu, clock = time.process_time(), time.perf_counter()
        yield
        self.cpu.append(time.process_time() - cpu)
        self.clock.append(time.perf_counter() - clock)

    def document(self) -> dict[str, float]:
        """Return the medians in milliseconds."""
        return {
            "cpu_ms": round(statistics.median(self.cpu) * 1000, 3),
            "clock_ms": round(statistics.median(self.clock) * 1000, 3),
        }


async def measure(sizes: Sequence[int]) -> Report:
    """Return the costs on each database at each size."""
    with tempfile.TemporaryDirectory() as name:
        details: dict[str, Any] = {}
        for kind, opened in _databases(Path(name)).items():
            details[kind] = {}
            for size in sizes:
                async with opened(size) as store:
                    details[kind][size] = await costs(store, size)
    documents = {
        kind: {str(size): costs for size, costs in by_size.items()}
        for kind, by_size in details.items()
    }
    return Report(measurements=tuple(_measurements(details, sizes)), details=documents)


def _measurements(details: dict[str, Any], sizes: Sequence[int]) -> Iterator[Measurement]:
    few, many = min(sizes), max(sizes)
    for kind, by_size in details.items():
        for work in ("claim", "release"):
            yield Measurement(
                name=f"{work} of a wave, {kind}",
                figure=by_size[many][work]["cpu_ms"],
                unit="ms of CPU",
                goal=1.3,
                peer=f"the same with {few:,} endpoints",
                peer_figure=by_size[few][work]["cpu_ms"],
            )
        yield Measurement(
            name=f"plan of {many:,} endpoints, {kind}",
            figure=by_size[many]["plan"]["cpu_ms"] / 1000 / PLAN_EVERY_S,
            unit="cores",
            goal=0.01,
        )


async def costs(store: Store, size: int) -> dict[str, Any]:
    """Fill an empty store, plan, and claim and release waves one after the other."""
    rows = list(generate_skewed(size))
    for part in chunks(rows):
        await store.writing(endpoints.insert, *part)
    plan, claim, release = Costs(), Costs(), Costs()
    for _ in range(PLANS):
        with plan.measure():
            await probe.plan_intervals(store, cadence=NORMAL, catch_up=OPEN, clock=lambda: NOW)
    claimed = 0
    for number in range(WAVES):
        now = NOW + number * 10 * SECOND_MS
        with claim.measure():
            wave = await store.writing(
                claims.claim_due, owner="bench", now=now, limit=WAVE, lease_ms=HOUR_MS
            )
        claimed += len(wave)
        free_at = {endpoint.host: now + SECOND_MS for endpoint in wave}
        with release.measure():
            await store.writing(hosts.release, free_at, owner="bench", now=now)
    if claimed != WAVE * WAVES:
        raise RuntimeError(f"{claimed} endpoints were claimed instead of {WAVE * WAVES}.")
    works = {"plan": plan, "claim": claim, "release": release}
    return {work: costs.document() for work, costs in works.items()}


def generate_skewed(size: int) -> Iterator[Endpoint]:
    """Yield due endpoints: 56% of one host, 32% of another."""
    for number in range(size):
        share = number % 100
        host = f"h{number % 25_000}.example" if share >= 88 else "one.example.com"
        host = "two.example.net" if 56 <= share < 88 else host
        resource = f"https://{host}/v1/{number}"
        yield Endpoint(
            id=endpoint_id(resource),
            resource=resource,
            host=host,
            description="A description of an endpoint, a few hundred bytes long. " * 8,
            first_seen=NOW - DAY_MS,
            last_seen=NOW,
            next_due=NOW - HOUR_MS + number * HOUR_MS // size,
        )


Opened = Callable[[int], contextlib.AbstractAsyncContextManager[Store]]


def _databases(folder: Path) -> dict[str, Opened]:
    """Return a function for each database that opens an empty store."""

    def in_file(size: int) -> contextlib.AbstractAsyncContextManager[Store]:
        place = folder / str(size)
        place.mkdir()
        return database.open_store(place)

    return {"sqlite": in_file, "postgresql": lambda _size: postgres.open_store()}
