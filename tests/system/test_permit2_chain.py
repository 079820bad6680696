"""Payments through the Permit2 proxies on a local chain, by the index and by the trace.

The payloads are signed by the official Python clients. The contracts are stand-ins made from the
clients' ABI (tests/support/wrappers), at the addresses of the real ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.indexed_world import index_world
from tests.support.permit2 import (
    PAYER,
    SELLER,
    UPTO_SETTLE,
    arguments,
    exact_call,
    open_permit2,
    sign,
    upto_call,
)
from tests.support.token_balance import at_snapshot
from tests.support.trace_world import NETWORK, World, encode_call
from x402.mechanisms.evm import constants

from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.transactions import Transactions
from tollgauge.core.chain.trace.result import Model
from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.web.wire.traces import trace_json

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def opened_world() -> AsyncIterator[World]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        await open_permit2(world)
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(opened_world: World) -> AsyncIterator[World]:
    async with at_snapshot(opened_world.chain):
        yield opened_world


async def pay_exact(world: World, amount: int, *, with_permit: bool = False) -> str:
    payload = sign(world, "exact", amount)
    data = exact_call(payload, amount_with_permit=amount if with_permit else 0)
    return await world.send(constants.X402_EXACT_PERMIT2_PROXY_ADDRESS, data)


async def pay_upto(world: World, most: int, amount: int) -> str:
    data = upto_call(sign(world, "upto", most), amount)
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
