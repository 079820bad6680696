"""Payments through the Permit2 proxies on a local chain, by the index and by the trace.

The payloads are signed by the official Python clients. The contracts are stand-ins made from the
clients' ABI (tests/support/wrappers), at the addresses of the real ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
from tests.support.indexed_world import index_world
from tests.support.trace_world import NETWORK, World, encode_call
from x402.mechanisms.evm import constants
from x402.mechanisms.evm.exact.client import ExactEvmScheme
from x402.mechanisms.evm.upto.client import UptoEvmScheme
from x402.schemas import PaymentRequirements

from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.transactions import Transactions
from tollgauge.core.chain.trace.result import Model
from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.web.wire.traces import trace_json

PERMIT = "((address,uint256),uint256,uint256)"
EXACT_SETTLE = f"settle({PERMIT},address,(address,uint256),bytes)"
EXACT_WITH_PERMIT = (
    f"settleWithPermit((uint256,uint256,bytes32,bytes32,uint8),{PERMIT},address,(address,uint256),"
    "bytes)"
)
UPTO_SETTLE = f"settle({PERMIT},uint256,address,(address,address,uint256),bytes)"
STAND_INS = {
    constants.PERMIT2_ADDRESS: "Permit2StandIn",
    constants.X402_EXACT_PERMIT2_PROXY_ADDRESS: "ExactProxyStandIn",
    constants.X402_UPTO_PERMIT2_PROXY_ADDRESS: "UptoProxyStandIn",
}
FACILITATOR, SELLER, PAYER = 2, 3, 1


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        for address, name in STAND_INS.items():
            code = await chain.rpc("eth_getCode", world.places[name], "latest")
            await chain.rpc("anvil_setCode", address, code)
        approval = encode_call("approve(address,uint256)", constants.PERMIT2_ADDRESS, 2**255)
        await world.send(USDC, approval, sender=PAYER)
        yield world


def sign(world: World, scheme: str, amount: int) -> dict[str, Any]:
    """Return the payload that the official client signs."""
    requirements = PaymentRequirements(
        scheme=scheme,
        network=NETWORK,
        asset=USDC,
        amount=str(amount),
        pay_to=world.sender(SELLER),
        max_timeout_seconds=3_600,
        extra={
            "name": "USD Coin",
            "version": "2",
            "assetTransferMethod": "permit2",
            "facilitatorAddress": world.sender(FACILITATOR),
        },
    )
    client = UptoEvmScheme if scheme == "upto" else ExactEvmScheme
    return dict(client(world.payer).create_payment_payload(requirements))


def arguments(payload: dict[str, Any]) -> tuple[Any, ...]:
    """Return permit, owner, witness and signature for a proxy."""
    signed = payload["permit2Authorization"]
    permitted = (signed["permitted"]["token"], int(signed["permitted"]["amount"]))
    witness = signed["witness"]
    named = (witness["to"], *filter(None, [witness.get("facilitator")]))
    return (
        (permitted, int(signed["nonce"]), int(signed["deadline"])),
        signed["from"],
        (*named, int(witness["validAfter"])),
        bytes.fromhex(payload["signature"][2:]),
    )


async def pay_exact(world: World, amount: int, *, with_permit: bool = False) -> str:
    values = arguments(sign(world, "exact", amount))
    data = (
        encode_call(EXACT_WITH_PERMIT, (amount, 2**40, bytes(32), bytes(32), 27), *values)
        if with_permit
        else encode_call(EXACT_SETTLE, *values)
    )
    return await world.send(constants.X402_EXACT_PERMIT2_PROXY_ADDRESS, data)


async def pay_upto(world: World, most: int, amount: int) -> str:
    permit, *rest = arguments(sign(world, "upto", most))
    data = encode_call(UPTO_SETTLE, permit, amount, *rest)
    return await world.send(constants.X402_UPTO_PERMIT2_PROXY_ADDRESS, data)


async def test_index_counts_settled_amounts_and_no_decoys(
    world: World, tmp_path: Path, empty_sqlite: Path
) -> None:
    payments = {
        await pay_exact(world, 1_000): 1_000,
        await pay_exact(world, 2_000, with_permit=True): 2_000,
        await pay_upto(world, 9_000, 3_000): 3_000,
    }
    reverted = await pay_upto(world, 100, 5_000)
    gift = encode_call("transfer(address,uint256)", world.sender(SELLER), 777)
    await world.send(USDC, gift, sender=PAYER)
    refund = encode_call("transfer(address,uint256)", world.payer.address, 400)
    returned = await world.send(USDC, refund, sender=SELLER)
    assert (await world.receipt(reverted))["status"] == "0x0"
    rows = await index_world(world, (world.sender(SELLER),), empty_sqlite, tmp_path)
    seen = {(row.transaction, row.incoming, row.value) for row in rows}
    assert seen == {
        *((tx, True, value) for tx, value in payments.items()),
        (returned, False, 400),
    }


async def test_trace_shows_form_method_and_terms(world: World) -> None:
    transactions = Transactions({NETWORK: (Node(world.chain.rpc_url),)})
    signed = arguments(sign(world, "upto", 9_000))
    data = encode_call(UPTO_SETTLE, signed[0], 3_000, *signed[1:])
    sent = {
        "settle": await world.send(constants.X402_UPTO_PERMIT2_PROXY_ADDRESS, data),
        "settleWithPermit": await pay_exact(world, 2_000, with_permit=True),
    }
    try:
        upto, exact = [trace_json(await transactions.trace(NETWORK, tx)) for tx in sent.values()]
        logs_only = await transactions.trace(NETWORK, sent["settle"], Model.RECEIPT_LOGS)
        calls = await transactions.trace(NETWORK, sent["settle"], Model.CALL_TRACE)
    finally:
        await transactions.close()
    (payment,) = upto["payments"]
    assert (payment["form"], payment["method"], payment["amount"]) == ("upto", "settle", "3000")
    assert payment["payer"] == world.payer.address.lower()
    assert payment["payee"] == world.sender(SELLER).lower()
    assert payment["token"]["symbol"] == "USDC"
    assert int(payment["authorization"]["nonce"], 16) == signed[0][1]
    assert payment["authorization"]["validBefore"] == str(signed[0][2])
    (payment,) = exact["payments"]
    assert (payment["form"], payment["method"]) == ("permit2", "settleWithPermit")
    assert [(one.form, one.amount) for one in logs_only.payments] == [("upto", 3_000)]
    assert [(one.form, one.amount) for one in calls.payments] == [("upto", 3_000)]
