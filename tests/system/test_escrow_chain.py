"""Payments that escrows settle (batch-settlement, auth-capture) on a local chain, by the index and
by the trace.

The escrows are stand-ins with the interfaces in the official SDKs and the events of
base/commerce-payments (tests/support/wrappers), at the addresses of the real ones.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_asyncio
import sqlalchemy as sa
from tests.support.statements import fetch
from tests.support.trace_world import NETWORK, World, encode_call
from tests.system.test_permit2_chain import FACILITATOR, PAYER, SELLER, indexed

from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.transactions import Transactions
from tollgauge.core.chain.forms import BATCH_ESCROW, CAPTURE_ESCROWS, COLLECTORS
from tollgauge.core.chain.trace.result import Model
from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.store.chain import transfers, volumes

OTHER, OPERATOR, FEES = 4, FACILITATOR, 0
CAPTURE_ESCROW = CAPTURE_ESCROWS[1]
COLLECTOR = min(COLLECTORS)
INFO = (
    "(address,address,address,address,uint120,uint48,uint48,uint48,uint16,uint16,address,uint256)"
)
CAPTURE = f"capture({INFO},uint256,uint16,address)"
CHARGE = f"charge({INFO},uint256,address,uint16,address)"
TRANSFER = "transfer(address,uint256)"


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        for address, name in ((BATCH_ESCROW, "BatchStandIn"), (CAPTURE_ESCROW, "CaptureStandIn")):
            code = await chain.rpc("eth_getCode", world.places[name], "latest")
            await chain.rpc("anvil_setCode", address, code)
        approval = encode_call("approve(address,uint256)", CAPTURE_ESCROW, 2**255)
        for account in (PAYER, OPERATOR):
            await world.send(USDC, approval, sender=account)
        await transfer(world, BATCH_ESCROW, 1_000_000)
        await transfer(world, world.sender(OPERATOR), 1_000_000)
        await transfer(world, world.places["Batcher"], 1_000_000)
        yield world


async def transfer(world: World, to: str, amount: int) -> str:
    return await world.send(USDC, encode_call(TRANSFER, to, amount), sender=PAYER)


async def batch(world: World, *calls: tuple[str, str]) -> str:
    """Make several calls in one transaction."""
    listed = [(target, False, bytes.fromhex(data[2:])) for target, data in calls]
    data = encode_call("aggregate3((address,bool,bytes)[])", listed)
    return await world.send(world.places["Batcher"], data)


def claim(world: World, account: int, amount: int) -> tuple[str, str]:
    call = encode_call("claim(address,address,uint128)", world.sender(account), USDC, amount)
    return BATCH_ESCROW, call


def settle(world: World, account: int) -> tuple[str, str]:
    return BATCH_ESCROW, encode_call("settle(address,address)", world.sender(account), USDC)


def gift(world: World, account: int, amount: int) -> tuple[str, str]:
    return USDC, encode_call(TRANSFER, world.sender(account), amount)


@dataclass(frozen=True, kw_only=True)
class Order:
    """A payment of auth-capture."""

    world: World
    receiver: int = SELLER
    fee: int = 0

    @property
    def info(self) -> tuple[Any, ...]:
        parties = [self.world.sender(n) for n in (OPERATOR, PAYER, self.receiver)]
        times = (2**40, 2**40, 2**40)
        return (*parties, USDC, 10**9, *times, 0, 10_000, self.world.sender(FEES), 7)

    async def authorize(self, amount: int) -> str:
        data = encode_call(f"authorize({INFO},uint256)", self.info, amount)
        return await self.world.send(CAPTURE_ESCROW, data)

    def capture(self, amount: int) -> tuple[str, str]:
        fees = self.world.sender(FEES)
        return CAPTURE_ESCROW, encode_call(CAPTURE, self.info, amount, self.fee, fees)

    def charge(self, amount: int, collector: str) -> tuple[str, str]:
        fees = self.world.sender(FEES)
        return CAPTURE_ESCROW, encode_call(CHARGE, self.info, amount, collector, self.fee, fees)

    def refund(self, amount: int) -> tuple[str, str]:
        return CAPTURE_ESCROW, encode_call(f"refund({INFO},uint256)", self.info, amount)


async def test_batch_settlements_are_counted_and_decoys_are_not(
    world: World, tmp_path: Path, empty_sqlite: Path
) -> None:
    settled = {
        await batch(world, claim(world, SELLER, 3_000), settle(world, SELLER)): [3_000],
        # The same amount as a gift and to another seller, before and after.
        await batch(
            world,
            gift(world, SELLER, 5_000),
            *(claim(world, OTHER, 5_000), settle(world, OTHER)),
            *(claim(world, SELLER, 5_000), settle(world, SELLER)),
            gift(world, SELLER, 5_000),
        ): [5_000],
        await batch(
            world,
            *(claim(world, SELLER, 200), settle(world, SELLER)),
            *(claim(world, SELLER, 200), settle(world, SELLER)),
        ): [200, 200],
    }
    refund = encode_call("refund(address,address,uint128)", world.sender(SELLER), USDC, 900)
    await world.send(BATCH_ESCROW, refund)
    await batch(world, claim(world, OTHER, 777), settle(world, OTHER), gift(world, SELLER, 777))
    async with indexed(world, Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))) as store:
        rows = (await fetch(store, sa.select(transfers.transfer))).all()
        pay_to = world.sender(SELLER).lower()
        demands = await store.reading(volumes.demands_of, 8453, [pay_to], as_of=2**42)
    seen = [("0x" + row.transaction.hex(), row.incoming, int(row.value)) for row in rows]
    expected = [(tx, True, value) for tx, values in settled.items() for value in values]
    assert sorted(seen) == sorted(expected)
    assert {"0x" + row.other.hex() for row in rows} == {BATCH_ESCROW}
    demand = demands[pay_to]
    assert (demand.payers, demand.volume, demand.proven_payers) == (1, 8_400, 0)


async def test_captures_and_charges_are_counted_without_fees_and_decoys_are_not(
    world: World, tmp_path: Path, empty_sqlite: Path
) -> None:
    order, with_fee, of_other = (
        Order(world=world),
        Order(world=world, fee=250),
        Order(world=world, receiver=OTHER),
    )
    for one in (order, with_fee, of_other):
        await one.authorize(20_000)
    payer, unknown = world.payer.address.lower(), CAPTURE_ESCROW
    counted = {
        # The first one also creates the operator's store.
        await world.send(*with_fee.capture(4_000)): (3_900, unknown),
        await world.send(*order.capture(3_000)): (3_000, unknown),
        await batch(
            world, *(of_other.capture(500), gift(world, SELLER, 500), order.capture(501))
        ): (501, unknown),
        await world.send(*with_fee.charge(2_000, COLLECTOR)): (1_950, payer),
        await world.send(*order.charge(600, world.places["Account"])): (600, unknown),
    }
    await world.send(*order.refund(3_000))
    await batch(world, of_other.charge(800, COLLECTOR), gift(world, SELLER, 800))
    async with indexed(world, Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))) as store:
        rows = (await fetch(store, sa.select(transfers.transfer))).all()
    seen = {"0x" + one.transaction.hex(): (int(one.value), "0x" + one.other.hex()) for one in rows}
    assert seen == counted
    assert len(rows) == len(counted)
    assert all(row.incoming for row in rows)


async def test_trace_shows_the_form_of_each_payment(world: World) -> None:
    order = Order(world=world, fee=100)
    await order.authorize(20_000)
    sent = [
        await batch(
            world, claim(world, SELLER, 300), gift(world, SELLER, 300), settle(world, SELLER)
        ),
        await world.send(*order.capture(10_000)),
        await world.send(*order.charge(10_000, COLLECTOR)),
    ]
    transactions = Transactions({NETWORK: (Node(world.chain.rpc_url),)})
    try:
        for model in (None, Model.RECEIPT_LOGS):
            traced = [await transactions.trace(NETWORK, tx, model) for tx in sent]
            assert [
                [(one.form, one.amount, one.payer, one.payee) for one in result.payments]
                for result in traced
            ] == [
                [("batch-settlement", 300, BATCH_ESCROW, world.sender(SELLER).lower())],
                [("auth-capture", 9_900, CAPTURE_ESCROW, world.sender(SELLER).lower())],
                [
                    (
                        "auth-capture",
                        9_900,
                        world.payer.address.lower(),
                        world.sender(SELLER).lower(),
                    )
                ],
            ]
    finally:
        await transactions.close()
