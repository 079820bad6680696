"""The complete service in a separate process, with a catalogue and a month of probes of some of it.

`python -m bench.service SETTINGS` takes one JSON object (see `Settings`), prints a line
when it serves, and then one line of JSON for each line of standard input:
- `{"do": "cpu"}`: return the CPU seconds of this process, all threads, since its start;
- `{"do": "probe"}`: record a probe of each endpoint that has a month of probes (a report sold
  within ten seconds shares that probe instead of making a new one);
- `{"do": "calls", "made": false}`: accept payments without requests to the facilitator; with
  `true`, make the requests again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
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
from bench.similar import entry_of, index_of
from tollgauge import app as root
from tollgauge import process
from tollgauge.cli import GC_THRESHOLD
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.facilitator import (
    Facilitator,
    FacilitatorSettings,
    Refused,
    SettledReply,
    Unclear,
)
from tollgauge.config import Config
from tollgauge.core.base.units import DAY_MS, MINUTE_MS, day_of
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.sale.payment import Payment
from tollgauge.db import schema
from tollgauge.db.engine import Store, StoreSettings
from tollgauge.monitor import scoring
from tollgauge.observe import configure_logs
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, probes
from tollgauge.store.probes.probes import NewProbe
from tollgauge.store.scores import scores
from tollgauge.web.edge.middleware import EdgeSettings
from tollgauge.web.paid.sale import SaleSettings
from tollgauge.web.settings import ServerSettings, listen

CATALOGUE: Final = 2_000
KNOWN: Final = 20
"""Number of endpoints with a month of probes, each on a separate host."""
LIVE: Final = 60
"""Number of other hosts with an endpoint that can be probed."""
DAYS: Final = 30
PAY_TO: Final = "0x" + "ab" * 20
CONCURRENT_SALES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Addresses of the service, the store, the facilitator and the sellers, and the authority."""

    port: int
    store: str
    facilitator: str
    seller_port: int
    ca_file: str


def config(settings: Settings) -> Config:
    """Return the default configuration with these addresses.

    One trusted proxy states the callers' addresses, so that the rate limit counts each caller.
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
    """Return the catalogue."""
    return tuple(catalogue(CATALOGUE))


def known_endpoints() -> tuple[Endpoint, ...]:
    """Return the endpoints with a month of probes."""
    return _one_per_host()[:KNOWN]


def live_endpoints() -> tuple[Endpoint, ...]:
    """Return endpoints without probes."""
    return _one_per_host()[KNOWN : KNOWN + LIVE]


def replaceable() -> tuple[Endpoint, ...]:
    """Return endpoints with several better alternatives; without any, the route does not sell. One
    is not enough: the weights of terms, and with them the floor, differ in the whole catalogue.
    """
    known_ids = {endpoint.id for endpoint in known_endpoints()}
    copies = {o.endpoint.id: o for o in offers() if o.endpoint.id not in known_ids}
    index = index_of(map(entry_of, copies.values()))
    counted = index.count_alternatives(0, index.size)
    return tuple(copies[id_].endpoint for id_, better in counted if better > 2)[:KNOWN]


def _one_per_host() -> tuple[Endpoint, ...]:
    first: dict[str, Endpoint] = {}
    for offer in offers():
        first.setdefault(offer.endpoint.host, offer.endpoint)
    return tuple(first.values())


async def fill(store: Store, *, now: int) -> None:
    """Insert the catalogue with scores, and the probes of known endpoints."""
    rows = offers()
    await store.writing(endpoints.insert, *[offer.endpoint for offer in rows])
    step = 30 * MINUTE_MS
    for endpoint in known_endpoints():
        month = range(now - DAYS * DAY_MS, now - step, step)
        results = [_probe(endpoint, at) for at in month]
        await store.writing(probes.record_many, endpoint.id, results)
    while await store.writing(archive.close_days, before_day=day_of(now), limit=5_000):
        pass
    await store.writing(_score, rows, now=now)


def _score(tx: Connection, rows: Iterable[Offer], *, now: int) -> None:
    for endpoint in known_endpoints():
        evidence = scoring.gather(tx, endpoint, as_of=now)
        scores.save(tx, scoring.score_evidence(endpoint.id, evidence))
    _copy_score(tx, rows)


def _copy_score(tx: Connection, rows: Iterable[Offer]) -> None:
    """Copy a computed score to every endpoint without one, with its own points."""
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
    """Return a probe without findings, whose duration varies with `at` (ms UTC)."""
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
        for endpoint in known_endpoints()
    ]
    await service.store.writing(probes.record_each, new)


class SwitchableFacilitator(Facilitator):
    """The service's facilitator client. Requests can be switched off to measure sales without
    them.
    """

    calls_made = True

    async def verify(self, payment: Payment, requirements: dict[str, object]) -> Refused | None:
        """Return the facilitator's reply, or accept without a request."""
        return await super().verify(payment, requirements) if self.calls_made else None

    async def settle(
        self, payment: Payment, requirements: dict[str, object]
    ) -> SettledReply | Unclear:
        """Return the facilitator's reply, or accept without a request."""
        if self.calls_made:
            return await super().settle(payment, requirements)
        return SettledReply(transaction=f"0x{secrets.token_hex(32)}")


async def obey(
    service: root.Opened, facilitator: SwitchableFacilitator, order: dict[str, Any]
) -> dict[str, object]:
    """Execute a command of the measurement and return its result."""
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
    """Fill an empty store, serve, and execute commands until standard input ends."""
    configure_logs(json_lines=True)
    stop, configured = asyncio.Event(), config(settings)
    async with contextlib.AsyncExitStack() as stack:
        listeners = stack.enter_context(listen(configured.server, serve=True))
        opened = await stack.enter_async_context(root.open_resources(configured))
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
    """Return the command that starts this module as a process."""
    return [sys.executable, "-m", "bench.service", orjson.dumps(asdict(settings)).decode()]


if __name__ == "__main__":
    gc.set_threshold(GC_THRESHOLD)  # as the command line does
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Settings(**orjson.loads(sys.argv[1]))))
