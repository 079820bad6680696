"""The service with a facilitator that accepts every payment; purchases pass through the whole gate.

The facilitator is a real HTTP server on loopback. Signatures are not verified here.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support import http_service, prices
from tests.support.http_service import PAY_TO

from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.core.base.units import parse_dollars
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve

USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"


def payment(
    nonce: int, *, value: int, now: int, payer: str = "0x" + "cd" * 20, **more: Any
) -> dict[str, Any]:
    """Return a payment that is valid except for its made-up signature."""
    signed = {
        "from": payer,
        "to": PAY_TO,
        "value": str(value),
        "validAfter": "0",
        "validBefore": str(now // 1000 + 300),
        "nonce": f"0x{nonce:064x}",
    }
    return {
        "x402Version": 2,
        "accepted": {"scheme": "exact", "network": "eip155:8453", "asset": USDC},
        "payload": {"signature": "0x" + "1b" * 65, "authorization": signed},
        **more,
    }


def header(document: dict[str, Any]) -> str:
    """Encode a payment for PAYMENT-SIGNATURE."""
    return base64.b64encode(json.dumps(document).encode()).decode()


@contextlib.asynccontextmanager
async def facilitator(
    asked: Counter[str], settles: list[bool] | None = None
) -> AsyncIterator[FacilitatorSettings]:
    """A facilitator that counts its calls in `asked`; `settles` are its next settlement
    responses.
    """

    async def answer(request: Request) -> Response:
        asked[request.url.path] += 1
        if request.url.path == "/verify":
            return JSONResponse({"isValid": True})
        if settles and not settles.pop(0):
            return JSONResponse({"success": False, "errorReason": "insufficient_funds"})
        tx = f"0x{sum(asked.values()):064x}"
        return JSONResponse({"success": True, "transaction": tx, "network": "eip155:8453"})

    routes = [Route(path, answer, methods=["POST"]) for path in ("/verify", "/settle")]
    async with serve(Starlette(routes=routes)) as port:
        yield FacilitatorSettings(url=f"http://127.0.0.1:{port}")


@dataclass
class PaidService:
    """A running service, and the calls that its facilitator received."""

    running: http_service.Running
    asked: Counter[str] = field(default_factory=Counter)
    nonces: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def store(self) -> Store:
        return self.running.service.store

    def payment(self, path: str) -> dict[str, Any]:
        """Return a new payment of the price of a route."""
        price = parse_dollars(prices.PRICES[path])
        return payment(next(self.nonces), value=price, now=self.running.clock())

    async def post(
        self, path: str, body: object, *, paid: str | None = None, **headers: str
    ) -> httpx.Response:
        """Send a paid request, with a new payment unless one is given."""
        signed = paid or header(self.payment(path))
        return await self.running.http.post(
            path, json=body, headers={"PAYMENT-SIGNATURE": signed, **headers}
        )


Service = TypeVar("Service", bound=PaidService)


@contextlib.asynccontextmanager
async def open_paid_service(url: str, kind: type[Service]) -> AsyncIterator[Service]:
    """An empty service on a database."""
    asked: Counter[str] = Counter()
    async with facilitator(asked) as settings:
        config = replace(http_service.configuration(store_url=url), facilitator=settings)
        async with http_service.open_service(config) as running:
            yield kind(running, asked)
