"""The service in the demo world over HTTP, with a facilitator that can be made to stall.

The chain, the sellers and the facilitator are the demo's. A proxy between the service and the
facilitator can answer `settlement_pending` without forwarding a call.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support.processes import free_port
from tests.support.token_balance import balance

from tollgauge import app
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.clients.peer import public_authorities
from tollgauge.core.endpoint.identity import endpoint_id
from tollgauge.core.sale.payment_state import State
from tollgauge.demo import wallet
from tollgauge.demo.faults import Kind
from tollgauge.demo.seed import configuration
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.serving import serve
from tollgauge.demo.world import Sellers, World
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.web import routes as web
from tollgauge.web.settings import DemoSettings

WEATHER = "https://weather.example/v1/current"
WEATHER_ID = endpoint_id(WEATHER)


@dataclass
class Stall:
    """The proxy of the facilitator: the number of settlements to leave pending."""

    url: str
    pending: int = 0
    calls: Counter[str] = field(default_factory=Counter)

    async def answer(self, request: Request) -> Response:
        self.calls[request.url.path] += 1
        if request.url.path == "/settle" and self.pending > 0:
            self.pending -= 1
            reply = {"success": False, "errorReason": "settlement_pending", "transaction": ""}
            return JSONResponse(reply | {"network": "eip155:8453"})
        async with httpx.AsyncClient(
            timeout=30, trust_env=False, verify=public_authorities()
        ) as http:
            passed = await http.post(self.url + request.url.path, content=await request.body())
        return Response(passed.content, passed.status_code, media_type="application/json")


@dataclass(frozen=True)
class Storefront:
    """The running service, its world, and the proxy of the facilitator."""

    world: World
    service: app.Opened
    url: str
    stall: Stall

    async def income(self) -> int:
        return await balance(self.world.chain, self.world.pay_to)

    async def load_settled(self) -> list[LedgerRow]:
        """Return the settled payments, newest first."""
        rows = await self.service.store.reading(payments.latest, limit=100)
        return [row for row in rows if row.state is State.SETTLED]


def list_only(world: Sellers, *labels: str) -> None:
    """Remove the other sellers from the directory, so that they are not probed."""
    for seller in SELLERS:
        if seller.label not in labels:
            world.faults.switch(seller.label, Kind.DELISTED, on=True)


@contextlib.asynccontextmanager
async def storefront(*, demo: bool = False) -> AsyncIterator[Storefront]:
    """Run the service on its own port, with only the directory's endpoints.

    Unless it is a `demo`, its pages present the local chain as the real one. Raises ChainError
    without anvil.
    """
    async with contextlib.AsyncExitStack() as stack:
        world = await stack.enter_async_context(World.start(clock=app.now_ms))
        stall = Stall(world.facilitator_url)
        routes = [
            Route(f"/{verb}", stall.answer, methods=["POST"]) for verb in ("verify", "settle")
        ]
        port = await stack.enter_async_context(serve(Starlette(routes=routes)))
        front = free_port()
        config = replace(
            configuration(world, port=front, store_url="sqlite://"),
            facilitator=FacilitatorSettings(url=f"http://127.0.0.1:{port}"),
        )
        if not demo:
            config = replace(config, demo=DemoSettings())
        service = await stack.enter_async_context(app.open_resources(config))
        await service.round("discover")
        app_at = serve(web.create(service.server(), wallet.ROUTES.rows if demo else ()), port=front)
        port = await stack.enter_async_context(app_at)
        yield Storefront(world, service, f"http://127.0.0.1:{port}", stall)
