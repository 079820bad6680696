"""The service as it is served, in a process of its own, for measuring: its routes, its ledger, a
catalogue of endpoints, a month of probes of some of them.

`python -m bench.service SETTINGS` takes one JSON object (see `Settings`), prints a line
when it serves, and then answers one line of JSON for each line of standard input:
- `{"do": "cpu"}`: the CPU seconds of this process, all threads, since its start;
- `{"do": "probe"}`: every endpoint of the month was probed just now (a report sold within ten
  seconds shares that probe instead of making its own);
- `{"do": "calls", "made": false}`: from now on verify and settle are answered with yes on the spot,
  without a request; with `true` they are made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Final

import orjson
import sqlalchemy as sa
import uvloop
from sqlalchemy import Connection

from bench.catalogue import Offer, catalogue
from bench.child import print_json
from bench.similar import entry_of
from tollgauge import app as root
from tollgauge import process
from tollgauge.clients.egress.client import EgressSettings
from tollgauge.clients.facilitator import (
    Facilitator,
    FacilitatorSettings,
    Refused,
    SettledReply,
    Unclear,
    Verified,
)
from tollgauge.config import Config
from tollgauge.core.base.units import DAY_MS, MINUTE_MS, day_of
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.sale.payment import Payment
from tollgauge.core.similarity.similarity_index import SimilarityIndex
from tollgauge.db import schema
from tollgauge.db.engine import Store, StoreSettings
from tollgauge.monitor import scoring
from tollgauge.observe import configure_logs
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, probes
from tollgauge.store.probes.probes import NewProbe
from tollgauge.store.scores import scores
from tollgauge.web.edge.middleware import EdgeSettings
from tollgauge.web.paid.sale_settings import SaleSettings
from tollgauge.web.settings import ServerSettings, listen

CATALOGUE: Final = 2_000
KNOWN: Final = 20
"""How many endpoints have a month of probes, each on a host of its own."""
LIVE: Final = 60
"""How many more hosts have an endpoint that can be probed."""
DAYS: Final = 30
PAY_TO: Final = "0x" + "ab" * 20
AT_ONCE: Final = 4
"""Sales at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where to listen, what to store in, whom to ask, where every seller is, and whom to trust."""

    port: int
    store: str
    facilitator: str
    seller_port: int
    ca_file: str


def config(settings: Settings) -> Config:
    """The defaults, except for addresses. One trusted proxy names the callers, so that the rate
    limit counts them one by one as it would in the world.
    """
    hosts = {offer.endpoint.host for offer in offers()}
    return Config(
        server=ServerSettings(
            base_url=f"http://127.0.0.1:{settings.port}",
            port=settings.port,
            admin_port=0,
            json_logs=True,
            front=EdgeSettings(free_per_minute=1_000_000, trusted_proxies=("127.0.0.1",)),
        ),
        store=StoreSettings(url=settings.store),
        sale=SaleSettings(pay_to=PAY_TO),
        facilitator=FacilitatorSettings(url=settings.facilitator),
        egress=EgressSettings(
            mapped=dict.fromkeys(hosts, ("127.0.0.1", settings.seller_port)),
            ca_file=settings.ca_file or None,
        ),
    )


@cache
def offers() -> tuple[Offer, ...]:
    """The catalogue."""
    return tuple(catalogue(CATALOGUE))


def known() -> tuple[Endpoint, ...]:
    """The endpoints with a month of probes."""
    return _one_a_host()[:KNOWN]


def live() -> tuple[Endpoint, ...]:
    """Endpoints that nobody probed yet."""
    return _one_a_host()[KNOWN : KNOWN + LIVE]


def replaceable() -> tuple[Endpoint, ...]:
    """Endpoints that have better alternatives: without any, nothing is sold."""
    known_ids = {endpoint.id for endpoint in known()}
    copies = {o.endpoint.id: o for o in offers() if o.endpoint.id not in known_ids}
    index = SimilarityIndex(map(entry_of, copies.values()))
    counted = index.counts(0, index.size)
    return tuple(copies[id_].endpoint for id_, better in counted if better)[:KNOWN]


def _one_a_host() -> tuple[Endpoint, ...]:
    first: dict[str, Endpoint] = {}
    for offer in offers():
        first.setdefault(offer.endpoint.host, offer.endpoint)
    return tuple(first.values())


async def fill(store: Store, *, now: int) -> None:
    """The catalogue with scores, and the month of those that are known."""
    rows = offers()
    await store.writing(endpoints.insert, *[offer.endpoint for offer in rows])
    step = 30 * MINUTE_MS
    for endpoint in known():
        month = range(now - DAYS * DAY_MS, now - step, step)
        results = [_probe(endpoint, at) for at in month]
        await store.writing(probes.record_many, endpoint.id, results)
    while await store.writing(archive.close_days, before_day=day_of(now), limit=5_000):
        pass
    await store.writing(_score, rows, now=now)


def _score(tx: Connection, rows: Iterable[Offer], *, now: int) -> None:
    for endpoint in known():
        evidence = scoring.gather(tx, endpoint, as_of=now)
        scores.save(tx, scoring.score_evidence(endpoint.id, evidence))
    _copy_score(tx, rows)


def _copy_score(tx: Connection, rows: Iterable[Offer]) -> None:
    """Give every endpoint without a score a copy of a computed one, with its own points."""
    computed = tx.execute(schema.score.select().limit(1)).mappings().one()
    scored_ids = set(tx.execute(schema.score.select()).scalars())
    score_rows = [
        dict(computed) | {"endpoint_id": offer.endpoint.id, "score_tenths": offer.score_tenths}
        for offer in rows
        if offer.endpoint.id not in scored_ids
    ]
    tx.execute(schema.score.insert(), score_rows)
    ranked = [schema.endpoint.c[column.name] for column in schema.FIGURES]
    scored = schema.endpoint.c.id == computed["endpoint_id"]
    figures = tx.execute(sa.select(*ranked).where(scored)).mappings().one()
    tx.execute(
        schema.endpoint.update()
        .where(schema.endpoint.c.id == sa.bindparam("copy"))
        .values({**figures, "score_tenths": sa.bindparam("points")}),
        [{"copy": row["endpoint_id"], "points": row["score_tenths"]} for row in score_rows],
    )


def _probe(endpoint: Endpoint, at: int) -> ProbeResult:
    """A probe without findings; its time varies with `at`, in milliseconds."""
    total = 80 + at // MINUTE_MS % 97
    return ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.TARGET,
        up=True,
        timings=Timings(dns=2, connect=9, tls=20, ttfb=total - 31, total=total),
        status=402,
        compliance=100,
        compliant=True,
        payable=True,
        version=2,
        quote=endpoint.quote,
        accepts=1,
    )


async def probed_now(service: root.Opened) -> None:
    """Record a probe of every known endpoint as of now."""
    new = [
        NewProbe(endpoint_id=endpoint.id, result=_probe(endpoint, service.clock()))
        for endpoint in known()
    ]
    await service.store.writing(probes.record_each, new)


class SwitchableFacilitator(Facilitator):
    """The service's client of its facilitator, whose calls can be left out to measure a sale
    without them.
    """

    calls_made = True

    async def verify(self, payment: Payment, requirements: dict[str, object]) -> Verified | Refused:
        """What the facilitator answers, or yes without a request."""
        return await super().verify(payment, requirements) if self.calls_made else Verified()

    async def settle(
        self, payment: Payment, requirements: dict[str, object]
    ) -> SettledReply | Unclear:
        """What the facilitator answers, or yes without a request."""
        if self.calls_made:
            return await super().settle(payment, requirements)
        return SettledReply(transaction=f"0x{secrets.token_hex(32)}")


async def obey(
    service: root.Opened, facilitator: SwitchableFacilitator, order: dict[str, Any]
) -> dict[str, object]:
    """Carry out one order of the measurement; its answer."""
    match order["do"]:
        case "cpu":
            return {"cpu_s": time.process_time()}
        case "probe":
            await probed_now(service)
            return {}
        case _:
            facilitator.calls_made = order["made"]
            return {}


async def serve(settings: Settings) -> None:
    """Fill an empty store, serve, and obey until standard input ends."""
    configure_logs(json_lines=True)
    stop, configured = asyncio.Event(), config(settings)
    async with contextlib.AsyncExitStack() as stack:
        listeners = stack.enter_context(listen(configured.server, serve=True))
        opened = await stack.enter_async_context(root.opened(configured))
        facilitator = SwitchableFacilitator(opened.config.facilitator)
        service = replace(opened, facilitator=facilitator)
        await fill(service.store, now=service.clock())
        running = asyncio.create_task(process.run(service, listeners, stop=stop, on_ready=_ready))
        while line := await asyncio.to_thread(sys.stdin.readline):
            print_json(await obey(service, facilitator, orjson.loads(line)))
        stop.set()
        await running
        await facilitator.close()


def _ready() -> None:
    print_json({"serves": True})


def command(settings: Settings) -> list[str]:
    """The command that starts this module as a process."""
    return [sys.executable, "-m", "bench.service", orjson.dumps(asdict(settings)).decode()]


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Settings(**orjson.loads(sys.argv[1]))))
