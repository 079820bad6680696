"""The service beside the sellers of tests/support/seller_world.py: it sells payment traces."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.support.ports import free_port
from tests.support.prices import TRACE
from tests.support.seller_world import SellerWorld

from tollgauge import app
from tollgauge.clients.chain.rpc import RpcSettings
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.config import Config
from tollgauge.db.engine import StoreSettings
from tollgauge.demo.buyer import buy_answer
from tollgauge.demo.serving import serve
from tollgauge.demo.world import PAY_TO
from tollgauge.web import routes as web
from tollgauge.web.paid.settings import SaleSettings
from tollgauge.web.settings import ServerSettings


@contextlib.asynccontextmanager
async def trace_service(world: SellerWorld) -> AsyncIterator[str]:
    """The service with the sellers' chain and facilitator; its address."""
    port = free_port()
    config = Config(
        server=ServerSettings(base_url=f"http://127.0.0.1:{port}", port=port, admin_port=0),
        store=StoreSettings(url="sqlite://"),
        sale=SaleSettings(pay_to=PAY_TO),
        facilitator=FacilitatorSettings(url=world.facilitator_url),
        rpc=RpcSettings(url=(world.chain.rpc_url,)),
    )
    async with (
        app.opened(config) as service,
        serve(web.create(service.server()), port=port) as actual,
    ):
        yield f"http://127.0.0.1:{actual}"


async def traced(
    service: str, world: SellerWorld, *, payer: str, nonce: str, network: str
) -> dict[str, Any]:
    """The paid answer about an authorization."""
    order = {"payer": payer, "nonce": nonce, "network": network}
    bought = await buy_answer(service, TRACE, order, account=await world.wallet())
    return bought.report
