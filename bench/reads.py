"""`tollgauge bench reads`: free reads that are not cached, at 1,000 and at 100,000 endpoints.

GET requests run through the application behind the byte cache, in this process, on an SQLite file
with 30 days (bench/filled): routing, the read transaction on its thread, the report, JSON or HTML.
Requests to both sizes alternate, so that other load on the machine affects both. Requests for one
of many items choose another item each time. The ranking is updated by its loop, as in a worker.
Goals per read: p99 at most 10 ms at 100,000 endpoints, and at most 1.5 times the p99 at 1,000.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection
from starlette.types import ASGIApp, Message, Scope

from bench.filled import fill
from bench.measurement import Measurement, Report
from tollgauge import app as root
from tollgauge.config import Config
from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.lists.rated_endpoint import Sort
from tollgauge.db import schema
from tollgauge.db.engine import Store, StoreSettings
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.web import routes
from tollgauge.web.settings import ServerSettings

SMALL: Final = 1_000
LARGE: Final = 100_000
NOW: Final = 1_795_000_000_000 + 12 * HOUR_MS
WARM: Final = 20
SAMPLES: Final = 400
"""Requests per read and size."""
LIMIT_MS: Final = 10
GROWTH: Final = 1.5
LIST_ROWS: Final = 50
READS: Final[Mapping[str, str]] = {
    "snapshot": "/trust/snapshot/{id}",
    "leaderboard": "/trust/leaderboard",
    "preview": "/v1/x402-trust-preview",
    "statistics": "/trust/stats",
    "home page": "/",
    "leaderboard page": "/leaderboard",
    "endpoint page": "/endpoint/{id}",
    "provider page": "/provider/{host}",
    "largest provider page": "/provider/{largest}",
    "calibration": "/calibration.json",
    "badge": "/endpoint/{id}/badge.svg",
    "endpoint feed": "/endpoint/{id}/feed.xml",
    "provider feed": "/provider/{host}/feed.xml",
    "search by words": "/trust/search?q={words}",
    "list, first page": "/trust/endpoints?sort={sort}",
    "list, filtered": "/trust/endpoints?sort={sort}&grade=B&maxAmountUsd=0.005&network=base",
    "endpoints page": "/endpoints?sort={sort}",
    "search page": "/search?q={words}",
    "statistics page": "/statistics",
    "incidents": "/incidents?days=30",
    "largest provider feed": "/provider/{largest}/feed.xml",
}
"""Paths by name. `{largest}` is the host with the most endpoints; `{words}` are common search
terms.
"""
WORDS: Final = ("answers", "questions", "agents", "paid", "call", "service", "item", "7", "kind")
LIST: Final = "list page"
"""A page of ranked endpoints from a random position of the list, as the store returns it."""


def run(small: int = SMALL, large: int = LARGE, samples: int = SAMPLES) -> Report:
    """Measure every read at both sizes."""
    return asyncio.run(_measure(small, large, samples))


@dataclass(slots=True)
class Times:
    """Durations of one read: elapsed and CPU milliseconds."""

    clock: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, clock_s: float, cpu_s: float) -> None:
        """Add a duration."""
        self.clock.append(clock_s * 1_000)
        self.cpu.append(cpu_s * 1_000)

    def summary(self) -> dict[str, float]:
        """Return the median and p99 of elapsed and CPU time."""
        return {
            "p50_ms": round(percentile(self.clock, 50), 2),
            "p99_ms": round(percentile(self.clock, 99), 2),
            "cpu_p50_ms": round(percentile(self.cpu, 50), 2),
            "cpu_p99_ms": round(percentile(self.cpu, 99), 2),
        }


@dataclass(frozen=True, slots=True)
class Served:
    """A filled service and the items that can be requested."""

    app: ASGIApp
    store: Store
    ids: Sequence[str]
    hosts: Sequence[str]
    largest: str

    async def ask(self, name: str, dice: random.Random) -> tuple[float, float]:
        """Make one request and return its elapsed and CPU seconds."""
        if name == LIST:
            return await _read_list(self.store, self.ids, dice)
        path = READS[name].format(
            id=dice.choice(self.ids),
            host=dice.choice(self.hosts),
            largest=self.largest,
            words="+".join(dice.sample(WORDS, 2)),
            sort=dice.choice(list(Sort)).value,
        )
        return await _ask(self.app, path)


async def _measure(small: int, large: int, samples: int) -> Report:
    names = (*READS, LIST)
    async with contextlib.AsyncExitStack() as stack:
        sizes = {size: await stack.enter_async_context(_serve(size)) for size in (small, large)}
        times = {size: {name: Times() for name in names} for size in sizes}
        dice = random.Random(1)  # noqa: S311 - not a secret
        for number in range(-WARM, samples):
            for name in names:
                for size, served in sizes.items():
                    clock, cpu = await served.ask(name, dice)
                    if number >= 0:  # the first ones compile statements and templates
                        times[size][name].add(clock, cpu)
    return _report(times[small], times[large], small_size=small)


def _report(small: Mapping[str, Times], large: Mapping[str, Times], *, small_size: int) -> Report:
    measurements = []
    for name in large:
        figure, peer = (percentile(of[name].clock, 99) for of in (large, small))
        measurements += [
            Measurement(name=f"{name}, p99", figure=figure, unit="ms", goal=LIMIT_MS),
            Measurement(
                name=f"{name}, growth",
                figure=figure,
                unit="ms",
                goal=GROWTH,
                peer=f"the same at {small_size:,} endpoints",
                peer_figure=peer,
            ),
        ]
    details = {
        size: {name: times.summary() for name, times in of.items()}
        for size, of in (("small", small), ("large", large))
    }
    return Report(measurements=tuple(measurements), details=details)


@contextlib.asynccontextmanager
async def _serve(size: int) -> AsyncIterator[Served]:
    """Open a service on a store with `size` endpoints."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_service(Path(folder) / "bench.db") as service:
            await fill(service.store, endpoints=size, now=NOW)
            await service.round("rank")
            yield await _ready(service)


async def _ready(service: root.Opened) -> Served:
    ids, hosts = await service.store.reading(_load_names)
    app = routes.create(service.server()).app
    return Served(app, service.store, ids, hosts, hosts[0])


@contextlib.asynccontextmanager
async def open_service(file: Path) -> AsyncIterator[root.Opened]:
    """Open the service on an SQLite file. Its clock does not advance."""
    config = Config(
        server=ServerSettings(base_url="https://trust.example", admin_port=0),
        store=StoreSettings(url=f"sqlite:///{file}"),
    )
    async with root.open_resources(config, clock=lambda: NOW) as service:
        yield service


def _load_names(tx: Connection) -> tuple[list[str], list[str]]:
    """Return the IDs of all endpoints, and their hosts sorted by number of endpoints, largest
    first.
    """
    column = schema.endpoint.c
    ids = list(tx.execute(sa.select(column.id)).scalars())
    by_size = sa.select(column.host).group_by(column.host).order_by(sa.func.count().desc())
    return ids, list(tx.execute(by_size).scalars())


async def _read_list(store: Store, ids: Sequence[str], dice: random.Random) -> tuple[float, float]:
    """Read a page of the list and return the elapsed and CPU seconds."""
    shown = dice.sample(ids, min(LIST_ROWS, len(ids)))
    began, cpu = time.perf_counter(), time.process_time()
    await store.reading(rated_endpoints.get_many, shown)
    return time.perf_counter() - began, time.process_time() - cpu


async def _ask(app: ASGIApp, path: str) -> tuple[float, float]:
    """Request a path and return the elapsed and CPU seconds."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    began, cpu = time.perf_counter(), time.process_time()
    await app(_scope(path), receive, send)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    if messages[0]["status"] != 200:
        raise RuntimeError(f"{path} answered {messages[0]['status']}")
    return seconds, used


def _scope(path: str) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "https",
        "path": path.partition("?")[0],
        "raw_path": path.partition("?")[0].encode(),
        "query_string": path.partition("?")[2].encode(),
        "root_path": "",
        "headers": [(b"host", b"trust.example")],
        "client": ("127.0.0.1", 1),
        "server": ("trust.example", 443),
        "state": {},
    }


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least `percent` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]
