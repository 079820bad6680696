"""Servers of the real products as separate processes, which can be stopped at a named point.

A fork server as in tests/support/ledger_process, for the whole service: routes, gate, products,
probes and webhook tests. A file names the point at which a server sends itself SIGSTOP, once; it
continues when the test sends SIGCONT.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvicorn
from tests.support.ledger_process import run_fork_server
from tests.support.prices import PRICES

from tollgauge import app as root
from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.facilitator import Facilitator, FacilitatorSettings
from tollgauge.clients.webhooks import WatchSettings
from tollgauge.config import Config
from tollgauge.db.engine import StoreSettings
from tollgauge.web import routes as web
from tollgauge.web.paid import gate
from tollgauge.web.paid.gate import Gate
from tollgauge.web.paid.sale import HeldClaim, SaleSettings
from tollgauge.web.paid.settle import Settler
from tollgauge.web.settings import ServerSettings

KEY: Final = "a key of at least thirty-two characters"
STEPS: Final[dict[str, type]] = {
    "_claim": Gate,
    "_verify": Gate,
    "_compute": Gate,
    "store_intent": Settler,
    "settle": Facilitator,
    "conclude": Settler,
}
"""The steps of a sale, each followed by a point."""
WRITES: Final = ("before the product writes", "after the product wrote")
"""The points of a product that writes."""


def after(owner: type, step: str, point: Callable[[str], None]) -> None:
    """Add a point after a step of the real service, which has no code for it."""
    method = getattr(owner, step)

    async def run_step(*arguments: Any, **more: Any) -> Any:
        result = await method(*arguments, **more)
        point(step)
        return result

    setattr(owner, step, run_step)


def around_writes(point: Callable[[str], None]) -> None:
    """Add points around the transactions of products."""
    method = HeldClaim.writing

    async def writing(*arguments: Any, **more: Any) -> Any:
        point(WRITES[0])
        result = await method(*arguments, **more)
        point(WRITES[1])
        return result

    setattr(HeldClaim, "writing", writing)  # noqa: B010 - a method of a frozen class


def configuration(order: dict[str, str]) -> Config:
    """Set one price for every product, that of the world's payment."""
    names = json.loads(order["names"])
    return Config(
        server=ServerSettings(base_url="http://trust.test", admin_port=0),
        store=StoreSettings(url=order["database"]),
        sale=SaleSettings(pay_to=order["pay_to"], prices=dict.fromkeys(PRICES, "0.005000")),
        facilitator=FacilitatorSettings(url=order["facilitator"], settle_timeout_s=5),
        chains=(ChainSettings(network="eip155:8453", nodes=(order["node"],)),),
        egress=EgressSettings(
            user_agent="tollgauge/test",
            mapped={name: ("127.0.0.1", int(order["sellers"])) for name in names},
            ca_file=order["ca_file"],
        ),
        watch=WatchSettings(key=KEY),
    )


def serve(order: dict[str, str], listener: socket.socket) -> None:
    """Become a server of the whole service. It reads its clock, and the point at which to stop,
    from files of `folder`.
    """
    folder = Path(order["folder"])
    stop = folder / order["stop"]

    def point(name: str) -> None:
        if stop.exists() and stop.read_text() == name:
            stop.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)

    vars(gate)["POLL_DELAYS_S"] = (0.0,)
    for step, owner in STEPS.items():
        after(owner, step, point)
    around_writes(point)

    async def run() -> None:
        def clock() -> int:
            return int((folder / "clock").read_text())

        async with root.open_resources(configuration(order), clock=clock) as service:
            app = web.create(service.server())
            settings = uvicorn.Config(
                app, log_level="error", lifespan="off", access_log=False, ws="none"
            )
            await uvicorn.Server(settings).serve(sockets=[listener])

    asyncio.run(run())


if __name__ == "__main__":
    run_fork_server(serve)
