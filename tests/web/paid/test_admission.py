"""Admission of sales: a payer is limited to a share of the concurrent sales, and so is a host.

Payments are signed with real keys, because a share belongs to the key and not to the name.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support.databases import on_sqlite
from tests.support.gate_world import NOW, World, sale, settled_response
from tests.support.signed_payments import sign_payment

from tollgauge.clients.facilitator import Facilitator, FacilitatorSettings
from tollgauge.core.sale.payment import decode
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.store.ledger import payer_limit, payments
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.admission import PAYER_SHARE, RETRY_S, SPREAD_S
from tollgauge.web.paid.gate import Gate

SLOTS = 4 * PAYER_SHARE
SHARE = SLOTS // PAYER_SHARE


@dataclass
class HeldGate:
    """A gate whose facilitator responds once `may_respond` is set."""

    world: World
    store: Store
    http: httpx.AsyncClient
    may_respond: asyncio.Event
    asked: list[asyncio.Task[httpx.Response]] = field(default_factory=list)

    async def buy(self, header: str, **body: Any) -> httpx.Response:
        headers = {"PAYMENT-SIGNATURE": header}
        return await self.http.post("/v1/a", json={"q": 1} | body, headers=headers)

    async def start_sales(self, *headers: str) -> None:
        """Begin a sale per header, and wait until all are being computed."""
        before = self.world.computed
        self.asked += [asyncio.create_task(self.buy(header)) for header in headers]
        async with asyncio.timeout(20):
            while self.world.computed < before + len(headers):  # noqa: ASYNC110 - see `computed`
                await asyncio.sleep(0.01)

    async def answers(self) -> set[int]:
        self.may_respond.set()
        return {answer.status_code for answer in await asyncio.gather(*self.asked)}


@pytest.fixture
async def gate_client(store: Store) -> AsyncIterator[HeldGate]:
    async with open_gate(store) as gate_client:
        yield gate_client


@contextlib.asynccontextmanager
async def open_gate(store: Store) -> AsyncIterator[HeldGate]:
    world, may_respond = World(), asyncio.Event()

    async def wait() -> None:
        await may_respond.wait()

    async def facilitator(request: Request) -> Response:
        if request.url.path == "/settle":
            return settled_response()
        return JSONResponse({"isValid": True})

    world.compute = wait
    routes = [Route(f"/{verb}", facilitator, methods=["POST"]) for verb in ("verify", "settle")]
    async with serve(Starlette(routes=routes)) as port:
        asked = Facilitator(
            FacilitatorSettings(url=f"http://127.0.0.1:{port}", sales_at_once=SLOTS)
        )
        gate = Gate(store=store, facilitator=asked, clock=world.clock)

        async def sell(request: Request) -> Response:
            try:
                return await gate.serve(request, sale(world, request.url.path))
            except Problem as problem:
                return problem.response()

        app = Starlette(routes=[Route("/v1/a", sell, methods=["POST"])])
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
            gate_client = HeldGate(world, store, http, may_respond)
            yield gate_client
            may_respond.set()
            await asyncio.gather(*gate_client.asked, return_exceptions=True)
        await asked.close()


@on_sqlite
async def test_payer_is_limited_to_a_share_of_concurrent_sales(
    gate_client: HeldGate,
) -> None:
    await gate_client.start_sales(*(sign_payment(1, nonce) for nonce in range(SHARE)))
    more = await gate_client.buy(sign_payment(1, SHARE))
    assert (more.status_code, more.json()["code"]) == (429, "payer-busy")
    assert int(more.headers["Retry-After"]) >= 1
    assert await gate_client.store.reading(payments.get, decode(sign_payment(1, SHARE)).id) is None
    await gate_client.start_sales(sign_payment(2, 0), sign_payment(3, 0))
    assert await gate_client.answers() == {200}
    assert (await gate_client.buy(sign_payment(1, SHARE))).status_code == 200


@on_sqlite
async def test_retry_times_of_rejected_payments_are_spread(
    gate_client: HeldGate,
) -> None:
    await gate_client.start_sales(*(sign_payment(1, nonce) for nonce in range(SHARE)))
    refused = [await gate_client.buy(sign_payment(1, 100 + nonce)) for nonce in range(40)]
    assert {answer.status_code for answer in refused} == {429}
    pauses = [int(answer.headers["Retry-After"]) for answer in refused]
    assert set(pauses) == set(range(RETRY_S, RETRY_S + SPREAD_S))
    again = await gate_client.buy(sign_payment(1, 100))
    assert int(again.headers["Retry-After"]) == pauses[0], "a copy of a payment gets the same delay"
    assert await gate_client.answers() == {200}


@on_sqlite
async def test_forged_payer_does_not_use_the_share_of_another(
    gate_client: HeldGate,
) -> None:
    await gate_client.start_sales(*(sign_payment(1, nonce, by=9) for nonce in range(SHARE)))
    forged = await gate_client.buy(sign_payment(1, 50, by=9))
    assert (forged.status_code, forged.json()["code"]) == (429, "payer-busy")
    await gate_client.start_sales(*(sign_payment(1, 100 + nonce) for nonce in range(SHARE)))
    assert (await gate_client.buy(sign_payment(1, 99))).status_code == 429
    assert await gate_client.answers() == {200}


@on_sqlite
async def test_unproven_payers_are_limited_to_a_part_of_all_sales(gate_client: HeldGate) -> None:
    """The first payment of a contract wallet is served while half of all sales are in use."""
    unproven = SLOTS // 2 + SHARE
    await gate_client.start_sales(
        *(sign_payment(10 + number, 1, by=9) for number in range(unproven))
    )
    refused = await gate_client.buy(sign_payment(60, 1, by=9))
    assert (refused.status_code, refused.json()["code"]) == (503, "facilitator-unavailable")
    await gate_client.start_sales(
        *(sign_payment(100 + number, 1) for number in range(SLOTS - unproven))
    )
    full = await gate_client.buy(sign_payment(99, 1))
    assert (full.status_code, full.json()["code"]) == (503, "facilitator-unavailable")
    assert await gate_client.answers() == {200}


async def test_copy_of_a_running_sale_is_not_a_new_sale(gate_client: HeldGate) -> None:
    await gate_client.start_sales(*(sign_payment(1, nonce) for nonce in range(SHARE)))
    copy = asyncio.create_task(gate_client.buy(sign_payment(1, 0)))
    gate_client.may_respond.set()
    assert (await copy).status_code in (200, 429, 503)
    assert await gate_client.answers() == {200}
    assert (await gate_client.buy(sign_payment(1, 0))).status_code == 200
    assert gate_client.world.computed == SHARE


async def test_host_that_wastes_work_is_paused_for_all_payers(
    gate_client: HeldGate,
) -> None:
    async def waste_work() -> None:
        raise Problem(503, "host-busy", "It asks for silence.", host="slow.example")

    gate_client.world.compute, gate_client.world.hosts = waste_work, ("slow.example",)
    for payer in range(1, 1 + payer_limit.HOST_MAX_FAILED):
        refused = await gate_client.buy(sign_payment(payer, 1))
        assert (refused.status_code, refused.json()["code"]) == (503, "host-busy")
    computed = gate_client.world.computed
    refused = await gate_client.buy(sign_payment(900, 1))
    assert (refused.status_code, refused.json()["code"]) == (503, "host-busy")
    assert 1 <= int(refused.headers["Retry-After"]) <= payer_limit.HOST_WITHIN_MS // 1000
    assert gate_client.world.computed == computed, "nothing was verified or computed"
    gate_client.world.hosts = ("other.example",)
    assert (await gate_client.buy(sign_payment(900, 1))).status_code == 503
    assert gate_client.world.computed == computed + 1
    gate_client.world.hosts = ("slow.example",)
    gate_client.world.now = NOW + payer_limit.HOST_WITHIN_MS + 1
    late = sign_payment(901, 1, until_s=gate_client.world.now // 1000 + 60)
    assert (await gate_client.buy(late)).status_code == 503
    assert gate_client.world.computed == computed + 2


async def test_few_payers_cannot_pause_a_host(gate_client: HeldGate) -> None:
    async def waste_work() -> None:
        raise Problem(503, "host-busy", "It asks for silence.", host="slow.example")

    gate_client.world.compute, gate_client.world.hosts = waste_work, ("slow.example",)
    payers = payer_limit.HOST_PAYERS - 1
    for number in range(payer_limit.HOST_MAX_FAILED):
        await gate_client.buy(sign_payment(1 + number % payers, 1 + number))
    computed = gate_client.world.computed
    await gate_client.buy(sign_payment(900, 1))
    assert gate_client.world.computed == computed + 1


async def test_wasted_work_counts_against_its_payer(gate_client: HeldGate) -> None:
    async def waste_work() -> None:
        raise Problem(503, "probe-failed-here", "Nobody can tell.", wasted=True)

    gate_client.world.compute = waste_work
    buys = [
        await gate_client.buy(sign_payment(1, nonce)) for nonce in range(payer_limit.MAX_UNPAID + 1)
    ]
    assert [answer.status_code for answer in buys] == [503] * payer_limit.MAX_UNPAID + [429]


async def test_work_wasted_by_a_host_counts_against_the_payer(gate_client: HeldGate) -> None:
    async def waste_work() -> None:
        raise Problem(503, "host-busy", "It asks for silence.", host="slow.example")

    gate_client.world.compute = waste_work
    statuses = [
        (await gate_client.buy(sign_payment(1, nonce))).status_code
        for nonce in range(payer_limit.MAX_UNPAID + 1)
    ]
    assert statuses == [503] * payer_limit.MAX_UNPAID + [429]
