"""`tollgauge bench score`: every endpoint scored again from stored evidence, and saved.

Measured: the real score loop over a filled SQLite file (bench/filled) in which every score is due:
claims, evidence of 30 closed days and of today's probes, the score, the save. CPU is this
process's, all threads. Beside it, in the same run, what prometheus-blackbox-exporter spends on one
TLS exchange, and what a score costs among 1,000 endpoints.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection

from bench import blackbox
from bench.database import opened
from bench.filled import fill
from bench.measurement import Measurement, Report, peak_mb
from bench.seller import selling
from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.jobs.score import ScoreSettings

ENDPOINTS: Final = 100_000
FEW: Final = 1_000
NOW: Final = 1_795_000_000_000
"""11 in the morning: an endpoint has some twenty probes today."""


def run(endpoints: int = ENDPOINTS) -> Report:
    """Measure the score loop over so many endpoints."""
    details = asyncio.run(measure(endpoints))
    return Report(
        measurements=(
            Measurement(
                name="score",
                figure=details["cpu_ms_each"],
                unit="ms of CPU each",
                goal=0.4,
                peer="blackbox_exporter for an exchange",
                peer_figure=details["blackbox_ms"],
            ),
            Measurement(
                name="growth",
                figure=details["cpu_ms_each"],
                unit="ms of CPU each",
                goal=1.3,
                peer=f"the same among {FEW} endpoints",
                peer_figure=details["cpu_ms_each_among_few"],
            ),
            Measurement(name="memory", figure=details["peak_mb"], unit="MB", goal=1_000),
        ),
        details=details,
    )


async def measure(endpoints: int) -> dict[str, Any]:
    """The peer, a few endpoints, and all of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with selling(folder) as seller, blackbox.started(folder, seller) as exporter:
            exchange = await exporter.exchanges()
    few = await scored_again(FEW)
    all_of_them = await scored_again(endpoints)
    return {
        "endpoints": endpoints,
        "blackbox_ms": round(exchange * 1_000, 3),
        "cpu_ms_each_among_few": few["cpu_ms_each"],
        **all_of_them,
        "peak_mb": round(peak_mb(), 1),
    }


async def scored_again(endpoints: int) -> dict[str, Any]:
    """Score each of so many endpoints again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with opened(folder) as store:
            await fill(store, endpoints=endpoints, now=NOW)
            await store.writing(_make_due)
            cpu, began = time.process_time(), time.monotonic()
            count = await run_loop(store)
            used, seconds = time.process_time() - cpu, time.monotonic() - began
        size = sum(file.stat().st_size for file in folder.iterdir())  # noqa: ASYNC240 - nothing waits
    return {
        "cpu_ms_each": round(used * 1_000 / count, 3),
        "seconds": round(seconds, 1),
        "file_mb": round(size / 1e6, 1),
    }


async def run_loop(store: Store) -> int:
    """Run the score loop until nothing is due; how many were scored. Raises RuntimeError if one
    could not be.
    """
    count = 0
    while tally := await score.run(
        store, settings=ScoreSettings(), cadence=NORMAL, clock=lambda: NOW + MINUTE_MS
    ):
        if "failed" in tally:
            raise RuntimeError(f"a score failed: {tally}")
        count += int(str(tally["scored"]))
    return count


def _make_due(tx: Connection) -> None:
    tx.execute(schema.endpoint.update().values(score_due=NOW, score_next=None))
