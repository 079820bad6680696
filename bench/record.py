"""`tollgauge bench record`: the number of probes per second that the store can record.

Recording includes the row, the endpoint's next due time, the mark that a score is due, the price,
the state from which changes are detected, and the end of the host's lease. As in the probe loop
(monitor/recording.record), one transaction records the results of one wave of hosts; results of an
endpoint are an hour apart. Measured on an SQLite file and on PostgreSQL with Debian's settings.

Goals apply to elapsed time. The details also contain the CPU time of this process, which is
comparable on a busy machine; it does not include PostgreSQL.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvloop

from bench import postgres
from bench.database import open_store
from bench.measurement import Measurement, Report
from bench.seller import envelope, host, url
from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Finding, Severity, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.db.engine import Store
from tollgauge.jobs.loop_settings import ProbeSettings
from tollgauge.monitor import recording
from tollgauge.monitor.probing import Observation
from tollgauge.store.endpoints import endpoints

RESULTS: Final = 20_000
ENDPOINTS: Final = 1_024
WAVE: Final = ProbeSettings().wave
GOALS: Final = {"sqlite": 2_000, "postgresql": 3_000}
BEGAN: Final = 1_800_000_000_000
"""Time of the first results (ms UTC)."""


def run(results: int = RESULTS) -> Report:
    """Measure `results` results on each database."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measured = runner.run(measure(results))
    return Report(
        measurements=tuple(
            Measurement(
                name=dialect,
                figure=seen["results_per_s"],
                unit="results per second",
                goal=GOALS[dialect],
                bound="least",
            )
            for dialect, seen in measured.items()
        ),
        details=measured,
    )


async def measure(results: int) -> dict[str, dict[str, Any]]:
    """Return the results by database."""
    with tempfile.TemporaryDirectory() as name:
        async with open_store(Path(name)) as store:
            measured = {store.dialect: await record(store, results)}
    async with postgres.open_store() as store:
        measured[store.dialect] = await record(store, results)
    return measured


async def record(store: Store, results: int) -> dict[str, Any]:
    """Record results and return the rates."""
    known = [_endpoint(number) for number in range(ENDPOINTS)]
    await store.writing(endpoints.insert, *known)
    waves = _waves(known, results)
    await _record(store, next(waves))  # the first statement of each kind is prepared
    began, cpu, recorded = time.perf_counter(), time.process_time(), 0
    for observations in waves:
        await _record(store, observations)
        recorded += len(observations)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    return {
        "results": recorded,
        "results_per_s": round(recorded / seconds),
        "results_per_cpu_s": round(recorded / used),
        "cpu_ms_each": round(used * 1_000 / recorded, 3),
    }


async def _record(store: Store, observations: list[Observation]) -> None:
    now = observations[0].result.at + 100
    await store.writing(recording.record, observations, cadence=NORMAL, owner="bench", now=now)


def _waves(known: list[Endpoint], results: int) -> Iterator[list[Observation]]:
    """Yield waves of results: one per endpoint in turn, each an hour after its previous one."""
    for start in range(0, results, WAVE):
        yield [
            _observation(known[number % ENDPOINTS], number)
            for number in range(start, min(start + WAVE, results))
        ]


def _endpoint(number: int) -> Endpoint:
    return Endpoint(
        id=endpoint_id(url(number)),
        resource=url(number),
        host=host(number),
        first_seen=BEGAN - HOUR_MS,
        last_seen=BEGAN - HOUR_MS,
    )


def _observation(endpoint: Endpoint, number: int) -> Observation:
    """Return a payable probe with one finding. Durations differ."""
    at = BEGAN + number // ENDPOINTS * HOUR_MS + number % ENDPOINTS
    total = 80 + number % 97
    entry = envelope(number % ENDPOINTS)["accepts"][0]
    result = ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.TARGET,
        up=True,
        timings=Timings(dns=2, connect=9, tls=20, ttfb=total - 31, total=total),
        status=402,
        compliance=96,
        compliant=True,
        payable=True,
        version=2,
        quote=Quote(
            network=entry["network"],
            asset=entry["asset"].lower(),
            amount=int(entry["amount"]),
            pay_to=entry["payTo"].lower(),
        ),
        accepts=1,
        findings=(
            Finding(
                rule="cors-expose",
                severity=Severity.WARN,
                message="Send Access-Control-Expose-Headers.",
                where="header",
            ),
        ),
        tls_not_after=BEGAN + 1_000 * HOUR_MS,
    )
    return Observation(endpoint=endpoint, result=result, learned="GET")
