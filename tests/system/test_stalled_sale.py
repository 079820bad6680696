"""A worker that is stopped for a minute during a sale, which another worker then completes.

Both are processes of the whole service on one database. The first is stopped (SIGSTOP) at a named
point, and its claim expires. The buyer sends the same payment to the second, which sells and
responds. Then the first continues (SIGCONT). It must not change the sale.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import Connection
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.support.fork_server import ForkServer, start_fork_server, until_stopped
from tests.support.killable_worker import Worker
from tests.support.ledger_chain import NUMBERS, PAY_TO, word
from tests.support.ledger_world import NOW, VALID_S, LedgerWorld
from tests.support.product_process import STEPS, WRITES
from tests.support.rated_endpoints import add_better_alternative
from tests.support.receivers import ALERTS, NAMES, SELLER, Receivers, receivers

from tollgauge.clients.peer import public_authorities
from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.core.sale.payment import decode
from tollgauge.core.sale.payment_state import State
from tollgauge.core.watch.watch_rules import PERIOD_MS, WatchState
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.monitor import discovery
from tollgauge.store.ledger import payments
from tollgauge.store.watches import watch_payments, watches

RESOURCE: Final = f"https://{SELLER}/v1/weather"
EXTENSIONS: Final = {"tollgauge": {"info": {"ticket": "a ticket of the 402"}}}
"""Fields of the 402 that a buyer repeats, so that every copy gets the complete response."""
POINTS: Final = (*STEPS, *WRITES)
LEASES_S: Final = 91
"""After this time, the worker has lost both the claim and the settlement."""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with start_fork_server("tests.support.product_process") as fork_server:
        yield fork_server


@dataclass
class World(LedgerWorld):
    """A world that signs one payment after another."""

    signed_at_s: int = NOW // 1000

    @property
    def valid_before_s(self) -> int:
        return self.signed_at_s + VALID_S

    def sign_another(self) -> None:
        self.nonce = word(next(NUMBERS) + (1 << 200))
        self.signed_at_s = self.now_s


@dataclass
class Market:
    """A payment, a seller, a receiver, a database, and servers on it."""

    world: World
    sellers: Receivers
    database: str
    folder: Path
    fork_server: ForkServer
    port: int
    http: httpx.AsyncClient

    def server(self, stop: str) -> str:
        """Start a server and return its address. `stop` names the file that names the point at
        which to stop.
        """
        self.set_clock()
        return self.fork_server.fork(
            database=self.database,
            facilitator=f"http://127.0.0.1:{self.port}",
            node=f"http://127.0.0.1:{self.port}/node",
            folder=str(self.folder),
            sellers=str(self.sellers.port),
            names=json.dumps(NAMES),
            ca_file=self.sellers.ca_file,
            pay_to=PAY_TO,
            stop=stop,
        )

    def set_clock(self) -> None:
        (self.folder / "clock.new").write_text(str(self.world.now))
        (self.folder / "clock.new").replace(self.folder / "clock")

    def tick(self, seconds: int) -> None:
        self.world.tick(seconds)
        self.set_clock()

    @property
    def header(self) -> str:
        document = json.loads(base64.b64decode(self.world.header)) | {"extensions": EXTENSIONS}
        return base64.b64encode(json.dumps(document).encode()).decode()

    async def buy(self, server: str, route: str, body: Any) -> httpx.Response:
        headers = {"PAYMENT-SIGNATURE": self.header}
        return await self.http.post(f"{server}{route}", json=body, headers=headers)

    async def sell_route(self, server: str, route: str, body: Any) -> httpx.Response:
        """Send the same payment until it is answered; return the response."""
        for _ in range(5):
            answer = await self.buy(server, route, body)
            if answer.status_code != 503:
                break
            self.tick(LEASES_S)
        assert answer.status_code == 200, answer.text
        return answer

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        store = Store.open(self.database)
        try:
            yield store
        finally:
            await store.close()

    async def row(self) -> payments.LedgerRow:
        async with self.store() as store:
            row = await store.reading(payments.get, decode(self.header).id)
        assert row is not None
        return row

    async def buy_watch(self) -> watches.Watch:
        """Buy a watch long ago, of an endpoint known since then."""
        resource = parse_resource(RESOURCE)
        watch = watches.Watch(
            id="wat_0123456789abcdef01234567",
            secret_hash="of a secret",
            endpoint_id=resource.id,
            created_at=NOW,
            expires_at=NOW + PERIOD_MS,
            state=WatchState.ACTIVE,
        )

        def add(tx: Connection) -> None:
            discovery.adopt(tx, resource, source="request", now=NOW)
            watches.add(tx, watch)

        async with self.store() as store:
            await store.writing(add)
        return watch

    async def watches(self) -> tuple[watches.Watch, ...]:
        async with self.store() as store:
            return await store.reading(watches.latest, limit=10)


@pytest.fixture
async def market(database: str, tmp_path: Path, fork_server: ForkServer) -> AsyncIterator[Market]:
    world = World()

    async def play(request: Request) -> Response:
        sent = httpx.Request("POST", str(request.url), content=await request.body())
        wire = world.node if request.url.path == "/node" else world.facilitate
        answer = await wire(sent, Worker())
        return Response(answer.content, answer.status_code, media_type="application/json")

    paths = ("/verify", "/settle", "/node")
    played = Starlette(routes=[Route(path, play, methods=["POST"]) for path in paths])
    async with (
        receivers(tmp_path) as sellers,
        serve(played) as port,
        httpx.AsyncClient(timeout=40, verify=public_authorities()) as http,
    ):
        try:
            yield Market(world, sellers, database, tmp_path, fork_server, port, http)
        finally:
            fork_server.end_servers()


@dataclass
class Race:
    """Start two servers: one that is stopped in its sales, and one that completes them."""

    market: Market
    pid: int
    stalls: str
    sells: str

    async def sale(self, point: str, route: str, body: Any) -> httpx.Response:
        """Stop the first server at a point, sell at the second, and let the first continue; return
        the response of the second.

        The first server then returns the sale, or that the outcome is unknown. It never claims that
        nothing was charged.
        """
        market = self.market
        market.world.sign_another()
        (market.folder / "stop").write_text(point)
        first = asyncio.create_task(market.buy(self.stalls, route, body))
        stopped = await until_stopped(self.pid, first)
        assert stopped or point in WRITES, point
        market.tick(LEASES_S)
        answer = await market.sell_route(self.sells, route, body)
        os.kill(self.pid, signal.SIGCONT)
        late = await first
        assert late.status_code in (200, 503), (point, late.text)
        assert late.status_code == 503 or late.content == answer.content, point
        assert "not charged" not in late.text.lower(), point
        assert (await market.row()).state is State.SETTLED, point
        again = await market.sell_route(self.sells, route, body)
        assert again.content == answer.content, point
        return answer


@pytest.fixture
def race(market: Market) -> Race:
    stalls = market.server("stop")
    return Race(market, market.fork_server.born[-1], stalls, market.server("no stop"))


async def test_stopped_worker_does_not_replace_a_watch_sold_by_another(race: Race) -> None:
    body = {"endpoint": RESOURCE, "delivery": {"webhook_url": f"https://{ALERTS}/tollgauge"}}
    sold = set()
    for point in POINTS:
        bought = (await race.sale(point, "/v1/watch-endpoint-30d", body)).json()
        polled = await race.market.http.get(
            f"{race.sells}/v1/watch/{bought['watch_id']}/events",
            headers={"Authorization": f"Bearer {bought['secret']}"},
        )
        assert polled.status_code == 200, (point, polled.text)
        assert polled.json()["state"] == "active", point
        sold.add(bought["watch_id"])
        assert {watch.id for watch in await race.market.watches()} == sold, point


async def test_stopped_worker_renews_nothing_a_second_time(race: Race) -> None:
    watch = await race.market.buy_watch()
    for number, point in enumerate(POINTS, 1):
        await race.sale(point, f"/v1/watch/{watch.id}/renew", {})
        async with race.market.store() as store:
            await store.writing(watch_payments.apply, now=race.market.world.now)
        (renewed,) = await race.market.watches()
        assert renewed.expires_at == NOW + (1 + number) * PERIOD_MS, point


@pytest.mark.parametrize("product", ["x402-trust", "x402-history", "similar"])
async def test_stopped_worker_gives_only_the_response_that_was_sold(
    race: Race, product: str
) -> None:
    await race.market.buy_watch()
    async with race.market.store() as store:
        await add_better_alternative(store, RESOURCE, now=NOW)
    for point in POINTS:
        await race.sale(point, f"/v1/{product}", {"resource": RESOURCE})
