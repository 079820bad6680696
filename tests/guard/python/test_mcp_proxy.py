"""The proxy: a real MCP client and server with the guard between them."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from guard.cases import sample_bundle as sample
from guard.cases.sample_bundle import BASE, PAYEE, Row
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.support.command_server import command
from tests.support.guard_seller import OTHER_PAYEE, USDC
from x402 import x402Client
from x402.schemas import PaymentRequired

from tollgauge_guard import Guard, Policy
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.journal import Journal
from tollgauge_guard.mcp_gate import ToolGate
from tollgauge_guard.payment import State

URL = "https://tools.example.com/mcp"
RECORD: Row = ["proceed", "B", 84.0, [[BASE, "exact", 0, "5000"]], [], None, None]
Message = dict[str, Any]


@pytest.fixture
def guard(bundle_of: Callable[..., Bundle]) -> Guard:
    return Guard(bundles=FixedBundle(bundle_of({URL: RECORD})), policy=Policy(), journal=Journal())


@pytest.fixture
def gate(guard: Guard) -> ToolGate:
    return ToolGate(guard, URL)


def build_402(pay_to: str = PAYEE, amount: str = "5000") -> Message:
    offer: dict[str, object] = {
        "scheme": "exact",
        "network": BASE,
        "asset": USDC,
        "amount": amount,
        "payTo": pay_to,
    }
    offer |= {"maxTimeoutSeconds": 60, "extra": {"name": "USD Coin", "version": "2"}}
    return {"x402Version": 2, "resource": {"url": "mcp://tool/weather"}, "accepts": [offer]}


def call(number: int, payment: object = None, city: str = "Bern") -> Message:
    params: Message = {"name": "weather", "arguments": {"city": city}}
    if payment is not None:
        params["_meta"] = {"x402/payment": payment}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def answer(number: int, **result: object) -> Message:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def make_offer(gate: ToolGate, document: Message) -> None:
    """Let the client call without a payment and get a 402."""
    assert gate.to_server(call(1)) is None
    gate.to_client(answer(1, isError=True, structuredContent=document, content=[]))


async def pay(payer: x402Client, document: Message) -> Message:
    payload = await payer.create_payment_payload(PaymentRequired.model_validate(document))
    return payload.model_dump(by_alias=True, exclude_none=True)


def code(reply: object) -> str:
    assert isinstance(reply, dict)
    assert reply["result"]["isError"] is True
    return str(reply["result"]["structuredContent"]["code"])


async def test_payment_for_tool_s_offer_passes_and_is_recorded(
    gate: ToolGate, guard: Guard, payer: x402Client
) -> None:
    make_offer(gate, build_402())
    assert gate.to_server(call(2, await pay(payer, build_402()))) is None
    (entry,) = guard.unresolved()
    assert (entry.state, entry.pay_to) == (State.IN_FLIGHT, PAYEE)
    receipt = {"success": True, "transaction": "0xab", "network": BASE}
    gate.to_client(answer(2, content=[], _meta={"x402/payment-response": receipt}))
    (entry,) = guard.journal.payments()
    assert (entry.state, entry.settlement) == (State.DELIVERED, "0xab")


async def test_refused_payment_does_not_pass(
    gate: ToolGate, guard: Guard, payer: x402Client
) -> None:
    make_offer(gate, build_402(OTHER_PAYEE))
    assert code(gate.to_server(call(2, await pay(payer, build_402(OTHER_PAYEE))))) == (
        "payto-unknown"
    )
    make_offer(gate, build_402(amount="20000"))
    assert code(gate.to_server(call(3, await pay(payer, build_402(amount="20000"))))) == (
        "price-jump"
    )
    assert guard.journal.payments() == ()


async def test_payment_without_earlier_402_does_not_pass(
    gate: ToolGate, guard: Guard, payer: x402Client
) -> None:
    payment = await pay(payer, build_402())
    assert code(gate.to_server(call(1, payment))) == "resource-mismatch"
    make_offer(gate, build_402(amount="4000"))
    assert code(gate.to_server(call(2, payment))) == "resource-mismatch"
    assert guard.journal.payments() == ()


async def test_payment_with_differing_signed_fields_does_not_pass(
    gate: ToolGate, payer: x402Client
) -> None:
    make_offer(gate, build_402())
    payment = await pay(payer, build_402(OTHER_PAYEE))
    payment["accepted"]["payTo"] = PAYEE
    assert code(gate.to_server(call(2, payment))) == "signed-differs"


async def test_of_two_offers_with_same_price_the_paid_one_is_judged(
    gate: ToolGate, payer: x402Client
) -> None:
    both = build_402(OTHER_PAYEE)
    both["accepts"] = [*both["accepts"], *build_402()["accepts"]]
    make_offer(gate, both)
    assert code(gate.to_server(call(2, await pay(payer, build_402(OTHER_PAYEE))))) == (
        "payto-unknown"
    )
    assert gate.to_server(call(3, await pay(payer, build_402()))) is None


async def test_same_payment_passes_again_only_for_same_call(
    gate: ToolGate, guard: Guard, payer: x402Client
) -> None:
    make_offer(gate, build_402())
    payment = await pay(payer, build_402())
    assert gate.to_server(call(2, payment)) is None
    assert code(gate.to_server(call(3, payment))) == "payment-unresolved"  # it is on its way
    gate.to_client(answer(2, isError=True, content=[]))
    (entry,) = guard.unresolved()
    assert entry.state == State.OPEN
    assert gate.to_server(call(4, payment)) is None
    assert code(gate.to_server(call(5, payment, city="Rome"))) == "signed-differs"
    assert len(guard.journal.payments()) == 1


async def test_second_payment_for_a_call_without_an_answer_does_not_pass(
    gate: ToolGate, guard: Guard, payer: x402Client
) -> None:
    make_offer(gate, build_402())
    assert gate.to_server(call(2, await pay(payer, build_402()))) is None
    gate.to_client(answer(2, isError=True, content=[]))
    make_offer(gate, build_402())
    assert code(gate.to_server(call(3, await pay(payer, build_402())))) == "payment-unresolved"
    (entry,) = guard.unresolved()
    assert entry.state == State.OPEN


async def test_payment_that_passes_again_is_judged_again(
    gate: ToolGate, guard: Guard, payer: x402Client, bundle_of: Callable[..., Bundle]
) -> None:
    make_offer(gate, build_402())
    payment = await pay(payer, build_402())
    assert gate.to_server(call(2, payment)) is None
    gate.to_client(answer(2, isError=True, content=[]))
    avoided: Row = ["avoid", "F", *RECORD[2:]]
    object.__setattr__(guard, "bundles", FixedBundle(bundle_of({URL: avoided})))
    assert code(gate.to_server(call(3, payment))) == "avoid"


async def test_other_payment_with_same_nonce_does_not_pass(
    gate: ToolGate, guard: Guard, payer: x402Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("x402.mechanisms.evm.exact.client.create_nonce", lambda: "0x" + "5" * 64)
    make_offer(gate, build_402())
    assert gate.to_server(call(2, await pay(payer, build_402()))) is None
    dear = build_402(amount="900000")
    make_offer(gate, dear)
    assert code(gate.to_server(call(3, await pay(payer, dear)))) == "signed-differs"
    (entry,) = guard.journal.payments()
    assert entry.amount == 5_000


async def test_payment_that_its_owner_wrote_off_does_not_pass_again(
    gate: ToolGate, guard: Guard, payer: x402Client
) -> None:
    make_offer(gate, build_402())
    payment = await pay(payer, build_402())
    assert gate.to_server(call(2, payment)) is None
    gate.to_client(answer(2, isError=True, content=[]))
    guard.resolve(guard.journal.payments()[0].handle, write_off=True)
    assert code(gate.to_server(call(3, payment))) == "signed-differs"
    make_offer(gate, build_402())
    assert gate.to_server(call(4, await pay(payer, build_402()))) is None


async def test_ended_server_leaves_payment_unknown(
    gate: ToolGate, guard: Guard, payer: x402Client
) -> None:
    make_offer(gate, build_402())
    gate.to_server(call(2, await pay(payer, build_402())))
    gate.close()
    (entry,) = guard.unresolved()
    assert entry.state == State.OPEN


@pytest.mark.parametrize("payment", [1, [], {}, "x", "null", {"payload": {}}, True], ids=str)
def test_unreadable_payment_does_not_pass(gate: ToolGate, payment: object) -> None:
    assert code(gate.to_server(call(1, payment))) == "failed"


async def test_only_tool_calls_may_contain_a_payment(gate: ToolGate, payer: x402Client) -> None:
    make_offer(gate, build_402())
    message = call(2, await pay(payer, build_402())) | {"method": "prompts/get"}
    assert code(gate.to_server(message)) == "failed"
    assert (
        gate.to_server({"jsonrpc": "2.0", "id": 3, "method": "prompts/get", "params": {}}) is None
    )


async def test_error_after_payment_leaves_it_unknown(
    gate: ToolGate, guard: Guard, payer: x402Client
) -> None:
    make_offer(gate, build_402())
    gate.to_server(call(2, await pay(payer, build_402())))
    gate.to_client({"jsonrpc": "2.0", "id": 2, "error": {"code": -32_603, "message": "broken"}})
    (entry,) = guard.unresolved()
    assert entry.state == State.OPEN


def test_batch_does_not_pass(gate: ToolGate) -> None:
    reply = gate.to_server([call(1)])
    assert isinstance(reply, dict)
    assert reply["error"]["code"] == -32_600


async def test_client_and_server_work_through_the_command(
    tmp_path: Path, payer: x402Client
) -> None:
    bundle, log = tmp_path / "bundle.zst", tmp_path / "payments"
    bundle.write_bytes(body := sample.body({URL: RECORD}, int(time.time())))
    (tmp_path / "bundle.zst.jws").write_text(sample.signature(body))
    options = ["--bundle", str(bundle), "--key", json.dumps(sample.public_key()), "--url", URL]
    options += ["--journal", str(tmp_path / "journal.sqlite"), "--"]
    options += command("-m", "tests.support.guard_mcp_server", str(log))
    program, *arguments = command("-m", "tollgauge_guard.cli", "proxy", *options)
    started = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    async with Client(stdio_client(started, errlog=sys.stderr)) as client:

        async def weather(city: str) -> str:
            asked = await client.call_tool("weather", {"city": city})
            meta: Any = {"x402/payment": await pay(payer, asked.structured_content or {})}
            result = await client.call_tool("weather", {"city": city}, meta=meta)
            return result.model_dump_json()

        assert "sunny in Bern" in await weather("Bern")
        assert "payto-unknown" in await weather("Rome")
        assert "hello" in (await client.call_tool("hello")).model_dump_json()
    (entry,) = Journal(tmp_path / "journal.sqlite").payments()
    assert entry.state == State.DELIVERED
    assert len(log.read_text().splitlines()) == 1


def encode_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


HIDDEN: dict[str, Callable[[Message], object]] = {
    "object": lambda payment: payment,
    "JSON": json.dumps,
    "JSON in JSON": lambda payment: json.dumps(json.dumps(payment)),
    "base64": lambda payment: encode_text(json.dumps(payment)),
    "base64url": lambda payment: base64.urlsafe_b64encode(json.dumps(payment).encode()).decode(),
    "base64 in base64": lambda payment: encode_text(encode_text(json.dumps(payment))),
    "nested": lambda payment: [{"a": [json.dumps(payment)]}],
    "headers": lambda payment: {"headers": {"PAYMENT-SIGNATURE": encode_text(json.dumps(payment))}},
    "header in a text": lambda payment: (
        f'curl -H "PAYMENT-SIGNATURE: {encode_text(json.dumps(payment))}" https://api.example.com/'
    ),
    "JSON in a text": lambda payment: f"Send this: {json.dumps(payment)} and wait.",
    "percent-encoded": lambda payment: f"https://a.example/?p={quote(json.dumps(payment))}",
    "name of a member": lambda payment: {json.dumps(payment): 1},
    "without a version": lambda payment: {"payload": payment["payload"]},
    "only what was signed": lambda payment: payment["payload"],
    "data URL": lambda payment: f"data:application/json;base64,{encode_text(json.dumps(payment))}",
}


@pytest.mark.parametrize("form", HIDDEN)
async def test_payment_inside_the_arguments_does_not_pass(
    gate: ToolGate, payer: x402Client, form: str
) -> None:
    hidden = HIDDEN[form](await pay(payer, build_402()))
    arguments = {"city": "Bern", "note": hidden}
    message = call(9) | {"params": {"name": "weather", "arguments": arguments}}
    assert code(gate.to_server(message)) == "signed-differs"


async def test_payment_next_to_the_arguments_does_not_pass(
    gate: ToolGate, payer: x402Client
) -> None:
    payment = await pay(payer, build_402())
    call_with_meta: Message = {"name": "weather", "_meta": {"other/payment": payment}}
    for method, params in (
        ("tools/call", call_with_meta),
        ("tools/call", {"name": "weather", "arguments": {}, "more": payment}),
        ("prompts/get", {"name": "buy", "arguments": {"payment": json.dumps(payment)}}),
        (
            "completion/complete",
            {"argument": {"name": "a", "value": encode_text(json.dumps(payment))}},
        ),
    ):
        message = {"jsonrpc": "2.0", "id": 9, "method": method, "params": params}
        assert code(gate.to_server(message)) == "signed-differs"


def test_ordinary_arguments_pass(gate: ToolGate) -> None:
    arguments = {
        "x402Version": 2,
        "text": "payload " * 50,
        "image": "iVBORw0KGgo" * 50,
        "signature": "0x" + "ab" * 65,
        "transaction": {"hash": "0x" + "cd" * 32, "authorization": "Bearer " + "e" * 100},
        "query": json.dumps({"payload": {"text": "a"}, "signature": "b" * 200}),
        "url": "https://a.example/?next=" + "%2F" * 100,
    }
    message = {
        "jsonrpc": "2.0",
        "id": 9,
        "method": "tools/call",
        "params": {"name": "weather", "arguments": arguments},
    }
    assert gate.to_server(message) is None


async def test_model_reads_no_address_and_no_setting_that_loosens(
    gate: ToolGate, payer: x402Client
) -> None:
    document = build_402()
    document["accepts"][0]["payTo"] = OTHER_PAYEE
    make_offer(gate, document)
    reply = gate.to_server(call(2, await pay(payer, document)))
    assert code(reply) == "payto-unknown"
    text = json.dumps(reply).lower()
    assert OTHER_PAYEE.lower() not in text
    assert "trust" not in text
    assert "policy" not in text
