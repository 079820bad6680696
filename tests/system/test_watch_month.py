"""A month of watching: faults switched on and off, the market's own history, a real series.

The clock is simulated. Injected changes pass through the real probe and alert loops, over TLS on
loopback, from the demo's sellers to a real receiver.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import json
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import trustme
from sqlalchemy import Connection
from starlette.requests import Request as WebRequest
from starlette.responses import Response
from tests.support import http_service
from tests.support.alert_process import KEY
from tests.support.command_server import command as prepared_command
from tests.support.crawls import finish_crawl
from tests.support.receivers import ALERTS, Receivers, receivers
from tests.support.recorded import FOLDER, needs_recorded_inputs
from tests.support.statements import execute

from tollgauge import app as root
from tollgauge.clients import webhooks
from tollgauge.clients.webhooks import WatchSettings, destination_context, watch_context
from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.directory.listing import ListedItem, read_item
from tollgauge.core.endpoint.identity import endpoint_id, parse_resource
from tollgauge.core.probe.exchange import Answer
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.sale.payment_state import State as PaymentState
from tollgauge.core.watch.change_state import (
    ChangeState,
    Liveness,
    ScoredProbe,
    advance,
    advance_machine,
)
from tollgauge.core.watch.changes import EVENTS, Change, delisting
from tollgauge.core.watch.watch_rules import DestinationKind, WatchState
from tollgauge.demo import past, seed
from tollgauge.demo.behaviours import play, problem
from tollgauge.demo.seller import DemoRequest, Seller, offer_at
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.serving import serve
from tollgauge.jobs import alert
from tollgauge.jobs.loop_settings import ProbeSettings
from tollgauge.monitor import discovery
from tollgauge.store.endpoints import crawls, endpoints
from tollgauge.store.ledger import payments
from tollgauge.store.probes import change_rows
from tollgauge.store.watches import watch_payments, watches
from tollgauge.store.watches.watches import Destination, Watch

NOW = http_service.NOW
STEP = 5 * MINUTE_MS
ROOT = Path(__file__).resolve().parents[2]
SERIES = FOLDER / "uptime-series"


def one(kind: str, **changes: Any) -> Seller:
    match = next(seller for seller in SELLERS if seller.kind == kind)
    return replace(match, **changes)


@dataclass
class WatchedSeller:
    """A seller with switchable faults, its watch, and the receiver of its alerts."""

    service: root.Opened
    clock: http_service.Clock
    receivers: Receivers
    seller: Seller
    broken: Callable[[int], Response | None] = lambda _: None
    slow_s: float = 0.0
    asked: int = 0
    alerts: int = field(default=0)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = WebRequest(scope, receive)
        self.asked += 1
        asked = DemoRequest(method=request.method, path=request.url.path)
        reply: Answer = play(self.seller, asked, self.clock()).answer
        if request.url.path != self.seller.path:
            reply = problem(404, "no").answer
        await asyncio.sleep(self.slow_s)
        instead = self.broken(self.asked) if request.url.path == self.seller.path else None
        answer = instead or Response(
            reply.body, status_code=reply.status, headers=dict(reply.headers)
        )
        await answer(scope, receive, send)

    async def probe(self, times: int = 1) -> list[str]:
        """Run checks, each after the longest drawn gap; return the types of the alerts."""
        for _ in range(times):
            self.clock.now += STEP * 11 // 6 + MINUTE_MS
            tally = await self.service.round("probe")
            assert tally.get("probed") == 1, tally
            await self.service.round("alert")
        events = self.receivers.events()
        new = [event["type"] for event in events[self.alerts :]]
        self.alerts = len(events)
        return new


async def buy_watch(service: root.Opened, resource: str, *, now: int) -> tuple[str, str]:
    """Buy a watch of an endpoint with one signed destination; return its ID and its secret."""
    sealer = service.config.watch.sealer
    key = bytes(range(32))
    secret = webhooks.new_secret(key)
    parsed = parse_resource(resource, service.config.egress.perimeter)
    watch = Watch(
        id="wat_" + "1" * 24,
        secret_hash=webhooks.secret_hash(secret),
        endpoint_id=parsed.id,
        created_at=now,
        expires_at=now + 40 * DAY_MS,
        sealed_key=sealer.seal(key, context=watch_context("wat_" + "1" * 24)),
    )
    target = Destination(
        id="dst_1",
        watch_id=watch.id,
        kind=DestinationKind.JSON,
        sealed_url=sealer.seal(
            f"https://{ALERTS}/a".encode(), context=destination_context("dst_1")
        ),
        masked="https://…",
        created_at=now,
    )
    await service.store.writing(discovery.adopt, parsed, source="request", now=now)
    await service.store.writing(watch_payments.create, watch, [target], payment_id="pay_1")
    known = {
        column.name: None if column.nullable else 0 if is_number(column) else ""
        for column in payments.payment.c
    } | {"id": "pay_1", "state": PaymentState.SETTLED.value}
    await execute(service.store, payments.payment.insert().values(**known))
    await service.store.writing(watch_payments.apply, now=now)
    stored = await service.store.writing(watches.get, watch.id)
    assert stored is not None
    assert stored.state is WatchState.ACTIVE
    return watch.id, secret


def is_number(column: sa.Column[Any]) -> bool:
    return isinstance(column.type, sa.Integer)


@contextlib.asynccontextmanager
async def open_world(folder: Path, seller: Seller) -> AsyncIterator[WatchedSeller]:
    """The seller on TLS, the receiver on TLS, and the service between them."""
    clock = http_service.Clock()
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(seller.host).configure_cert(context)
    async with receivers(folder) as world:
        both = folder / "both.pem"
        both.write_bytes(authority.cert_pem.bytes() + Path(world.ca_file).read_bytes())  # noqa: ASYNC240 - a small file
        world.ca_file = str(both)
        watched_seller = WatchedSeller(service=None, clock=clock, receivers=world, seller=seller)  # type: ignore[arg-type]
        async with serve(watched_seller, tls=context) as port:
            config = replace(
                http_service.configuration(),
                egress=world.egress(mapped={seller.host: ("127.0.0.1", port)}),
                watch=WatchSettings(key=KEY),
                probe=ProbeSettings(cadence=Cadence(host_gap_ms=0)),
            )
            async with root.open_resources(config, clock=clock) as service:
                watched_seller.service = service
                await buy_watch(service, seller.url, now=clock())
                yield watched_seller


async def test_each_injected_change_is_reported_once_within_two_probes(tmp_path: Path) -> None:
    seller = one("perfect-v2")
    async with open_world(tmp_path, seller) as watched_seller:
        assert await watched_seller.probe(12) == []  # a quiet time, as a history to compare with

        watched_seller.seller = replace(seller, payees=("0x" + "Ab" * 20,))
        assert await watched_seller.probe(2) == ["payto_change"]
        watched_seller.seller = replace(watched_seller.seller, amounts=(seller.amounts[0] * 3,))
        assert await watched_seller.probe(2) == ["price_change"]
        watched_seller.seller = replace(watched_seller.seller, network="eip155:84532")
        assert "asset_network_change" in await watched_seller.probe(2)
        watched_seller.seller = replace(watched_seller.seller, network="eip155:8453")
        assert "asset_network_change" in await watched_seller.probe(2)
        assert await watched_seller.probe(8) == []

        watched_seller.seller = replace(watched_seller.seller, behave=one("decimal-amount").behave)
        assert await watched_seller.probe(2) == ["spec_regression"]
        assert "amount-form" in {
            rule["rule"] for rule in watched_seller.receivers.events()[-1]["evidence"]["rules"]
        }
        assert await watched_seller.probe(6) == []
        watched_seller.seller = replace(watched_seller.seller, behave=seller.behave)
        assert await watched_seller.probe(8) == []

        watched_seller.broken = lambda _: Response(status_code=503)
        assert await watched_seller.probe(2) == ["liveness_down"]
        assert await watched_seller.probe(5) == []
        watched_seller.broken = lambda _: None
        assert await watched_seller.probe(2) == ["liveness_recovered"]
        assert await watched_seller.probe(12) == []

        watched_seller.slow_s = 0.45
        assert await watched_seller.probe(2) == ["latency_regression"]
        assert await watched_seller.probe(2) == []
        watched_seller.slow_s = 0.0
        assert await watched_seller.probe(14) == []

        watched_seller.broken = lambda number: Response(status_code=503) if number % 2 else None
        assert await watched_seller.probe(20) == ["liveness_flapping"]
        watched_seller.broken = lambda _: None
        assert await watched_seller.probe(12) == ["liveness_recovered"]

        item = read_item({"resource": seller.url}, watched_seller.service.config.egress.perimeter)
        assert isinstance(item, ListedItem)
        for items in ([item], []):
            crawl = await watched_seller.service.store.writing(
                crawls.begin_crawl, "cdp", now=watched_seller.clock()
            )
            await watched_seller.service.store.writing(
                discovery.record_page, crawl, items, next_offset=1, now=watched_seller.clock()
            )
            watched_seller.clock.now += 1
            await watched_seller.service.store.writing(
                finish_crawl, crawl, complete=True, now=watched_seller.clock()
            )
        assert await watched_seller.probe(2) == ["listed", "delisted", "delisting"]
        ids = [event["event_id"] for event in watched_seller.receivers.events()]
        assert len(ids) == len(set(ids))


QUIET = ("perfect-v2", "perfect-v1", "dual", "price-changing", "payto-changing", "flapping")


def results_of(seller: Seller, *, days: int = 30) -> list[ProbeResult]:
    """Return five-minute observations of a seller for a month."""
    exchanges = past.exchanges(seller, start=NOW - days * DAY_MS, end=NOW, step_ms=STEP)
    return [seed.classify(exchange) for exchange in exchanges]


def flips_of(results: list[ProbeResult]) -> list[Change]:
    state = ChangeState()
    flips: list[Change] = []
    for result in results:
        state, step = advance(state, ScoredProbe(result=result))
        flips += step
    return flips


@pytest.mark.parametrize("kind", QUIET)
def test_month_of_the_market_reports_exactly_the_changes(kind: str) -> None:
    """Compare with an oracle that knows the sellers' calendar and derives outages from the
    series.
    """
    seller = one(kind)
    results = results_of(seller)
    flips = flips_of(results)
    seen = [offer_at(seller, result.at) for result in results if result.quote is not None]
    pairs = list(itertools.pairwise(seen))
    payees = sum(a.pay_to.lower() != b.pay_to.lower() for a, b in pairs)
    prices = sum(a.amount != b.amount for a, b in pairs)
    counts = {name: [change.type for change in flips].count(name) for name in EVENTS}
    assert counts["payto_change"] == payees
    assert counts["price_change"] == prices
    assert counts["asset_network_change"] == counts["spec_regression"] == 0
    assert_outages_were_told(results, flips)
    if kind == "price-changing":
        assert prices >= 3
    if kind == "payto-changing":
        assert payees >= 2


def assert_outages_were_told(results: list[ProbeResult], alerts: list[Change]) -> None:
    """Every outage of two checks or more, far from any other failure, is reported once at its
    second check and ended by the second success. A single failure is never reported.
    """
    line = "".join("1" if result.up else "0" for result in results)
    ats = {change.at: change.type for change in alerts if change.type.startswith("liveness")}
    lonely = re.compile(r"(?<=1{14})(0+)(?=1{14})")
    for match in lonely.finditer(line):
        start, end = match.span()
        inside = [ats.get(results[i].at) for i in range(start, end + 14)]
        expected: list[str | None] = [None] * len(inside)
        if end - start >= 2:
            expected[1] = "liveness_down"
            expected[end - start + 1] = "liveness_recovered"
        assert inside == expected, line[start - 14 : end + 14]
    downs = sum(kind in ("liveness_down", "liveness_flapping") for kind in ats.values())
    assert downs <= len(re.findall("0+", line))


@needs_recorded_inputs
def test_real_uptime_series_are_reported_correctly() -> None:
    lines: dict[str, str] = {}
    for path in sorted(SERIES.glob("*.json.gz")):
        for resource in json.loads(gzip.decompress(path.read_bytes()))["resources"]:
            alive = bool(resource.get("health", {}).get("isAlive"))
            lines[resource["url"]] = lines.get(resource["url"], "") + ("1" if alive else "0")
    assert len(lines) > 100
    for text in lines.values():
        for n in (1, 2, 5):
            check_series(text, n)


def check_series(text: str, n: int) -> None:
    """Events alternate, each has its run of results, and no long outage is missed."""
    machine = Liveness(n=n)
    flips: list[tuple[int, str]] = []
    for end in range(1, len(text) + 1):
        recent = text[max(0, end - 12) : end]
        machine, kind = advance_machine(
            machine, recent=recent, since=end, seen_up="1" in text[:end]
        )
        if kind:
            flips.append((end, kind))
        run = len(text[:end]) - len(text[:end].rstrip("0"))
        if run >= max(n, 6) and "1" in text[:end]:
            assert machine.down, (text[:end], n)
    for end, kind in flips:
        if kind == "liveness_down":
            assert text[:end].endswith("0" * n)
        if kind == "liveness_recovered":
            assert text[:end].endswith("11")
    kinds = [kind for _, kind in flips]
    for before, after in itertools.pairwise(kinds):
        assert before != after, (text, n)


@pytest.mark.parametrize(("stage", "times"), [("decided", 1), ("sent", 2)])
async def test_kill_loses_nothing_and_repeats_at_most_once_with_the_same_id(
    tmp_path: Path, stage: str, times: int
) -> None:
    url = f"sqlite:///{tmp_path / 'service.db'}"
    clock = http_service.Clock()
    resource = "https://api.example.com/v1/weather"
    async with receivers(tmp_path) as world:
        config = replace(
            http_service.configuration(store_url=url),
            egress=world.egress(),
            watch=WatchSettings(key=KEY),
        )
        async with root.open_resources(config, clock=clock) as service:
            watch_id, _ = await buy_watch(service, resource, now=clock() - 1)
            await service.store.writing(service_flip, endpoint_id(resource), at=clock())
        arguments = [url, stage, str(world.port), world.ca_file, str(clock())]
        done = await asyncio.to_thread(
            subprocess.run,
            prepared_command("-m", "tests.support.alert_process", *arguments),
            capture_output=True,
            check=False,
        )
        assert done.returncode == -9, done.stderr.decode()
        assert len(world.events()) == times - 1
        async with root.open_resources(config, clock=clock) as service:
            for _ in range(3):
                await alert.run(service.alerts())
                clock.now += 61_000
        sent = [event["event_id"] for event in world.events()]
        assert len(sent) == times
        assert len(set(sent)) == 1
        assert watch_id in world.of(ALERTS)[0].json["watch_id"]


def service_flip(tx: Connection, endpoint: str, *, at: int) -> None:
    """Record a change as a crawl does."""
    assert endpoints.get(tx, endpoint) is not None
    change_rows.add(tx, [(endpoint, delisting(source="cdp", at=at))])
