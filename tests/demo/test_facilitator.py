"""The demo's facilitator settles real payments of the official client on a real chain."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from eth_account import Account
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support.paying_clients import node
from tests.support.token_balance import at_snapshot, balance
from x402 import x402Client
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.schemas import PaymentRequired

from tollgauge.clients.peer import public_authorities
from tollgauge.clients.spending import PurchaseError
from tollgauge.core.sale.payment import REPORT_PATH
from tollgauge.demo.buyer import buy
from tollgauge.demo.chain import Chain, run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.demo.facilitator import run_facilitator
from tollgauge.demo.seller import payee
from tollgauge.demo.serving import serve

pytestmark = pytest.mark.asyncio(loop_scope="module")
_ROOT = Path(__file__).parents[2]
_PAYEE = payee("the service under test")
_PRICE = 5_000
_FUNDS = 1_000_000


@dataclass(frozen=True)
class Counter:
    """A chain, a facilitator for `_PAYEE`, and a payer with one dollar."""

    chain: Chain
    url: str
    http: httpx.AsyncClient

    async def ask(self, what: str, payment: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.post(f"{self.url}/{what}", json=payment)
        assert answer.status_code == 200
        return dict(answer.json())

    async def payer_has(self) -> int:
        return await balance(self.chain, self.chain.accounts[1].address)

    async def payee_has(self) -> int:
        return await balance(self.chain, _PAYEE)

    async def count_sent(self) -> int:
        address = self.chain.accounts[0].address
        return int(await self.chain.rpc("eth_getTransactionCount", address, "latest"), 16)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def chain() -> AsyncIterator[Chain]:
    async with run_chain() as chain:
        await chain.mint(chain.accounts[1].address, _FUNDS)
        yield chain


@pytest_asyncio.fixture(loop_scope="module")
async def counter(chain: Chain) -> AsyncIterator[Counter]:
    facilitator = run_facilitator(
        rpc_url=chain.rpc_url, key=chain.accounts[0].key, payees=frozenset({_PAYEE})
    )
    async with (
        at_snapshot(chain),
        facilitator as url,
        httpx.AsyncClient(timeout=30, trust_env=False, verify=public_authorities()) as http,
    ):
        yield Counter(chain, url, http)


def _requirements(pay_to: str = _PAYEE, asset: str = USDC) -> dict[str, Any]:
    return {
        "scheme": "exact",
        "network": "eip155:8453",
        "amount": str(_PRICE),
        "asset": asset,
        "payTo": pay_to,
        "maxTimeoutSeconds": 60,
        "extra": {"name": "USD Coin", "version": "2"},
    }


def _challenge(wanted: dict[str, Any]) -> dict[str, Any]:
    resource = {"url": "https://tollgauge.example/v1/x402-trust"}
    return {"x402Version": 2, "resource": resource, "accepts": [wanted]}


async def _payment(key: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return a resource server's request, with a payload signed by the official client."""
    client = x402Client()
    client.set_spend_controls(False)
    register_exact_evm_client(client, EthAccountSigner(Account.from_key(key)))
    required = PaymentRequired.model_validate(_challenge(wanted))
    payload = await client.create_payment_payload(required)
    return {
        "x402Version": 2,
        "paymentPayload": payload.model_dump(by_alias=True, exclude_none=True),
        "paymentRequirements": wanted,
    }


async def test_lists_supported_payments(counter: Counter) -> None:
    answer = (await counter.http.get(f"{counter.url}/supported")).json()
    kinds = [(kind["x402Version"], kind["scheme"], kind["network"]) for kind in answer["kinds"]]
    assert (2, "exact", "eip155:8453") in kinds
    assert counter.chain.accounts[0].address in answer["signers"]["eip155:*"]


async def test_verified_and_settled_payment_moves_exactly_the_price(counter: Counter) -> None:
    payment = await _payment(counter.chain.accounts[1].key, _requirements())
    verdict = await counter.ask("verify", payment)
    assert verdict["isValid"] is True
    assert await counter.payee_has() == 0
    settled = await counter.ask("settle", payment)
    assert settled["success"] is True
    assert settled["payer"] == counter.chain.accounts[1].address
    assert await counter.payee_has() == _PRICE
    assert await counter.payer_has() == _FUNDS - _PRICE
    receipt = await counter.chain.rpc("eth_getTransactionReceipt", settled["transaction"])
    assert receipt["status"] == "0x1"


async def test_payment_is_settled_once_and_costs_gas_once(counter: Counter) -> None:
    payment = await _payment(counter.chain.accounts[1].key, _requirements())
    answers = await asyncio.gather(*(counter.ask("settle", payment) for _ in range(5)))
    assert sorted(answer["success"] for answer in answers) == [False] * 4 + [True]
    reasons = {answer["errorReason"] for answer in answers if not answer["success"]}
    assert reasons == {"duplicate_settlement"}
    assert await counter.payee_has() == _PRICE
    assert await counter.count_sent() == 1


async def test_concurrent_payments_are_all_settled(counter: Counter) -> None:
    key = counter.chain.accounts[1].key
    payments = [await _payment(key, _requirements()) for _ in range(8)]
    answers = await asyncio.gather(*(counter.ask("settle", payment) for payment in payments))
    assert all(answer["success"] for answer in answers)
    assert len({answer["transaction"] for answer in answers}) == 8
    assert await counter.payee_has() == 8 * _PRICE


@pytest.mark.parametrize("what", ["verify", "settle"])
@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (_requirements(pay_to=payee("a stranger")), "pay_to_not_allowed"),
        (_requirements(asset="0x" + "22" * 20), "unsupported_asset"),
    ],
)
async def test_pays_no_gas_for_other_payments(
    counter: Counter, what: str, wanted: dict[str, Any], reason: str
) -> None:
    answer = await counter.ask(what, await _payment(counter.chain.accounts[1].key, wanted))
    assert reason in (answer.get("invalidReason"), answer.get("errorReason"))
    assert await counter.count_sent() == 0


async def test_forged_signature_is_not_valid_and_not_settled(counter: Counter) -> None:
    payment = await _payment(counter.chain.accounts[1].key, _requirements())
    payment["paymentPayload"]["payload"]["signature"] = "0x" + "11" * 64 + "1b"
    assert (await counter.ask("verify", payment))["isValid"] is False
    assert (await counter.ask("settle", payment))["success"] is False
    assert await counter.payee_has() == 0


async def test_rejected_payment_logs_no_warning(
    counter: Counter, log_records: list[logging.LogRecord]
) -> None:
    payment = await _payment(counter.chain.accounts[1].key, _requirements())
    for signature in ("0x" + "11" * 64 + "1b", "0x" + "00" * 65, "0x" + "ff" * 65):
        payment["paymentPayload"]["payload"]["signature"] = signature
        assert (await counter.ask("verify", payment))["isValid"] is False
        assert (await counter.ask("settle", payment))["success"] is False
    poor = await _payment(counter.chain.accounts[2].key, _requirements())
    assert (await counter.ask("settle", poor))["success"] is False
    assert [record for record in log_records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("logger", ["x402.signers", "x402.mechanisms.evm.exact.facilitator"])
async def test_unreachable_chain_is_still_logged(
    counter: Counter, log_records: list[logging.LogRecord], logger: str
) -> None:
    gone = ConnectionError("connection refused")
    logging.getLogger(logger).warning("settle failed revert=%s", gone)
    logging.getLogger(logger).error("verification error", exc_info=gone)
    assert len([record for record in log_records if record.name == logger]) == 2


async def test_payer_without_funds_is_rejected(counter: Counter) -> None:
    payment = await _payment(counter.chain.accounts[2].key, _requirements())
    assert (await counter.ask("verify", payment))["isValid"] is False


async def test_failed_transaction_leaves_no_nonce_gap(counter: Counter) -> None:
    key, gas_payer = counter.chain.accounts[1].key, counter.chain.accounts[0].address
    payment = await _payment(key, _requirements())
    rich = await counter.chain.rpc("eth_getBalance", gas_payer, "latest")
    await counter.chain.rpc("anvil_setBalance", gas_payer, "0x0")
    assert (await counter.ask("settle", payment))["success"] is False
    await counter.chain.rpc("anvil_setBalance", gas_payer, rich)
    assert (await counter.ask("settle", payment))["success"] is True
    assert (await counter.ask("settle", await _payment(key, _requirements())))["success"] is True
    assert await counter.payee_has() == 2 * _PRICE


async def test_malformed_request_is_400_and_the_next_request_is_served(counter: Counter) -> None:
    deep, long = b"[" * 60_000, b" " * 70_000
    shapeless = b'{"paymentPayload": 1, "paymentRequirements": 2}'
    for what in ("verify", "settle"):
        for body in (b"", b"[]", b"{}", b"\xff", shapeless, deep, long):
            answer = await counter.http.post(f"{counter.url}/{what}", content=body)
            assert (answer.status_code, body[:20]) == (400, body[:20])
    assert (await counter.http.get(f"{counter.url}/supported")).status_code == 200


async def test_evm_libraries_do_not_raise_the_recursion_limit_too_far() -> None:
    assert sys.getrecursionlimit() <= 3_000


async def test_buyer_buys_a_report_with_the_official_client(counter: Counter) -> None:
    async with serve(_shop(counter)) as port:
        bought = await buy(
            f"http://127.0.0.1:{port}/",
            "https://weather.example/v1/current",
            account=counter.chain.accounts[1],
        )
    assert bought.report == {"resource": "https://weather.example/v1/current"}
    assert bought.amount == _PRICE
    assert bought.payer == counter.chain.accounts[1].address
    assert await counter.payee_has() == _PRICE
    receipt = await counter.chain.rpc("eth_getTransactionReceipt", bought.transaction)
    assert receipt["status"] == "0x1"


@pytest.mark.node
async def test_official_typescript_client_can_pay(counter: Counter) -> None:
    payer = counter.chain.accounts[1]
    async with serve(_shop(counter)) as port:
        script = str(_ROOT / "scripts/buy-report.mjs")
        process = await asyncio.create_subprocess_exec(
            node(), script, f"http://127.0.0.1:{port}", "https://x.example/", payer.key, stdout=PIPE
        )
        printed, _ = await process.communicate()
    bought = json.loads(printed)
    assert (bought["status"], bought["receipt"]["payer"]) == (200, payer.address)
    assert await counter.payee_has() == _PRICE


async def test_failed_purchase_raises_purchase_error(counter: Counter) -> None:
    async with serve(Starlette()) as port:
        with pytest.raises(PurchaseError, match="returned 404"):
            await buy(f"http://127.0.0.1:{port}", "x", account=counter.chain.accounts[1])


def _shop(counter: Counter) -> Starlette:
    """A minimal x402 seller: a challenge, and the response once the facilitator has settled."""

    async def sell(request: Request) -> Response:
        signature = request.headers.get("payment-signature")
        if signature is None:
            return Response(status_code=402, headers={"payment-required": _b64(_CHALLENGE)})
        payment = {
            "x402Version": 2,
            "paymentPayload": json.loads(base64.b64decode(signature)),
            "paymentRequirements": _requirements(),
        }
        settled = await counter.ask("settle", payment)
        return JSONResponse(await request.json(), headers={"payment-response": _b64(settled)})

    return Starlette(routes=[Route(REPORT_PATH, sell, methods=["POST"])])


_CHALLENGE = _challenge(_requirements())


def _b64(value: dict[str, Any]) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()
