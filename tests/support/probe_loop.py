"""The probe loop with a simulated clock."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import trustme

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.probe.attribution import Vantages
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.score.score import Score, score_from_json
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.jobs import probe, score
from tollgauge.jobs.loop_settings import ProbeSettings, ScoreSettings
from tollgauge.monitor.probing import Prober
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.store.scores import scores
from tollgauge.web.settings import LOOPBACK

START = 1_795_000_000_000 // DAY_MS * DAY_MS


@dataclass
class Clock:
    """A clock that tests set."""

    now: int = START

    def __call__(self) -> int:
        return self.now


@dataclass
class Loop:
    """The probe and score loops of one worker."""

    store: Store
    egress: Egress
    clock: Callable[[], int]
    settings: ProbeSettings = field(default_factory=ProbeSettings)
    owner: str = "one"

    @cached_property
    def vantages(self) -> Vantages:
        """The vantages, which the service reads once, at its start."""
        return self.settings.places

    async def probe(self) -> dict[str, object]:
        prober = Prober(
            store=self.store,
            egress=self.egress,
            clock=self.clock,
            cadence=self.settings.cadence,
            references=self.settings.references,
            vantages=self.vantages,
        )
        return await probe.run(prober, settings=self.settings, owner=self.owner)

    async def score(self) -> None:
        settings = ScoreSettings()
        while await score.run(
            self.store, settings=settings, cadence=self.settings.cadence, clock=self.clock
        ):
            pass

    async def add(self, *added: Endpoint) -> None:
        await self.store.writing(endpoints.insert, *added)

    async def get(self, endpoint_id: str) -> Endpoint:
        stored = await self.store.reading(endpoints.get, endpoint_id)
        assert stored is not None
        return stored

    async def history(self, endpoint_id: str) -> list[Any]:
        since, until = START - DAY_MS, self.clock() + DAY_MS  # each day takes a query
        return list(await self.store.reading(probes.history, endpoint_id, since=since, until=until))

    async def score_of(self, endpoint_id: str) -> Score:
        row = await self.store.reading(scores.get, endpoint_id)
        assert row is not None
        return score_from_json(row.result)

    async def next_due(self, ids: Sequence[str]) -> int:
        known = await self.store.reading(endpoints.get_many, ids)
        return min(target.next_due for target in known.values())


def endpoint(url: str, **more: Any) -> Endpoint:
    host = url.split("/")[2].split(":")[0]
    return Endpoint(
        id=endpoint_id(url), resource=url, host=host, first_seen=START, last_seen=START, **more
    )


@contextlib.asynccontextmanager
async def worker(
    store: Store,
    mapped: dict[str, tuple[str, int]],
    *,
    references: tuple[str, ...] = (),
    **more: Any,
) -> AsyncIterator[Loop]:
    egress = Egress(EgressSettings(mapped=mapped, deadline_ms=20_000, **more))
    egress.start()
    settings = ProbeSettings(references=references, cadence=Cadence(host_gap_ms=0))
    yield Loop(store, egress, Clock(), settings)
    await egress.close()


@dataclass
class Counting:
    """A seller on TLS with many names that counts concurrent requests.

    It answers callers from the addresses in `refused` without an offer. `headers` are those of its
    responses.
    """

    mapped: dict[str, tuple[str, int]] = field(default_factory=dict)
    ca_file: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    now: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    refused: set[str] = field(default_factory=set)
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        host = dict(scope["headers"])[b"host"].decode().split(":")[0]
        self.now[host] += 1
        self.most[host] = max(self.most[host], self.now[host])
        self.asked[f"{host}{scope['path']}"] += 1
        await asyncio.sleep(0.01)
        self.now[host] -= 1
        status = 503 if scope["client"][0] in self.refused else 402
        headers = [(name.encode(), value.encode()) for name, value in self.headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})


@contextlib.asynccontextmanager
async def run_counting_seller(
    tmp_path: Path, hosts: set[str], *, not_after: dt.datetime | None = None
) -> AsyncIterator[Counting]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*hosts, not_after=not_after).configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = Counting(ca_file=str(tmp_path / "ca.pem"))
    async with serve(server, tls=context) as port:
        server.mapped = dict.fromkeys(hosts, (LOOPBACK, port))
        yield server
