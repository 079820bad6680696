"""A route behind the gate, a configurable facilitator, and payments for that route.

The facilitator is a real HTTP server on loopback. It does not verify signatures.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tollgauge.clients.facilitator import Facilitator, FacilitatorSettings
from tollgauge.core.sale.payment import Offer, decode
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.store.ledger import payments
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.gate import Gate
from tollgauge.web.paid.sale import HeldClaim, Sale

NOW = 1_800_000_000_000
PAY_TO = "0x" + "ab" * 20
ASSET = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
TX = "0x" + "77" * 32


@dataclass
class World:
    """A facilitator, a clock and a route whose responses tests may change."""

    now: int = NOW
    calls: Counter[str] = field(default_factory=Counter)
    verify: Any = None
    settle: Any = None
    bend: Any = None
    compute: Any = None
    writes: Any = None
    computed: int = 0
    hosts: tuple[str, ...] = ()

    def clock(self) -> int:
        return self.now

    async def facilitator(self, request: Request) -> Response:
        verb = request.url.path.strip("/")
        self.calls[verb] += 1
        if self.bend is not None:
            bent: Response = await self.bend(request)
            return bent
        bend = getattr(self, verb)
        if bend is not None:
            answer = bend()
            response: Response = await answer if asyncio.iscoroutine(answer) else answer
            return response
        if verb == "verify":
            return JSONResponse({"isValid": True})
        return settled_response()


def settled_response(**changes: Any) -> Response:
    reply = {"success": True, "transaction": TX, "network": "eip155:8453"} | changes
    return JSONResponse(reply)


@dataclass
class GateClient:
    """A server behind the gate and a client connected to it."""

    world: World
    store: Store
    http: httpx.AsyncClient

    async def buy(
        self, header: str | None = None, body: object = None, path: str = "/v1/a"
    ) -> httpx.Response:
        headers = {} if header is None else {"PAYMENT-SIGNATURE": header}
        content = json.dumps({"q": 1} if body is None else body)
        return await self.http.post(path, content=content, headers=headers)

    async def row(self, header: str) -> payments.LedgerRow:
        stored = await self.store.reading(payments.get, decode(header).id)
        assert stored is not None
        return stored


def payment(nonce: int = 1, signed: dict[str, str] | None = None, extensions: object = None) -> str:
    document: dict[str, object] = {
        "x402Version": 2,
        "accepted": {"scheme": "exact", "network": "eip155:8453", "asset": ASSET},
        "payload": {
            "signature": "0x" + "1b" * 65,
            "authorization": {
                "from": "0x" + "cd" * 20,
                "to": PAY_TO,
                "value": "5000",
                "validAfter": "0",
                "validBefore": str(NOW // 1000 + 300),
                "nonce": f"0x{nonce:064x}",
            }
            | (signed or {}),
        },
    }
    if extensions is not None:
        document["extensions"] = extensions
    return base64.b64encode(json.dumps(document).encode()).decode()


@contextlib.asynccontextmanager
async def open_gate(
    store: Store, world: World, *, settle_timeout_s: float = 20
) -> AsyncIterator[GateClient]:
    played = Starlette(
        routes=[
            Route(f"/{verb}", world.facilitator, methods=["POST"]) for verb in ("verify", "settle")
        ]
    )
    async with serve(played) as port:
        facilitator = Facilitator(
            FacilitatorSettings(
                url=f"http://127.0.0.1:{port}",
                verify_timeout_s=20,
                settle_timeout_s=settle_timeout_s,
            )
        )
        gate = Gate(store=store, facilitator=facilitator, clock=world.clock)

        async def answer(request: Request) -> Response:
            try:
                return await gate.serve(request, sale(world, request.url.path))
            except Problem as problem:
                return problem.response()

        routes = [Route(path, answer, methods=["POST"]) for path in ("/v1/a", "/v1/b", "/v1/dear")]
        transport = httpx.ASGITransport(Starlette(routes=routes), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
            yield GateClient(world, store, http)
        await facilitator.close()


def sale(world: World, path: str) -> Sale:
    async def compute(order: object, claim: HeldClaim) -> bytes:
        world.computed += 1
        if world.writes is not None:
            claim.with_answer.append(world.writes)
        if world.compute is not None:
            await world.compute()
        return json.dumps({"answer": order}).encode()

    def validate(document: object) -> object:
        if not isinstance(document, dict) or "q" not in document:
            raise Problem(422, "invalid-input", "q is missing")
        return document["q"]

    offer = Offer(
        route=path,
        resource=f"http://shop{path}",
        network="eip155:8453",
        asset=ASSET,
        amount=20_000 if path == "/v1/dear" else 5_000,
        pay_to=PAY_TO,
        domain_name="USD Coin",
        domain_version="2",
    )
    return Sale(
        offer=offer,
        description="",
        validate=validate,
        compute=compute,
        hosts=lambda _order: world.hosts,
    )
