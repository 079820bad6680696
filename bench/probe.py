"""`tollgauge bench probe`: one worker's probe loop over hosts of which some never answer.

Measured: the real loop with its lanes, over an SQLite file, real TLS to sellers in a process of
their own. Every host is asked twice, for its endpoint and for a random path, and its answer is
judged and recorded. One host in ten accepts the connection and says nothing until the deadline.
Limits: 56 probes a second are 100,000 endpoints every 30 minutes; at that pace this process may
use half a core, though a random path of each host is asked as well, as it is once a day.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
import trustme
from sqlalchemy import Connection

from bench import CHECKOUT
from bench.database import opened
from bench.measurement import Measurement, Report
from tollgauge.clients.egress.client import Egress, EgressSettings
from tollgauge.core.endpoint import Endpoint, endpoint_id
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import probe
from tollgauge.jobs.probe import ProbeSettings
from tollgauge.jobs.runner import Job, run_jobs
from tollgauge.monitor.probing import Prober
from tollgauge.store.endpoints import endpoints

HOSTS: Final = 4_000
SILENT: Final = 10
"""One host in so many never answers."""
PACE: Final = 56


def run(hosts: int = HOSTS) -> Report:
    """Measure the loop over so many hosts."""
    details = asyncio.run(measure(hosts))
    return Report(
        measurements=(
            Measurement(
                name="probes",
                figure=details["probes_per_s"],
                unit="probes a second",
                goal=PACE,
                bound="least",
            ),
            Measurement(
                name="cpu at that pace",
                figure=details["cpu_share_at_pace"],
                unit="cores",
                goal=0.5,
            ),
            Measurement(name="left", figure=details["left"], unit="endpoints", goal=0),
        ),
        details=details,
    )


async def measure(hosts: int) -> dict[str, Any]:
    """Make all hosts due at once and run the loop until each was probed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with selling(folder) as (port, ca_file), opened(folder) as store:
            with contextlib.closing(silence()) as silent:
                dead = silent.getsockname()[1]
                mapped = {
                    _host(n): ("127.0.0.1", dead if n % SILENT == 0 else port) for n in range(hosts)
                }
                egress = Egress(EgressSettings(mapped=mapped, ca_file=str(ca_file)))
                egress.start()
                try:
                    await insert_endpoints(store, hosts)
                    return await run_loop(store, egress, hosts)
                finally:
                    await egress.close()


async def run_loop(store: Store, egress: Egress, hosts: int) -> dict[str, Any]:
    """Run the loop as a worker does until every endpoint was probed, and measure it."""
    settings, stop = ProbeSettings(), asyncio.Event()

    prober = Prober(store=store, egress=egress, clock=now_ms, cadence=settings.cadence)
    one_round = partial(probe.run, prober, settings=settings, owner="bench")
    job = Job("probe", one_round, every_s=1, timeout_s=120, concurrency=settings.lanes)
    began, cpu = time.monotonic(), time.process_time()
    running = asyncio.create_task(
        run_jobs([job], store=store, clock=now_ms, owner="bench", stop=stop)
    )
    patience = began + hosts / PACE * 3 + 30
    # A database tells nobody when it has the last row.
    while (left := await store.reading(unprobed)) and time.monotonic() < patience:  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.2)
    seconds, used = time.monotonic() - began, time.process_time() - cpu
    stop.set()
    await running
    cpu_ms = used * 1000 / max(hosts - left, 1)
    return {
        "hosts": hosts,
        "silent": len(range(0, hosts, SILENT)),
        "left": left,
        "seconds": round(seconds, 1),
        "probes_per_s": round((hosts - left) / seconds, 1),
        "cpu_ms_per_probe": round(cpu_ms, 2),
        "cpu_share_at_pace": round(cpu_ms * PACE / 1000, 3),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def unprobed(tx: Connection) -> int:
    """How many endpoints have no probe yet."""
    query = sa.select(sa.func.count()).where(schema.endpoint.c.last_probed.is_(None))
    count: int = tx.execute(query).scalar_one()
    return count


async def insert_endpoints(store: Store, hosts: int) -> None:
    """Insert one endpoint a host, all due."""
    now = now_ms()
    rows = [
        Endpoint(
            id=endpoint_id(_url(n)), resource=_url(n), host=_host(n), first_seen=now, last_seen=now
        )
        for n in range(hosts)
    ]
    await store.writing(endpoints.insert, *rows)


@contextlib.asynccontextmanager
async def selling(folder: Path) -> AsyncIterator[tuple[int, Path]]:
    """The sellers in a process of their own: their port, and the authority to trust."""
    authority = trustme.CA()
    ca_file, key_file = folder / "ca.pem", folder / "server.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    leaf = authority.issue_cert("*.sellers.example")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(key_file))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench.counterparties", str(key_file)),
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        _, port = (await process.stdout.readline()).split()
        yield int(port), ca_file
    finally:
        process.kill()
        await process.wait()


def silence() -> socket.socket:
    """A port where connections are made and nothing is ever said."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(4_096)
    return listener


def now_ms() -> int:
    """The clock."""
    return time.time_ns() // 1_000_000


def _host(number: int) -> str:
    return f"h{number}.sellers.example"


def _url(number: int) -> str:
    return f"https://{_host(number)}/v1/item"
