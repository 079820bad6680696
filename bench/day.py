"""`tollgauge bench day`: record, score, close and prune days of many endpoints.

The service's functions run on an SQLite file with history (bench/filled). The clock advances minute
by minute: every endpoint is probed every 30 minutes, RESULTS results share a transaction, and the
loops `score` and `prune` run each minute. Probe results are invented. The exchange is measured
separately: over TLS with the seller of `bench probe`, with lint and classification, compared with
the peer. The cost of a probe is the same with 2,500 endpoints, so 10,000 represent 100,000.

With the smaller number, two more days are recorded, closed and pruned without scores: the second
replaces an old day, which shows the growth of the file. A year of few endpoints shows the size of
old days.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
import uvloop
from sqlalchemy import Connection

from bench import blackbox, filled, lives
from bench.database import open_store
from bench.measurement import Measurement, Report, peak_mb, round_figure
from bench.probe import World, world
from bench.seller import run_seller
from tollgauge.core.base.units import BASE, DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.watch.watch_rules import RAW_DAYS
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import prune, score
from tollgauge.jobs.loop_settings import ProbeSettings, ScoreSettings
from tollgauge.monitor import recording
from tollgauge.monitor.probing import Observation
from tollgauge.store.endpoints import endpoints as endpoint_rows
from tollgauge.store.probes import probes
from tollgauge.store.schedule import claims, hosts

T = TypeVar("T")

ENDPOINTS: Final = 10_000
WHOLE: Final = 100_000
"""The number of endpoints for which the share of a core is computed."""
PROBES: Final = 48
"""Probes per endpoint and day."""
RESULTS: Final = 50
SLOT: Final = 30
"""Minutes in which every endpoint is probed once."""
CONCURRENT_EXCHANGES: Final = 200
YEAR_OF: Final = 20
"""Endpoints that are probed for a year."""
PART: Final = 5
"""Days of that year that are recorded before they are closed."""
HISTORY: Final = RAW_DAYS + 1
"""Days of history. Each further day moves one of them to its month."""
BEGIN: Final = 20_500 * DAY_MS
OWNER: Final = "bench"
"""Owner of the leases on hosts."""


def run(endpoints: int = ENDPOINTS, year_of: int = YEAR_OF, history: int = HISTORY) -> Report:
    """Measure days of `endpoints` and of a quarter of them, and a year of `year_of` endpoints.

    Args:
        endpoints: number of endpoints.
        year_of: number of endpoints that are probed for a year.
        history: days of history that exist before.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        exchange_ms, peer_ms = runner.run(measure_exchange())
    small = asyncio.run(measure_days(endpoints // 4, history, days=3))
    large = asyncio.run(measure_days(endpoints, history, days=1))
    year = asyncio.run(measure_year(year_of))
    probe_ms = exchange_ms + large["cpu_ms_per_probe"]
    share = probe_ms * WHOLE * PROBES / DAY_MS
    return Report(
        measurements=(
            Measurement(
                name=f"{WHOLE:,} endpoints", figure=100 * share, unit="% of a core", goal=20
            ),
            Measurement(
                name="a probe with all later steps",
                figure=probe_ms,
                unit="ms of CPU",
                goal=2.5,
                peer="blackbox_exporter",
                peer_figure=peer_ms,
            ),
            Measurement(
                name="growth of the later steps",
                figure=large["cpu_ms_per_probe"],
                unit="ms of CPU",
                goal=1.3,
                peer=f"{endpoints // 4:,} endpoints",
                peer_figure=small["cpu_ms_per_probe"],
            ),
            Measurement(
                name="file after a year",
                figure=year["after_a_year_mb"],
                unit="MB",
                goal=1.5,
                peer="100 days",
                peer_figure=year["after_100_days_mb"],
            ),
        ),
        details={
            "exchange_ms": round_figure(exchange_ms),
            "days": [small, large],
            "year": year,
            "peak_mb": round(peak_mb()),
        },
    )


async def measure_days(endpoints: int, history: int, *, days: int) -> dict[str, Any]:
    """Return the CPU of the first day by step, and the size of the file after each day."""
    with tempfile.TemporaryDirectory() as name:
        async with open_store(Path(name)) as store:
            clock = Clock(BEGIN - MINUTE_MS)
            await filled.fill(store, endpoints=endpoints, days=history, now=clock.now)
            day = Day(store, clock, await store.reading(load_endpoints))
            await day.prune()
            sizes = [await store.reading(_file_mb)]
            for number in range(days):
                await day.live(with_scores=number == 0)
                if number == 0:
                    cpu = dict(day.cpu)
                sizes.append(await store.reading(_file_mb))
    per_probe = {step: 1e3 * used / (endpoints * PROBES) for step, used in cpu.items()}
    return {
        "endpoints": endpoints,
        "probes": endpoints * PROBES,
        "cpu_ms_per_probe": round_figure(sum(per_probe.values())),
        "of_it": {step: round_figure(ms) for step, ms in per_probe.items()},
        "file_mb_before_and_after_each_day": [round_figure(size) for size in sizes],
    }


@dataclass(slots=True)
class Clock:
    """A time (ms UTC) that the measurement sets."""

    now: int

    def __call__(self) -> int:
        """Return the time."""
        return self.now


class Day:
    """Probes, scores and prunes endpoints by a clock. `cpu` contains the seconds of each step."""

    def __init__(self, store: Store, clock: Clock, endpoints: Sequence[Endpoint]) -> None:
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self._store, self._clock, self._endpoints = store, clock, endpoints
        self._cadence = Cadence()
        self._dice = random.Random(1)  # noqa: S311 - the same data every time

    async def live(self, *, with_scores: bool) -> None:
        """Advance the clock by a day and run the steps of each minute."""
        for minute in range(DAY_MS // MINUTE_MS):
            self._clock.now += MINUTE_MS
            for batch in self.invent_results(self._endpoints[minute % SLOT :: SLOT]):
                await self.measure("record", self.record(batch))
            if with_scores:
                await self.measure("score", self.score())
            await self.measure("prune", self.prune())

    async def prune(self) -> None:
        """Prune until nothing is left."""
        while (await prune.run(self._store, clock=self._clock))["busy"]:
            pass

    async def measure(self, step: str, work: Awaitable[T]) -> T:
        """Run a step, add its CPU seconds to `cpu` and return its result."""
        began = time.process_time()
        outcome = await work
        self.cpu[step] += time.process_time() - began
        return outcome

    async def claim(self, limit: int) -> tuple[Endpoint, ...]:
        """Claim at most `limit` due endpoints until their results are recorded."""
        return await self._store.writing(
            claims.claim_due,
            owner=OWNER,
            now=self._clock.now,
            limit=limit,
            lease_ms=ProbeSettings().lease_ms,
        )

    async def record(self, batch: Sequence[Observation]) -> None:
        """Record results in one transaction."""
        await self._store.writing(
            recording.record, batch, cadence=self._cadence, owner=OWNER, now=self._clock.now
        )

    async def score(self) -> None:
        """Score all due endpoints."""
        while (
            await score.run(
                self._store, settings=ScoreSettings(), cadence=self._cadence, clock=self._clock
            )
        ).get("busy"):
            pass

    def invent_results(self, due: Sequence[Endpoint]) -> Iterator[list[Observation]]:
        """Yield the current results of some endpoints in batches of RESULTS."""
        for first in range(0, len(due), RESULTS):
            yield [
                Observation(
                    endpoint=endpoint,
                    result=invent_result(endpoint, self._clock.now, self._dice),
                    learned=None,
                )
                for endpoint in due[first : first + RESULTS]
            ]


def invent_result(endpoint: Endpoint, now: int, dice: random.Random) -> ProbeResult:
    """Return the endpoint's usual result (bench/lives)."""
    return lives.answer(
        int(endpoint.resource.rpartition("/")[2]),
        endpoint.quote,
        at=now - dice.randrange(1_000),
        tls_not_after=BEGIN + 60 * DAY_MS,
        rng=dice,
    )


async def measure_exchange() -> tuple[float, float]:
    """Return the CPU milliseconds of a classified exchange and of the peer's exchange."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            run_seller(folder) as seller,
            blackbox.start(folder, seller) as exporter,
            world(folder, seller) as ours,
        ):
            await _probe_all(ours)
            cpu = time.process_time()
            await _probe_all(ours)
            used = time.process_time() - cpu
            peer = await exporter.exchanges(len(ours.endpoints))
    return 1e3 * used / len(ours.endpoints), 1e3 * peer


async def _probe_all(ours: World) -> None:
    """Probe every endpoint once without recording results."""
    now = ours.prober.clock()
    for first in range(0, len(ours.endpoints), CONCURRENT_EXCHANGES):
        seen = await asyncio.gather(
            *(
                ours.prober.probe(
                    endpoint, hosts.HostState(host=endpoint.host, wildcard=False, wildcard_at=now)
                )
                for endpoint in ours.endpoints[first : first + CONCURRENT_EXCHANGES]
            )
        )
        if not all(observation.sells for observation in seen):
            raise RuntimeError("A seller did not return 402.")


async def measure_year(endpoints: int) -> dict[str, Any]:
    """Record a year of few endpoints in parts of PART days and return how much the file grew."""
    dice = random.Random(2)  # noqa: S311 - the same data every time
    known = [_seller(number) for number in range(endpoints)]
    sizes, used = [], time.process_time()
    with tempfile.TemporaryDirectory() as name:
        async with open_store(Path(name)) as store:
            await store.writing(endpoint_rows.insert, *known)
            empty = await store.reading(_file_mb)
            for begin in range(BEGIN, BEGIN + 365 * DAY_MS, PART * DAY_MS):
                for endpoint in known:
                    await store.writing(
                        probes.record_many, endpoint.id, _part(endpoint, begin, dice)
                    )
                now = begin + PART * DAY_MS + HOUR_MS
                while (await prune.run(store, clock=Clock(now)))["busy"]:
                    pass
                sizes.append(await store.reading(_file_mb) - empty)
    return {
        "endpoints": endpoints,
        "after_100_days_mb": round_figure(sizes[100 // PART - 1]),
        "after_a_year_mb": round_figure(sizes[-1]),
        "cpu_s": round_figure(time.process_time() - used),
    }


def _part(endpoint: Endpoint, begin: int, dice: random.Random) -> list[ProbeResult]:
    """Return the probes of PART days."""
    step = DAY_MS // PROBES
    return [
        invent_result(endpoint, begin + (number + 1) * step, dice)
        for number in range(PART * PROBES)
    ]


def load_endpoints(tx: Connection) -> list[Endpoint]:
    """Return all endpoints, ordered by ID."""
    ids = tx.execute(sa.select(schema.endpoint.c.id).order_by(schema.endpoint.c.id)).scalars().all()
    return list(endpoint_rows.get_many(tx, ids).values())


def _file_mb(tx: Connection) -> float:
    """Return the size of the file in MB."""
    pages = tx.exec_driver_sql("PRAGMA page_count").scalar_one()
    return float(pages * tx.exec_driver_sql("PRAGMA page_size").scalar_one() / 1e6)


def _seller(number: int) -> Endpoint:
    host = f"h{number}.sellers.example"
    url = f"https://{host}/v1/item/{number}"
    quote = Quote(network=BASE, asset=lives.USDC, amount=5_000, pay_to=f"0x{number:040x}")
    return Endpoint(
        id=endpoint_id(url),
        resource=url,
        host=host,
        first_seen=BEGIN,
        last_seen=BEGIN,
        quote=quote,
        quote_at=BEGIN,
    )
