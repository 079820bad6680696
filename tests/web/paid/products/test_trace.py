"""The paid payment trace behind the real gate, from a real chain, on both databases."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support import prices
from tests.support.http_service import configuration, open_service
from tests.support.schemas import check_answer
from tests.support.trace_world import NETWORK, World, encode_call

from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.transactions import Transactions
from tollgauge.clients.facilitator import Facilitator, FacilitatorSettings
from tollgauge.core.chain.trace.result import NETWORKS, Model
from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.sale.payment import Offer, decode
from tollgauge.core.sale.payment_state import State
from tollgauge.db.engine import Store
from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.demo.serving import serve
from tollgauge.monitor import discovery
from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger import payments, reconciliation
from tollgauge.store.ledger.attempts import StoredAnswer
from tollgauge.store.ledger.reconciliation import Key
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import ModelsResponse, models
from tollgauge.web.paid.gate import Gate
from tollgauge.web.paid.product import PaidDependencies
from tollgauge.web.paid.products import trace
from tollgauge.web.wire.traces import PaymentTraceResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOW = 1_795_000_000_000
PAY_TO = "0x" + "ab" * 20
USDC_OF_POLYGON = "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359"
UNKNOWN = "0x" + "ab" * 32
ANSWER = StoredAnswer(status=200, body=b"{}")


@dataclass
class TraceClient:
    """A chain, the trace's product over a store, and a buyer in front of the real gate."""

    world: World
    store: Store
    dependencies: PaidDependencies
    http: httpx.AsyncClient
    settled: list[str] = field(default_factory=list)
    nonces: int = 0

    async def buy(self, body: Any) -> httpx.Response:
        self.nonces += 1
        header = base64.b64encode(json.dumps(self._payment(self.nonces)).encode()).decode()
        return await self.http.post("/", json=body, headers={"PAYMENT-SIGNATURE": header})

    async def trace_transaction(self, tx_hash: str, **more: Any) -> dict[str, Any]:
        return await self.buy_trace({"txHash": tx_hash, **more})

    async def buy_trace(self, body: Any) -> dict[str, Any]:
        """Buy a trace and return its answer."""
        answer = await self.buy(body)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        check_answer(PaymentTraceResponse, document)
        return document

    def _payment(self, nonce: int) -> dict[str, Any]:
        signed = {
            "from": "0x" + "cd" * 20,
            "to": PAY_TO,
            "value": "11673",
            "validAfter": "0",
            "validBefore": str(NOW // 1000 + 300),
            "nonce": f"0x{nonce:064x}",
        }
        return {
            "x402Version": 2,
            "accepted": {"scheme": "exact", "network": NETWORK, "asset": USDC.lower()},
            "payload": {"signature": "0x" + "1b" * 65, "authorization": signed},
        }


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world() -> AsyncIterator[World]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        yield world


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def trace_client(world: World) -> AsyncIterator[TraceClient]:
    settled: list[str] = []

    async def facilitator(request: Request) -> Response:
        if request.url.path == "/verify":
            return JSONResponse({"isValid": True})
        settled.append(request.url.path)
        return JSONResponse({"success": True, "transaction": "0x" + "77" * 32, "network": NETWORK})

    async def answer(request: Request) -> Response:
        try:
            return await gate.serve(request, trace.PRODUCT.sale(trace_client.dependencies))
        except Problem as problem:
            return problem.response()

    played = [Route(f"/{verb}", facilitator, methods=["POST"]) for verb in ("verify", "settle")]
    transactions = Transactions({NETWORK: [Node(world.chain.rpc_url)]})
    async with open_service(configuration()) as running, serve(Starlette(routes=played)) as port:
        asked = Facilitator(FacilitatorSettings(url=f"http://127.0.0.1:{port}"))
        store = running.service.store
        gate = Gate(store=store, facilitator=asked, clock=lambda: NOW)
        dependencies = replace(running.service.server(), transactions=transactions)
        transport = httpx.ASGITransport(Starlette(routes=[Route("/", answer, methods=["POST"])]))
        async with httpx.AsyncClient(transport=transport, base_url="http://trust.test") as http:
            trace_client = TraceClient(world, store, dependencies, http, settled)
            yield trace_client
        await asked.close()
    await transactions.close()


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_payment_buys_the_trace_of_a_transaction(trace_client: TraceClient) -> None:
    signed = trace_client.world.sign("Transfer", trace_client.world.sender(3), 10_000)
    tx_hash = await trace_client.world.send(USDC, signed.call("transfer", "vrs"))
    unpaid = await trace_client.http.post("/", content=b"")
    assert unpaid.status_code == 402
    assert unpaid.json()["accepts"][0]["amount"] == "11673"
    trace = await trace_client.trace_transaction(tx_hash.upper().replace("0X", "0x"))
    assert trace["txHash"] == tx_hash
    assert (trace["status"], trace["network"], trace["chainId"]) == (
        "success",
        "base-mainnet",
        8453,
    )
    assert trace["payments"][0]["amountUsd"] == 0.01
    assert trace["payee"] == trace_client.world.sender(3).lower()
    assert trace["ledger"] == {"match": False}
    assert "hint" not in trace
    assert len(trace_client.settled) == trace_client.nonces


async def test_payer_and_nonce_find_the_payment(
    trace_client: TraceClient,
) -> None:
    signed = trace_client.world.sign("Transfer", trace_client.world.sender(3), 10_000)
    asked = {"payer": signed.payer, "nonce": "0x" + signed.nonce.hex()}
    authorization = {"payer": signed.payer.lower(), "nonce": asked["nonce"]}
    unused = await trace_client.buy_trace(asked)
    assert unused["authorization"] == authorization | {"used": False}
    assert (unused["txHash"], unused["status"], unused["payments"]) == (None, "not-found", [])
    assert "nothing was paid" in unused["reason"]
    tx_hash = await trace_client.world.send(USDC, signed.call("transfer", "vrs"))
    used = await trace_client.buy_trace(asked | {"network": "eip155:8453"})  # as payments name it
    assert used["authorization"] == authorization | {"used": True}
    assert used == await trace_client.trace_transaction(tx_hash) | {
        "authorization": used["authorization"]
    }


async def test_canceled_authorization_is_used_without_a_payment(
    trace_client: TraceClient,
) -> None:
    world = trace_client.world
    nonce = (0xCA << 200).to_bytes(32)
    signature = world.sign_cancel(nonce)
    await world.send(
        USDC,
        encode_call(
            "cancelAuthorization(address,bytes32,bytes)", world.payer.address, nonce, signature
        ),
    )
    asked = {"payer": world.payer.address, "nonce": "0x" + nonce.hex()}
    answer = await trace_client.buy_trace(asked)
    assert answer["authorization"]["used"]
    assert (answer["status"], answer["payments"]) == ("success", [])


async def test_transaction_without_a_payment_returns_a_reason(
    trace_client: TraceClient,
) -> None:
    data = encode_call("transfer(address,uint256)", trace_client.world.sender(3), 0)
    trace = await trace_client.trace_transaction(await trace_client.world.send(USDC, data))
    assert trace["payments"] == []
    assert trace["payer"] is None
    assert trace["token"] is None
    assert trace["reason"]


async def test_pending_transaction_returns_its_status(
    trace_client: TraceClient,
) -> None:
    signed = trace_client.world.sign("Transfer", trace_client.world.sender(3), 71)
    call = {
        "from": trace_client.world.sender(2),
        "to": USDC,
        "data": signed.call("transfer", "vrs"),
    }
    await trace_client.world.chain.rpc("evm_setAutomine", False)
    try:
        tx_hash = await trace_client.world.chain.rpc(
            "eth_sendTransaction", call | {"gas": "0x30d40"}
        )
        trace = await trace_client.trace_transaction(tx_hash)
    finally:
        await trace_client.world.chain.rpc("evm_setAutomine", True)
        await trace_client.world.chain.rpc("evm_mine")
    assert (trace["status"], trace["block"]) == ("pending", None)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "txHash"),
        ({"payer": PAY_TO}, "txHash"),
        ({"nonce": UNKNOWN}, "txHash"),
        ({"payer": "0x12", "nonce": UNKNOWN}, "payer"),
        ({"txHash": UNKNOWN, "payer": PAY_TO, "nonce": UNKNOWN}, "txHash"),
        ({"txHash": 5}, "txHash"),
        ({"txHash": "0x" + "a" * 63}, "txHash"),
        ({"txHash": "0x" + "g" * 64}, "txHash"),
        ({"txHash": UNKNOWN + "\n"}, "txHash"),
        ({"txHash": UNKNOWN, "network": "base"}, "network"),
        ({"txHash": UNKNOWN, "network": None}, "network"),
        ({"txHash": UNKNOWN, "network": ["base-mainnet"]}, "network"),
        ({"txHash": UNKNOWN, "network": "solana-mainnet"}, "txHash"),
        ({"txHash": "5" * 88, "network": "base-mainnet"}, "txHash"),
        ({"txHash": UNKNOWN, "model": "guess"}, "model"),
        ({"txHash": UNKNOWN, "model": 1}, "model"),
        ({"txHash": UNKNOWN, "hintResource": "http://example.com"}, "hintResource"),
        ({"txHash": UNKNOWN, "hintResource": "https://127.0.0.1/"}, "hintResource"),
        ([], ""),
    ],
)
async def test_invalid_trace_request_is_rejected_before_payment(
    trace_client: TraceClient, body: Any, path: str
) -> None:
    before = len(trace_client.settled)
    answer = await trace_client.buy(body)
    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == [path]
    assert len(trace_client.settled) == before
    assert len(await trace_client.store.reading(payments.latest, limit=1_000)) == before


async def test_network_without_a_node_is_rejected_before_payment(
    trace_client: TraceClient,
) -> None:
    before = len(trace_client.settled)
    for name in NETWORKS.keys() - {"base-mainnet"}:
        subject = "5" * 88 if name.startswith("solana") else UNKNOWN
        answer = await trace_client.buy({"txHash": subject, "network": name})
        assert problem(answer) == (503, "network-not-configured")
        assert "retry-after" in answer.headers
    assert len(trace_client.settled) == before
    assert len(await trace_client.store.reading(payments.latest, limit=1_000)) == before


async def test_unknown_hash_and_failed_node_are_not_charged(trace_client: TraceClient) -> None:
    answer = await trace_client.buy({"txHash": UNKNOWN})
    assert problem(answer) == (404, "unknown-transaction")
    dead = Transactions({NETWORK: [Node("http://127.0.0.1:9", timeout_s=1)]})
    dependencies = trace_client.dependencies
    trace_client.dependencies = replace(dependencies, transactions=dead)
    answer = await trace_client.buy({"txHash": UNKNOWN})
    trace_client.dependencies = dependencies
    assert problem(answer) == (503, "rpc-unavailable")
    assert answer.headers["Retry-After"]
    await dead.close()
    rows = await trace_client.store.reading(payments.latest, limit=1_000)
    rejected = {row.reason for row in rows if row.state is State.REJECTED}
    assert rejected == {"unknown-transaction", "rpc-unavailable"}


async def test_hint_compares_the_payment_with_the_advertised_terms(
    trace_client: TraceClient,
) -> None:
    payee = trace_client.world.sender(3)
    signed = trace_client.world.sign("Transfer", payee, 10_000)
    tx_hash = await trace_client.world.send(USDC, signed.call("transfer", "bytes"))
    url = "https://api.hinted.example.com/weather?q=1"
    resource = parse_resource(url)

    async def hint() -> dict[str, Any]:
        shown: dict[str, Any] = (await trace_client.trace_transaction(tx_hash, hintResource=url))[
            "hint"
        ]
        assert shown["resource"] == resource.url
        return shown

    assert (await hint())["payToMatches"] is None
    endpoint = await trace_client.store.writing(
        discovery.adopt, resource, source="request", now=NOW
    )
    for changes, expected in (
        (dict[str, Any](), (True, True)),
        ({"amount": 9_999}, (True, False)),
        ({"pay_to": PAY_TO}, (False, True)),
        (
            {"network": "eip155:137", "asset": "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359"},
            (True, True),
        ),
        ({"asset": "0x" + "0f" * 20}, (True, False)),
    ):
        terms = {
            "network": NETWORK,
            "asset": USDC.lower(),
            "amount": 10_000,
            "pay_to": payee.lower(),
        }
        quote = Quote(**(terms | changes))
        await trace_client.store.writing(endpoints.update, replace(endpoint, quote=quote))
        shown = await hint()
        assert (shown["payToMatches"], shown["amountMatches"]) == expected


async def test_payment_to_this_service_is_found_in_its_ledger(trace_client: TraceClient) -> None:
    signed = trace_client.world.sign("Transfer", trace_client.world.sender(3), 5_000)
    tx_hash = await trace_client.world.send(USDC, signed.call("transfer", "vrs"))
    document = {
        "x402Version": 2,
        "accepted": {"scheme": "exact", "network": NETWORK, "asset": USDC},
        "payload": {
            "signature": "0x" + signed.signature.hex(),
            "authorization": {
                "from": signed.payer,
                "to": signed.payee,
                "value": str(signed.value),
                "validAfter": "0",
                "validBefore": str(signed.before),
                "nonce": "0x" + signed.nonce.hex(),
            },
        },
    }
    header = base64.b64encode(json.dumps(document).encode()).decode()
    await claim_payment(trace_client.store, header)
    for model in set(Model) - {Model.BALANCE_CHANGES}:
        trace = await trace_client.trace_transaction(tx_hash, model=model.value)
        assert trace["ledger"] == {
            "match": True,
            "paymentId": decode(header).id,
            "route": prices.TRUST,
            "at": "2026-11-18T11:06:40Z",
            "status": "claimed",
        }


async def claim_payment(
    store: Store, header: str, *, route: str = prices.TRUST
) -> payments.LedgerRow:
    offer = Offer(
        route=route,
        resource="http://trust.test/",
        network=NETWORK,
        asset=USDC,
        amount=5_000,
        pay_to=PAY_TO,
        domain_name="USD Coin",
        domain_version="2",
    )
    claim = await store.writing(
        payments.claim,
        decode(header),
        offer,
        digest="d" * 64,
        owner="o",
        now=NOW,
        lease_ms=60_000,
    )
    return claim.row


@pytest.mark.asyncio(loop_scope="function")
async def test_ledger_is_searched_by_key_and_by_transaction(store: Store) -> None:
    """A match by key takes precedence over the transaction that a facilitator named."""
    rows = []
    for nonce in (1, 2):
        signed = {
            "from": "0x" + "cd" * 20,
            "to": PAY_TO,
            "value": "5000",
            "validAfter": "0",
            "validBefore": "9999999999",
            "nonce": f"0x{nonce:064x}",
        }
        document = {
            "x402Version": 2,
            "accepted": {"scheme": "exact", "network": NETWORK, "asset": USDC},
            "payload": {"signature": "0x" + "1b" * 65, "authorization": signed},
        }
        header = base64.b64encode(orjson.dumps(document)).decode()
        rows.append(await claim_payment(store, header, route=f"/v1/{nonce}"))
    for state in (State.SETTLING, State.SETTLED):
        moved = await store.writing(
            payments.move,
            rows[0],
            state,
            now=NOW,
            transaction=UNKNOWN,
            answer=ANSWER if state is State.SETTLING else None,
        )
        assert moved is not None
        rows[0] = moved
    others = [Key(asset=USDC, payer=PAY_TO, nonce=f"0x{number:064x}") for number in range(120)]
    second = Key(asset=USDC.lower(), payer=rows[1].payer, nonce=rows[1].nonce)

    async def route(keys: list[Key], **where: str) -> str | None:
        place = {"network": NETWORK, "transaction": UNKNOWN} | where
        payment = await store.reading(reconciliation.payment_of, keys, **place)
        return payment.route if payment else None

    assert await route([]) == "/v1/1"
    assert await route(others) == "/v1/1"
    assert await route([*others, second]) == "/v1/2"
    assert await route([], network="eip155:1") is None
    assert await route([second], network="eip155:1") is None
    assert await route(others, transaction="0x" + "00" * 32) is None


async def test_catalogue_of_models_is_free() -> None:
    answer = orjson.loads((await models()).body)
    check_answer(ModelsResponse, answer)
    ids = [model["id"] for model in answer["models"]]
    assert ids == ["receipt-logs", "calldata", "call-trace", "balance-changes"]
    assert [model["priceUsd"] for model in answer["models"]] == [0, 0, 0, 0]
    assert "debug_traceTransaction" in answer["models"][2]["needs"]
    assert answer["networks"] == list(NETWORKS)


async def test_trace_example_matches_its_schemas() -> None:
    assert trace.PRODUCT.request.read(trace.PRODUCT.example)
    check_answer(PaymentTraceResponse, trace.PRODUCT.answer)
