"""`tollgauge bench probe`: the cost of a probe, compared with an exchange of blackbox_exporter.

Both send one request per new TLS connection to the same seller (bench/seller), verify the
certificate and time the phases. Two figures, in CPU seconds of this process:
- `exchange`: only the exchange, as the probe loop makes it;
- `probe`: the loop (jobs/probe) on an SQLite file. It claims due endpoints, one per host, makes the
  exchange, lints and classifies it, and records the results with the changes that they cause.

Rounds of both alternate; the figures are medians. The first round of the loop is not counted,
because its endpoints have never been probed.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa
import uvloop
from sqlalchemy import Connection

from bench import blackbox
from bench.blackbox import Blackbox
from bench.database import open_store
from bench.measurement import Measurement, Report
from bench.seller import HOSTS, Seller, host, run_seller, url
from tollgauge.app import now_ms
from tollgauge.clients import x402
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.probe.exchange import Answer
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db import schema
from tollgauge.jobs import probe
from tollgauge.jobs.loop_settings import ProbeSettings
from tollgauge.monitor.probing import Prober
from tollgauge.store.endpoints import endpoints

ROUNDS: Final = 5
PROBES: Final = HOSTS
"""Probes per round: each host once."""
LANES: Final = 2
PEER: Final = "blackbox_exporter"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The prober with its store and the endpoints in it."""

    prober: Prober
    endpoints: Sequence[Endpoint]


def run(rounds: int = ROUNDS) -> Report:
    """Measure `rounds` rounds."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        exchange, whole, peer = runner.run(measure(rounds))
    goals = (("exchange", exchange, 0.75), ("probe", whole, 1.0))
    return Report(
        measurements=tuple(
            Measurement(
                name=name,
                figure=statistics.median(ours) * 1_000,
                unit="ms of CPU",
                goal=goal,
                peer=PEER,
                peer_figure=statistics.median(peer) * 1_000,
            )
            for name, ours, goal in goals
        ),
        details={
            "probes": rounds * PROBES,
            **{
                f"{name}_ms": [round(seconds * 1_000, 3) for seconds in figures]
                for name, figures in (("exchange", exchange), ("probe", whole), ("peer", peer))
            },
        },
    )


async def measure(rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Return the CPU seconds of an exchange, a probe and the peer's exchange for each round."""
    exchange: list[float] = []
    whole: list[float] = []
    peer: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            run_seller(folder) as seller,
            blackbox.start(folder, seller) as exporter,
            world(folder, seller) as ours,
        ):
            await probe_all(ours)
            for _ in range(rounds):
                exchange.append(await _cost(lambda: exchange_all(ours)))
                whole.append(await _cost(lambda: probe_all(ours)))
                peer.append(await _peer(exporter))
    return exchange, whole, peer


async def exchange_all(world: World) -> None:
    """Make one exchange with every endpoint, with the concurrency of the loop.

    Raises:
        RuntimeError: a response is not a 402.
    """
    at_once = asyncio.Semaphore(LANES * ProbeSettings().wave)

    async def ask(endpoint: Endpoint) -> None:
        async with at_once:
            seen = await x402.exchange(world.prober.egress, endpoint, now=world.prober.clock())
        result = seen.exchange.result
        if not isinstance(result, Answer) or result.status != x402.PAYMENT_REQUIRED:
            raise RuntimeError(f"The seller of the measurement returned {result}.")

    await asyncio.gather(*(ask(endpoint) for endpoint in world.endpoints))


async def probe_all(world: World) -> None:
    """Let the loop probe every endpoint once. Raises RuntimeError if a probe is missing."""
    store, began = world.prober.store, world.prober.clock()
    await store.writing(endpoints.make_due, now=began)
    settings = ProbeSettings(cadence=world.prober.cadence)

    async def lane() -> None:
        while (await probe.run(world.prober, settings=settings, owner="bench")).get("busy"):
            pass

    await asyncio.gather(*(lane() for _ in range(LANES)))
    probed = await store.reading(_payable_since, began)
    if probed != len(world.endpoints):
        raise RuntimeError(f"{probed} of {len(world.endpoints)} endpoints were payable.")


@contextlib.asynccontextmanager
async def world(folder: Path, seller: Seller) -> AsyncIterator[World]:
    """Open an SQLite file with one endpoint per host, whose wildcard tests are done, and egress."""
    mapped = {host(number): ("127.0.0.1", seller.port) for number in range(PROBES)}
    egress = Egress(EgressSettings(mapped=mapped, ca_file=str(seller.ca_file)))
    egress.start()
    async with open_store(folder) as store:
        now = now_ms()
        known = [
            Endpoint(
                id=endpoint_id(url(number)),
                resource=url(number),
                host=host(number),
                first_seen=now,
                last_seen=now,
            )
            for number in range(PROBES)
        ]
        try:
            await store.writing(endpoints.insert, *known)
            await store.writing(_wildcards_tested, now)
            prober = Prober(
                store=store, egress=egress, clock=now_ms, cadence=Cadence(host_gap_ms=0)
            )
            yield World(prober=prober, endpoints=known)
        finally:
            await egress.close()


async def _cost(work: Callable[[], Awaitable[None]]) -> float:
    """Return the CPU seconds of this process, all threads, per endpoint that `work` requests."""
    before = time.process_time()
    await work()
    return (time.process_time() - before) / PROBES


async def _peer(exporter: Blackbox) -> float:
    return await exporter.exchanges(PROBES)


def _wildcards_tested(tx: Connection, now: int) -> None:
    tx.execute(schema.host.update().values(wildcard=False, wildcard_at=now))


def _payable_since(tx: Connection, began: int) -> int:
    """Return the number of endpoints that a probe since `began` found payable."""
    query = sa.select(sa.func.count()).where(
        schema.endpoint.c.last_probed >= began, schema.endpoint.c.payable.is_(True)
    )
    count: int = tx.execute(query).scalar_one()
    return count
