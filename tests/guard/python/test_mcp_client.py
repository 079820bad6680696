"""Paid tools of a real MCP server, called by the official client with a guard."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from guard.cases.sample_bundle import BASE, PAYEE, Row
from mcp import Client
from tests.support.guard_mcp_server import payment_required as ask
from tests.support.guard_mcp_server import server
from tests.support.guard_seller import OTHER_PAYEE
from x402 import x402Client
from x402.http.utils import decode_payment_signature_header

from tollgauge_guard import Code, Guard, PaymentRefusedError, Policy
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.journal import Journal
from tollgauge_guard.mcp_client import GuardedTools
from tollgauge_guard.mcp_messages import (
    McpPaymentError,
    call_key,
    payment_required,
    read_payment,
    reads_text,
)
from tollgauge_guard.payment import State

URL = "https://tools.example.com/mcp"


@pytest.fixture
def guard(bundle_of: Callable[..., Bundle]) -> Guard:
    record: Row = ["proceed", "B", 84.0, [[BASE, "exact", 0, "5000"]], [], None, None]
    return Guard(
        bundles=FixedBundle(bundle_of({f"{URL}#tool=weather": record})),
        policy=Policy(),
        journal=Journal(),
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "payments"


def connect(log: Path) -> Client:
    return Client(server(log))


def payments(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


async def test_paid_tool_is_paid_and_recorded(guard: Guard, payer: x402Client, log: Path) -> None:
    async with connect(log) as session:
        tools = GuardedTools(guard, payer, session, url=URL)
        result = await tools.call_tool("weather", {"city": "Bern"})
    assert "sunny in Bern" in result.model_dump_json()
    (entry,) = guard.journal.payments()
    (payment,) = payments(log)
    assert payment["payload"]["authorization"]["nonce"].lower() == entry.nonce
    assert (entry.state, entry.settlement) == (State.DELIVERED, "0x" + "cd" * 32)
    assert (entry.host, entry.resource) == ("tools.example.com", URL)


async def test_record_of_a_tool_counts_for_this_tool_only(
    guard: Guard, payer: x402Client, log: Path, bundle_of: Callable[..., Bundle]
) -> None:
    record: Row = ["avoid", "F", 4.0, [[BASE, "exact", 0, "5000"]], [], None, None]
    other = FixedBundle(bundle_of({f"{URL}#tool=other": record}))
    named = FixedBundle(bundle_of({f"{URL}#tool=weather": record}))
    async with connect(log) as session:
        tools = GuardedTools(guard, payer, session, url=URL)
        object.__setattr__(guard, "bundles", named)
        with pytest.raises(PaymentRefusedError) as refused:
            await tools.call_tool("weather", {"city": "Bern"})
        object.__setattr__(guard, "bundles", other)
        await tools.call_tool("weather", {"city": "Bern"})
    assert refused.value.code == Code.AVOID
    assert len(payments(log)) == 1


async def test_server_of_cloudflare_agents_gets_the_payment_as_a_text(
    guard: Guard, payer: x402Client, log: Path
) -> None:
    async with connect(log) as session:
        tools = GuardedTools(guard, payer, session, url=URL)
        assert "done" in (await tools.call_tool("worker")).model_dump_json()
        with pytest.raises(PaymentRefusedError) as refused:
            await tools.call_tool("worker", {"names": "another"})
    (payment,) = payments(log)
    (entry,) = guard.journal.payments()
    signed = decode_payment_signature_header(str(payment)).payload["authorization"]
    assert signed["nonce"].lower() == entry.nonce
    assert refused.value.code == Code.RESOURCE_MISMATCH


async def test_free_tool_costs_nothing(guard: Guard, payer: x402Client, log: Path) -> None:
    async with connect(log) as session:
        result = await GuardedTools(guard, payer, session, url=URL).call_tool("hello")
    assert "hello" in result.model_dump_json()
    assert guard.journal.payments() == ()


async def test_another_payee_is_refused(guard: Guard, payer: x402Client, log: Path) -> None:
    async with connect(log) as session:
        tools = GuardedTools(guard, payer, session, url=URL)
        with pytest.raises(PaymentRefusedError) as refused:
            await tools.call_tool("weather", {"city": "Rome"})
    assert refused.value.code == Code.PAYTO_UNKNOWN
    assert payments(log) == []
    assert guard.journal.payments() == ()


async def test_server_without_address_is_unknown(
    guard: Guard, payer: x402Client, log: Path
) -> None:
    async with connect(log) as session:
        await GuardedTools(guard, payer, session).call_tool("weather", {"city": "Rome"})
    (entry,) = guard.journal.payments()
    assert entry.resource == "mcp://tool/weather"
    assert len(payments(log)) == 1


async def test_offer_changed_by_later_hook_is_not_sent(
    guard: Guard, payer: x402Client, log: Path
) -> None:
    async with connect(log) as session:
        tools = GuardedTools(guard, payer, session, url=URL)
        payer.on_before_payment_creation(
            lambda context: setattr(context.selected_requirements, "pay_to", OTHER_PAYEE)
        )
        with pytest.raises(PaymentRefusedError) as refused:
            await tools.call_tool("weather", {"city": "Bern"})
    assert refused.value.code == Code.SIGNED_DIFFERS
    assert payments(log) == []


@pytest.mark.parametrize(
    "result",
    [
        *(None, {}, [], {"isError": True}, {"isError": True, "content": [1]}),
        {"isError": True, "content": [{"type": "text", "text": "["}]},
        {"isError": False, "structuredContent": {"x402Version": 2, "accepts": []}},
        {"isError": True, "structuredContent": {"x402Version": 2, "accepts": [{}]}},
        {"isError": True, "structuredContent": {"x402Version": {}, "accepts": []}},
    ],
    ids=str,
)
def test_another_result_asks_for_no_payment(result: object) -> None:
    assert payment_required(result) is None


def test_payment_is_a_text_only_if_the_402_is_in_meta() -> None:
    asked = ask(PAYEE).structured_content
    failed = {"x402Version": 2, "error": "PRICE_COMPUTE_FAILED"}
    for error, is_text in ((asked, True), (failed, False), ({}, False), ([], False)):
        result = {"isError": True, "_meta": {"x402/error": error}, "structuredContent": asked}
        assert payment_required(result) is not None
        assert reads_text(result) is is_text


@pytest.mark.parametrize("payment", [1, [], {}, "x", {"x402Version": 1}, {"payload": {}}], ids=str)
def test_unreadable_payment_is_an_error(payment: object) -> None:
    with pytest.raises(McpPaymentError):
        read_payment({"x402/payment": payment})


def test_another_tool_or_other_arguments_are_another_call_and_their_order_is_not() -> None:
    calls = [
        call_key(URL, "weather", {"city": "Bern", "day": 1}),
        call_key(URL, "weather", {"city": "Bern", "day": 2}),
        call_key(URL, "forecast", {"city": "Bern", "day": 1}),
        call_key("https://other.example.com/mcp", "weather", {"city": "Bern", "day": 1}),
    ]
    assert len(set(calls)) == 4
    assert call_key(URL, "weather", {"day": 1, "city": "Bern"}) == calls[0]
