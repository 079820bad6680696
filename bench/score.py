"""`tollgauge bench score`: recompute and save the scores of all endpoints.

The score loop runs on a filled SQLite file (bench/filled) in which every score is due. It claims
endpoints, loads the evidence of 30 closed days and of today's probes, computes the score and saves
it. CPU includes all threads of this process. Peers of the same run are a TLS exchange of
prometheus-blackbox-exporter, and a score among 1,000 endpoints.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection

from bench import blackbox
from bench.database import open_store
from bench.filled import fill
from bench.measurement import Measurement, Report, peak_mb
from bench.seller import run_seller
from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.jobs.loop_settings import ScoreSettings

ENDPOINTS: Final = 100_000
FEW: Final = 1_000
NOW: Final = 1_795_000_000_000
"""11 a.m. UTC: each endpoint has about twenty probes today."""


def run(endpoints: int = ENDPOINTS) -> Report:
    """Measure the score loop on `endpoints` endpoints."""
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
    """Measure the peer, a few endpoints, and all endpoints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with run_seller(folder) as seller, blackbox.start(folder, seller) as exporter:
            exchange = await exporter.exchanges()
    few = await recompute_scores(FEW)
    all_of_them = await recompute_scores(endpoints)
    return {
        "endpoints": endpoints,
        "blackbox_ms": round(exchange * 1_000, 3),
        "cpu_ms_each_among_few": few["cpu_ms_each"],
        **all_of_them,
        "peak_mb": round(peak_mb(), 1),
    }


async def recompute_scores(endpoints: int) -> dict[str, Any]:
    """Recompute the scores of all endpoints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with open_store(folder) as store:
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
    """Run the score loop until nothing is due and return the number of scores.

    Raises:
        RuntimeError: a score could not be computed.
    """
    count = 0
    while tally := await score.run(
        store, settings=ScoreSettings(), cadence=NORMAL, clock=lambda: NOW + MINUTE_MS
    ):
        if "failed" in tally:
            raise RuntimeError(f"A score failed: {tally}")
        count += int(str(tally["scored"]))
    return count


def _make_due(tx: Connection) -> None:
    tx.execute(schema.endpoint.update().values(score_due=NOW, score_next=None))
