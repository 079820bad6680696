"""`tollgauge bench history`: the history of one endpoint among 20,000, from store to JSON bytes.

Measured are the computation of the paid route and its read transaction, which runs on a thread, on
an SQLite file with 30 days of 20,000 endpoints (bench/filled). Each request is for 90 days of a
random endpoint; a response contains about 1,440 probes. Goal: median at most 10 ms.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.filled import fill
from bench.lives import Place, places
from bench.measurement import Measurement, Report
from bench.reads import NOW, Times, open_service, percentile
from tollgauge.core.endpoint.identity import Perimeter
from tollgauge.web.paid.product import PaidDependencies
from tollgauge.web.paid.products import history
from tollgauge.web.paid.products.history import HistoryRequest

ENDPOINTS: Final = 20_000
SAMPLES: Final = 300
DAYS: Final = 90
LIMIT_MS: Final = 10
_NO_CLAIM: Final[Any] = None
"""The computation does not write, so it needs no claim on a payment."""


def run(endpoints: int = ENDPOINTS, samples: int = SAMPLES) -> Report:
    """Measure `samples` responses among `endpoints` endpoints."""
    return asyncio.run(_measure(endpoints, samples))


async def _measure(endpoints: int, samples: int) -> Report:
    dice = random.Random(1)  # noqa: S311 - no secret
    with tempfile.TemporaryDirectory() as folder:
        async with open_service(Path(folder) / "bench.db") as service:
            await fill(service.store, endpoints=endpoints, now=NOW)
            chosen = dice.choices(list(places(endpoints)), k=samples)
            times, sizes = await _answers(service.server(), chosen)
    return Report(
        measurements=(
            Measurement(
                name="90 days of one, p50",
                figure=percentile(times.clock, 50),
                unit="ms",
                goal=LIMIT_MS,
            ),
        ),
        details={
            "endpoints": endpoints,
            **times.summary(),
            "kb_p50": round(percentile(sizes, 50) / 1_024),
        },
    )


async def _answers(
    dependencies: PaidDependencies, chosen: Sequence[Place]
) -> tuple[Times, list[float]]:
    """Return the time and the size of each response."""
    times, sizes = Times(), []
    for place in chosen:
        asked = _request(place)
        began, cpu = time.perf_counter(), time.process_time()
        answer = await history.PRODUCT.compute(dependencies, asked, _NO_CLAIM)
        times.add(time.perf_counter() - began, time.process_time() - cpu)
        sizes.append(float(len(answer)))
    return times, sizes


def _request(place: Place) -> HistoryRequest:
    # The names of the endpoints are in a domain that is reserved for examples.
    body = {"resource": place.resource, "days": DAYS}
    return HistoryRequest.model_validate(body, context=Perimeter(mapped=frozenset({place.host})))
