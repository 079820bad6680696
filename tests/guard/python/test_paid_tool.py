"""The paying tool of the adapters, without a framework."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from guard.cases.sample_bundle import Row
from pydantic import ValidationError
from tests.support.guard_seller import Answer, Seller
from x402 import x402Client, x402ClientSync

from tollgauge_guard import MEMORY, GuardError, Policy, Unknown, guarded
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.paid_tool import MAX_TEXT, PaidRequest, PaidTool, refuse_other_payers

HOSTILE = Path(__file__).parents[3] / "guard/adapters/hostile.json"


@pytest.fixture
async def tools(
    seller: Seller,
    payer: x402Client,
    payer_sync: x402ClientSync,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
) -> AsyncIterator[list[PaidTool]]:
    records = {
        f"{seller.url}/good": known(),
        f"{seller.url}/bad": known("avoid"),
        f"{seller.url}/dear": known(),
    }
    bundle = FixedBundle(bundle_of(records))
    policy = Policy(unknown=Unknown.REFUSE, max_call=5_000)
    options: dict[str, Any] = {"bundle": bundle, "journal": MEMORY, "policy": policy}
    leaving = httpx.AsyncHTTPTransport(verify=False)
    async with guarded(payer, transport=leaving, **options) as http:
        with guarded(payer_sync, **options) as session:
            yield [PaidTool(http), PaidTool(session)]


async def test_request_is_paid_and_described(seller: Seller, tools: list[PaidTool]) -> None:
    for tool in tools:
        result = await tool.call(PaidRequest(url=f"{seller.url}/good", method="post", body="{}"))
        (payment,) = tool.http.guard.journal.payments()
        assert result["status"] == 200
        assert json.loads(str(result["body"])) == {"ok": True}
        assert result["payment"] == payment.handle
        assert seller.calls[-1].body == b"{}"


async def test_no_argument_of_a_model_leads_to_a_payment(
    seller: Seller, tools: list[PaidTool]
) -> None:
    seller.ask = lambda offer: offer.update(
        amount="2000000" if seller.calls[-1].path.startswith("/dear") else "5000"
    )
    calls = json.loads(HOSTILE.read_text().replace("ORIGIN", seller.url))
    assert len(calls) == 200
    for tool in tools:
        policy = tool.http.guard.policy
        for arguments in calls:
            try:
                request = PaidRequest.model_validate(arguments)
            except ValidationError:
                continue
            result = json.dumps(await tool.call(request))
            assert "0x" not in result, arguments
            assert "remedy" not in result, arguments
        assert tool.http.guard.journal.payments() == ()
        assert tool.http.guard.policy is policy
    assert seller.payments == []


async def test_unresolved_payment_is_data(seller: Seller, tools: list[PaidTool]) -> None:
    seller.answer = lambda _call: Answer(is_cut=True)
    for number, tool in enumerate(tools):
        request = PaidRequest(url=f"{seller.url}/good?n={number}")
        seller.ask = lambda _offer: None
        first = await tool.call(request)
        (payment,) = tool.http.guard.journal.payments()
        assert first["error"] == "request-failed"
        assert first["payment"] == payment.handle
        seller.ask = lambda offer: offer.update(amount="4000")
        second = await tool.call(request)
        assert second["code"] == "payment-unresolved"
        assert second["handle"] == payment.handle
        assert second["state"] == "open"


async def test_long_body_is_cut_for_the_model(seller: Seller, tools: list[PaidTool]) -> None:
    seller.answer = lambda _call: Answer(body=b"x" * (MAX_TEXT + 1))
    result = await tools[0].call(PaidRequest(url=f"{seller.url}/good"))
    assert (len(str(result["body"])), result["truncated"]) == (MAX_TEXT, True)


async def test_synchronous_call_needs_a_synchronous_client(tools: list[PaidTool]) -> None:
    with pytest.raises(GuardError, match="synchronous client"):
        tools[0].call_sync(PaidRequest(url="https://api.example.com/"))


def test_client_without_a_guard_is_rejected() -> None:
    with pytest.raises(GuardError, match="no guard"):
        PaidTool(httpx.AsyncClient)


@pytest.mark.parametrize("name", ["x402", "make_http_request_with_x402", "pay_402", "x402Fetch"])
def test_another_tool_that_pays_is_rejected(name: str) -> None:
    with pytest.raises(GuardError, match="without the guard"):
        refuse_other_payers([SimpleNamespace(name=name)])


def test_paying_tool_is_registered_once() -> None:
    other = SimpleNamespace(name="search")
    assert refuse_other_payers([other]) == [other]
    with pytest.raises(GuardError, match="registered already"):
        refuse_other_payers([SimpleNamespace(name="paid_request")])
