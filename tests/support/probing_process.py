"""Workers of the probe loop as separate processes, which can be killed at any time.

Started as a program, it forks a worker for each line of JSON on standard input (see `Order`) and
prints its process ID; the workers share its imports. A worker runs the real loops on a real
database. Only the network is simulated: every target answers 401 after several milliseconds, and
each request appends a line to a file, which survives its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.processes import end_with_parent

from tollgauge.app import now_ms
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings, Request
from tollgauge.core.probe.exchange import Answer, Exchange, Timings
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store
from tollgauge.jobs import probe
from tollgauge.jobs.loop_settings import ProbeSettings
from tollgauge.jobs.runner import Job, run_jobs
from tollgauge.monitor.probing import Prober
from tollgauge.observe import configure_logs


@dataclass(frozen=True, kw_only=True)
class Order:
    """The database, the folder of the requests, and the probe interval."""

    url: str
    folder: str
    every_ms: int
    lease_ms: int
    host_gap_ms: int


class Wire(Egress):
    """The simulated network."""

    def __init__(self, folder: Path) -> None:
        super().__init__(EgressSettings())
        self._requests = (folder / f"{os.getpid()}.requests").open("ab", buffering=0)

    async def fetch(self, request: Request, *, at: int = 0) -> Exchange:
        host, took = request.url.split("/")[2], 5 + hash(request.url) % 40
        self._requests.write(f"begin {host} {now_ms()}\n".encode())
        await asyncio.sleep(took / 1000)
        self._requests.write(f"end {host} {now_ms()}\n".encode())
        return Exchange(
            url=request.url,
            method=request.method,
            at=at,
            result=Answer(status=401),
            timings=Timings(ttfb=took, total=took),
        )


async def work(order: Order) -> None:
    """Run the loops until the process ends."""
    cadence = Cadence(every_ms=order.every_ms, host_gap_ms=order.host_gap_ms)
    settings = ProbeSettings(
        lease_ms=order.lease_ms, cadence=cadence, concurrent_waves=4, catch_up=4
    )
    store = Store.open(order.url, pool_size=4)
    prober = Prober(store=store, egress=Wire(Path(order.folder)), clock=now_ms, cadence=cadence)
    owner = f"worker-{os.getpid()}"
    probing = partial(probe.run, prober, settings=settings, owner=owner)
    planning = partial(
        probe.plan_intervals, store, cadence=cadence, catch_up=settings.catch_up, clock=now_ms
    )
    jobs = [
        Job("probe", probing, every_s=0.2, timeout_s=60, concurrency=settings.concurrent_waves),
        Job("schedule", planning, every_s=5, timeout_s=60, exclusive=True),
    ]
    await run_jobs(jobs, store=store, clock=now_ms, owner=owner, stop=asyncio.Event())


def main() -> None:
    configure_logs(json_lines=True, level="error")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # exit codes of killed workers are not needed
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            end_with_parent()
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(work(Order(**json.loads(line))))
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
