"""The gate while its facilitator accepts connections and never answers, on both databases."""

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
from tests.support.gate_world import World, sale, settled_response
from tests.support.signed_payments import sign_payment

from tollgauge.clients import facilitator as facilitator_client
from tollgauge.clients.facilitator import SILENT, Facilitator, FacilitatorSettings
from tollgauge.core.sale.payment_state import State
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.store.ledger import payments
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.gate import Gate

AT_ONCE = SILENT + 1


@dataclass
class SilentFacilitatorGate:
    """A gate whose facilitator does not respond to selected verbs until `speaks` is set."""

    store: Store
    http: httpx.AsyncClient
    facilitator: Facilitator
    speaks: asyncio.Event
    silent: set[str] = field(default_factory=set)

    async def buy(self, nonce: int) -> httpx.Response:
        headers = {"PAYMENT-SIGNATURE": sign_payment(nonce, nonce)}
        return await self.http.post("/v1/a", json={"q": 1}, headers=headers)

    async def states(self) -> list[State]:
        return [row.state for row in await self.store.reading(payments.latest, limit=100)]

    def has_stayed_silent(self) -> None:
        """Set the state after SILENT consecutive timeouts."""
        for _ in range(SILENT):
            self.facilitator._breakers["verify"].record_silence(asyncio.get_running_loop().time())


@pytest.fixture
async def client(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SilentFacilitatorGate]:
    monkeypatch.setattr(facilitator_client, "TRIAL_S", 1_000.0)  # no test waits for a trial
    async with open_gate(store) as opened_client:
        yield opened_client


@contextlib.asynccontextmanager
async def open_gate(store: Store, **waits: Any) -> AsyncIterator[SilentFacilitatorGate]:
    silent: set[str] = set()
    speaks = asyncio.Event()

    async def answer(request: Request) -> Response:
        verb = request.url.path.strip("/")
        if verb in silent:
            await speaks.wait()
        return JSONResponse({"isValid": True}) if verb == "verify" else settled_response()

    played = [Route(f"/{verb}", answer, methods=["POST"]) for verb in ("verify", "settle")]
    async with serve(Starlette(routes=played)) as port:
        settings = FacilitatorSettings(
            url=f"http://127.0.0.1:{port}", sales_at_once=AT_ONCE, **waits
        )
        facilitator, world = Facilitator(settings), World()
        gate = Gate(store=store, facilitator=facilitator, clock=world.clock)

        async def sell(request: Request) -> Response:
            try:
                return await gate.serve(request, sale(world, request.url.path))
            except Problem as problem:
                return problem.response()

        app = Starlette(routes=[Route("/v1/a", sell, methods=["POST"])])
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
            yield SilentFacilitatorGate(store, http, facilitator, speaks, silent)
        speaks.set()
        await facilitator.close()


@pytest.mark.parametrize("verb", ["verify", "settle"])
async def test_new_payment_is_rejected_before_its_claim_while_the_facilitator_is_silent(
    store: Store, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facilitator_client, "TRIAL_S", 1_000.0)
    waits = {"verify_timeout_s": 20, "settle_timeout_s": 20} | {f"{verb}_timeout_s": 0.3}
    async with open_gate(store, **waits) as client:
        client.silent.add(verb)
        waited = await asyncio.gather(*(client.buy(1 + number) for number in range(SILENT)))
        assert {answer.status_code for answer in waited} == {503}
        rows = await client.states()
        assert len(rows) == SILENT
        refused = await client.buy(99)
        assert refused.status_code == 503
        assert refused.json()["code"] == "facilitator-unavailable"
        assert int(refused.headers["Retry-After"]) >= 1
        assert await client.states() == rows


async def test_paid_answers_are_returned_while_the_facilitator_is_silent(
    client: SilentFacilitatorGate,
) -> None:
    bought = await client.buy(1)
    client.has_stayed_silent()
    assert (await client.buy(98)).status_code == 503
    again = await client.buy(1)
    assert (again.status_code, again.content) == (200, bought.content)


async def test_trial_call_detects_a_recovered_facilitator(
    client: SilentFacilitatorGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.has_stayed_silent()
    assert (await client.buy(96)).status_code == 503
    monkeypatch.setattr(client.facilitator._breakers["verify"], "_trial_at", 0.0)
    assert [(await client.buy(nonce)).status_code for nonce in (97, 98)] == [200, 200]


async def test_excess_sales_are_rejected_without_a_claim(
    client: SilentFacilitatorGate,
) -> None:
    client.silent.add("verify")
    waiting = [asyncio.create_task(client.buy(1 + number)) for number in range(AT_ONCE)]
    async with asyncio.timeout(9):
        while len(await client.states()) < AT_ONCE:  # noqa: ASYNC110 - the ledger has no event
            await asyncio.sleep(0.01)
    refused = await client.buy(99)
    assert (refused.status_code, refused.json()["code"]) == (503, "facilitator-unavailable")
    assert len(await client.states()) == AT_ONCE
    client.speaks.set()
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
