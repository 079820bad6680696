"""Proofs of one authorization from nodes that lag, lie or limit queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.support.ledger_chain import NETWORK, PAY_TO, PRICE, Block, Use, block_logs, word
from tests.support.ledger_world import OTHER, LedgerWorld, as_stream

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.rpc import Node, RpcError, RpcUnavailable
from tollgauge.core.sale.payment import Authorization
from tollgauge.core.sale.payment_state import Proof

Bend = Callable[[str, list[Any], dict[str, Any]], dict[str, Any]]


def authorization_of(world: LedgerWorld) -> Authorization:
    return Authorization(
        network=NETWORK,
        asset="0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
        payer="0x" + "cd" * 20,
        nonce=world.nonce,
        to=PAY_TO,
        value=PRICE,
        since_s=world.now_s,
    )


def prover(world: LedgerWorld, bend: Bend | None = None) -> Prover:
    """Return a prover on a node of the world whose replies a test may change."""

    async def handle(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        answer = world.answer_rpc(asked["method"], asked["params"])
        if bend is not None:
            answer = bend(asked["method"], asked["params"], answer)
        reply = {"jsonrpc": "2.0", "id": asked["id"]} | answer
        return as_stream(httpx.Response(200, json=reply))

    return Prover([Node("http://node", transport=httpx.MockTransport(handle))])


async def test_used_authorization_with_its_transfer_is_paid() -> None:
    world = LedgerWorld()
    transaction = world.broadcast()
    answer = await prover(world).proof(authorization_of(world))
    assert (answer.proof, answer.transaction) == (Proof.PAID, transaction)
    assert answer.at_s == world.now_s
    hinted = await prover(world).proof(authorization_of(world), hint=transaction)
    assert (hinted.proof, hinted.transaction) == (Proof.PAID, transaction)


async def test_unrelated_transaction_hint_proves_nothing() -> None:
    world = LedgerWorld()
    assert (
        await prover(world).proof(authorization_of(world), hint=world.foreign)
    ).proof is Proof.UNUSED
    transaction = world.broadcast()
    answer = await prover(world).proof(authorization_of(world), hint=world.foreign)
    assert (answer.proof, answer.transaction) == (Proof.PAID, transaction)


async def test_one_transfer_cannot_pay_for_two_authorizations() -> None:
    """A payer uses two nonces in one transaction, and only one of the transfers goes to the
    service.
    """
    world, transaction, ours = LedgerWorld(), word(99), word(123456)
    world.chain.mine(
        world.now_s, Use(ours, PAY_TO, transaction), Use(world.nonce, OTHER, transaction)
    )
    asked = authorization_of(world)
    for hint in (None, transaction):
        assert (
            await prover(world).proof(replace(asked, nonce=ours), hint=hint)
        ).proof is Proof.PAID
        assert (await prover(world).proof(asked, hint=hint)).proof is Proof.OTHER


@pytest.mark.parametrize("change", [{"value": PRICE + 1}, {"to": OTHER}])
async def test_transfer_of_other_terms_is_not_paid(change: dict[str, Any]) -> None:
    world = LedgerWorld()
    world.broadcast()
    answer = await prover(world).proof(replace(authorization_of(world), **change))
    assert answer.proof is Proof.OTHER


async def test_cancelled_authorization_is_not_paid() -> None:
    world = LedgerWorld()
    world.chain.cancel(world.nonce, at_s=world.now_s)
    assert (await prover(world).proof(authorization_of(world))).proof is Proof.CANCELLED


async def test_unused_authorization_is_reported_with_the_time_of_the_node() -> None:
    world = LedgerWorld()
    world.tick(500)
    world.broadcast()
    world.node_lag = 2
    answer = await prover(world).proof(authorization_of(world))
    assert answer.proof is Proof.UNUSED
    assert answer.head_s == world.now_s - 901 - 500


async def test_lagging_node_behind_a_load_balancer_is_detected() -> None:
    """The head comes from one node; the state of that block is queried from a node that lacks
    it.
    """
    world = LedgerWorld()
    world.tick(10)

    def bend(method: str, params: list[Any], answer: dict[str, Any]) -> dict[str, Any]:
        if method == "eth_getBlockByNumber":
            head = {"number": hex(50), "hash": word(1), "timestamp": hex(world.now_s + 9_999)}
            return {"result": head}
        return answer

    with pytest.raises(RpcError):
        await prover(world, bend).proof(authorization_of(world))


async def test_missing_logs_leave_the_outcome_unknown() -> None:
    world = LedgerWorld()
    world.broadcast()

    def bend(method: str, params: list[Any], answer: dict[str, Any]) -> dict[str, Any]:
        return {"result": []} if method == "eth_getLogs" else answer

    with pytest.raises(RpcUnavailable, match="no log"):
        await prover(world, bend).proof(authorization_of(world))


async def test_unrequested_log_is_not_believed() -> None:
    world = LedgerWorld()
    world.broadcast()
    other = block_logs(Block(3, word(3), world.now_s, (Use(word(5), PAY_TO, word(6)),)))

    def bend(method: str, params: list[Any], answer: dict[str, Any]) -> dict[str, Any]:
        return {"result": other} if method == "eth_getLogs" else answer

    with pytest.raises(RpcUnavailable, match="were not requested"):
        await prover(world, bend).proof(authorization_of(world))


async def test_node_with_a_range_limit_is_queried_in_small_ranges() -> None:
    world = LedgerWorld()
    for _ in range(40):
        world.tick(2)
    transaction = world.broadcast()

    def bend(method: str, params: list[Any], answer: dict[str, Any]) -> dict[str, Any]:
        if method == "eth_getLogs":
            width = int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16)
            if width >= 5:
                return {"error": {"code": -32005, "message": "limited to a 5 block range"}}
        return answer

    proven = await prover(world, bend).proof(authorization_of(world))
    assert (proven.proof, proven.transaction) == (Proof.PAID, transaction)


async def test_node_of_another_chain_is_not_believed() -> None:
    world = LedgerWorld()

    def bend(method: str, params: list[Any], answer: dict[str, Any]) -> dict[str, Any]:
        return {"result": hex(84532)} if method == "eth_chainId" else answer

    with pytest.raises(RpcUnavailable, match="not a node of"):
        await prover(world, bend).proof(authorization_of(world))


@pytest.mark.parametrize(
    "result", ["0x", "0x1", None, 1, [], {}, "0x" + "ff" * 32, "x" * 66, {"logs": [1]}]
)
@pytest.mark.parametrize(
    "method",
    ["eth_chainId", "eth_getBlockByNumber", "eth_call", "eth_getLogs", "eth_getTransactionReceipt"],
)
async def test_malformed_reply_is_an_rpc_error_or_changes_nothing(
    method: str, result: object
) -> None:
    world = LedgerWorld()
    transaction = world.broadcast()

    def bend(asked: str, params: list[Any], answer: dict[str, Any]) -> dict[str, Any]:
        return {"result": result} if asked == method else answer

    for hint in (None, transaction):
        try:
            proven = await prover(world, bend).proof(authorization_of(world), hint=hint)
        except RpcError:
            continue
        assert proven.proof is Proof.PAID


async def test_next_node_is_queried_if_the_first_does_not_answer() -> None:
    world = LedgerWorld()
    world.broadcast()
    good = prover(world)._nodes[0]

    async def return_nothing(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("down")

    silent = Node("http://node", transport=httpx.MockTransport(return_nothing))
    assert (await Prover([silent, good]).proof(authorization_of(world))).proof is Proof.PAID
