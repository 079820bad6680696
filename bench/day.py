"""`tollgauge bench day`: days of many endpoints through recording, scoring, closing and pruning.

The real functions over an SQLite file with history (bench/filled), by a clock that is turned on a
minute at a time: every endpoint is probed every 30 minutes, RESULTS results share a transaction,
and the loops `score` and `prune` have their turn each minute. What the probes saw is made up, so
the exchange itself is measured beside it, over TLS with the seller of `bench probe`, linted and
judged, and the peer's. A tenth of 100,000 endpoints is enough where the cost of a probe is the same
at a fortieth.

Of the smaller number two more days are recorded, closed and pruned, without scores, of which a new
one replaces the old: they show how the file grows. A year of few endpoints shows what is left of
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
from bench.database import opened
from bench.measurement import Measurement, Report, peak_mb, rounded
from bench.probe import World, world
from bench.seller import selling
from tollgauge.core.base.units import BASE, DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.watch.watch_rules import RAW_DAYS
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import prune, score
from tollgauge.jobs.probe import ProbeSettings
from tollgauge.jobs.score import ScoreSettings
from tollgauge.monitor import probing
from tollgauge.monitor.observation import Observation
from tollgauge.store.endpoints import endpoints as endpoint_rows
from tollgauge.store.probes import probes
from tollgauge.store.schedule import claims, hosts

T = TypeVar("T")

ENDPOINTS: Final = 10_000
WHOLE: Final = 100_000
"""The market that the share of a core is told for."""
PROBES: Final = 48
"""Of an endpoint, a day."""
RESULTS: Final = 50
SLOT: Final = 30
"""Minutes in which every endpoint is probed once."""
AT_ONCE: Final = 200
"""Exchanges in flight."""
YEAR_OF: Final = 20
"""Endpoints that live a year."""
PART: Final = 5
"""Days of that year that are recorded before they are closed."""
HISTORY: Final = RAW_DAYS + 1
"""Days of history: each further day makes one of them due for its month."""
BEGIN: Final = 20_500 * DAY_MS
OWNER: Final = "bench"
"""Who holds the leases of hosts."""


def run(endpoints: int = ENDPOINTS, year_of: int = YEAR_OF, history: int = HISTORY) -> Report:
    """Measure days of so many endpoints, and of a quarter of them, after so many days of history;
    and a year of few.
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
                name="a probe and all that follows",
                figure=probe_ms,
                unit="ms of CPU",
                goal=2.5,
                peer="blackbox_exporter",
                peer_figure=peer_ms,
            ),
            Measurement(
                name="growth of what follows",
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
            "exchange_ms": rounded(exchange_ms),
            "days": [small, large],
            "year": year,
            "peak_mb": round(peak_mb()),
        },
    )


async def measure_days(endpoints: int, history: int, *, days: int) -> dict[str, Any]:
    """Days of so many endpoints: CPU of the first by step, and the size of the file after each."""
    with tempfile.TemporaryDirectory() as name:
        async with opened(Path(name)) as store:
            clock = Clock(BEGIN - MINUTE_MS)
            await filled.fill(store, endpoints=endpoints, days=history, now=clock.now)
            day = Day(store, clock, await store.reading(everybody))
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
        "cpu_ms_per_probe": rounded(sum(per_probe.values())),
        "of_it": {step: rounded(ms) for step, ms in per_probe.items()},
        "file_mb_before_and_after_each_day": [rounded(size) for size in sizes],
    }


@dataclass(slots=True)
class Clock:
    """An instant (ms UTC) that the measurement sets."""

    now: int

    def __call__(self) -> int:
        """The instant."""
        return self.now


class Day:
    """Endpoints that are probed, scored and pruned by a clock; `cpu` has the seconds of each step
    so far.
    """

    def __init__(self, store: Store, clock: Clock, endpoints: Sequence[Endpoint]) -> None:
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self._store, self._clock, self._endpoints = store, clock, endpoints
        self._cadence = Cadence()
        self._dice = random.Random(1)  # noqa: S311 - the same data every time

    async def live(self, *, with_scores: bool) -> None:
        """Turn the clock on by a day, and do what each minute asks for."""
        for minute in range(DAY_MS // MINUTE_MS):
            self._clock.now += MINUTE_MS
            for batch in self.seen(self._endpoints[minute % SLOT :: SLOT]):
                await self.timed("record", self.record(batch))
            if with_scores:
                await self.timed("score", self.score())
            await self.timed("prune", self.prune())

    async def prune(self) -> None:
        """Rounds until nothing is left."""
        while (await prune.run(self._store, clock=self._clock))["busy"]:
            pass

    async def timed(self, step: str, work: Awaitable[T]) -> T:
        """What a step returns; its CPU seconds are added to `cpu`."""
        began = time.process_time()
        outcome = await work
        self.cpu[step] += time.process_time() - began
        return outcome

    async def claim(self, limit: int) -> tuple[Endpoint, ...]:
        """Claim what is due, at most so many endpoints, until their results are recorded."""
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
            probing.record, batch, cadence=self._cadence, owner=OWNER, now=self._clock.now
        )

    async def score(self) -> None:
        """Score what is due."""
        while (
            await score.run(
                self._store, settings=ScoreSettings(), cadence=self._cadence, clock=self._clock
            )
        ).get("busy"):
            pass

    def seen(self, due: Sequence[Endpoint]) -> Iterator[list[Observation]]:
        """What the probes of some endpoints saw now, RESULTS at a time."""
        for first in range(0, len(due), RESULTS):
            yield [
                Observation(
                    endpoint=endpoint,
                    result=made_up(endpoint, self._clock.now, self._dice),
                    learned=None,
                )
                for endpoint in due[first : first + RESULTS]
            ]


def made_up(endpoint: Endpoint, now: int, dice: random.Random) -> ProbeResult:
    """What a probe saw: what the probes before saw as a rule (bench/lives)."""
    return lives.answer(
        int(endpoint.resource.rpartition("/")[2]),
        endpoint.quote,
        at=now - dice.randrange(1_000),
        tls_not_after=BEGIN + 60 * DAY_MS,
        rng=dice,
    )


async def measure_exchange() -> tuple[float, float]:
    """CPU milliseconds of an exchange, linted and judged, and of the peer's exchange."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            selling(folder) as seller,
            blackbox.started(folder, seller) as exporter,
            world(folder, seller) as ours,
        ):
            await _probe_all(ours)
            cpu = time.process_time()
            await _probe_all(ours)
            used = time.process_time() - cpu
            peer = await exporter.exchanges(len(ours.endpoints))
    return 1e3 * used / len(ours.endpoints), 1e3 * peer


async def _probe_all(ours: World) -> None:
    """Probe every endpoint once, and record nothing."""
    now = ours.prober.clock()
    for first in range(0, len(ours.endpoints), AT_ONCE):
        seen = await asyncio.gather(
            *(
                ours.prober.probe(
                    endpoint, hosts.HostState(host=endpoint.host, wildcard=False, wildcard_at=now)
                )
                for endpoint in ours.endpoints[first : first + AT_ONCE]
            )
        )
        if not all(observation.sells for observation in seen):
            raise RuntimeError("a seller did not answer 402")


async def measure_year(endpoints: int) -> dict[str, Any]:
    """A year of few endpoints, PART days at a time: the size of the file without what an empty one
    has.
    """
    dice = random.Random(2)  # noqa: S311 - the same data every time
    known = [_seller(number) for number in range(endpoints)]
    sizes, used = [], time.process_time()
    with tempfile.TemporaryDirectory() as name:
        async with opened(Path(name)) as store:
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
        "after_100_days_mb": rounded(sizes[100 // PART - 1]),
        "after_a_year_mb": rounded(sizes[-1]),
        "cpu_s": rounded(time.process_time() - used),
    }


def _part(endpoint: Endpoint, begin: int, dice: random.Random) -> list[ProbeResult]:
    """PART days of probes."""
    step = DAY_MS // PROBES
    return [made_up(endpoint, begin + (number + 1) * step, dice) for number in range(PART * PROBES)]


def everybody(tx: Connection) -> list[Endpoint]:
    """Every endpoint, in the order of their ids."""
    ids = tx.execute(sa.select(schema.endpoint.c.id).order_by(schema.endpoint.c.id)).scalars().all()
    return list(endpoint_rows.get_many(tx, ids).values())


def _file_mb(tx: Connection) -> float:
    """The size of the file, in MB."""
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
