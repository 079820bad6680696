"""Every change of a payTo's balance has a class, over random transactions of all forms.

The transfers of a payTo are read from the node without the indexer, and classified by the rows that
the indexer stored. The script of transactions knows the true classes. Per class, both must agree to
the unit, and the classes must add up to the change of the balance.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.escrows import BATCH, ESCROW_10, ESCROW_11, Channel, Escrows, Payment
from tests.support.examples import THOROUGH
from tests.support.indexed_world import indexed_store, stored_transfers
from tests.support.multicall import MULTICALL3, open_multicall, send_together
from tests.support.permit2 import exact_call, open_permit2, sign, upto_call
from tests.support.token_balance import at_snapshot, balance
from tests.support.trace_world import World, encode_call
from x402.mechanisms.evm import constants

from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.store.chain import volumes

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]

OWNER, PAYER, FACILITATOR, SELLER, SECOND = range(5)
START = 1_000_000
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
FEE = 100
CAPTURES = {ESCROW_10.lower(), ESCROW_11.lower()}
"""The counterparties of captures and of their refunds."""


class Change(StrEnum):
    """The class of a change of a payTo's balance."""

    PAYMENT = "payment"
    REFUND = "refund"
    OWNER = "owner's transfer"
    OTHER = "other"
    UNKNOWN = "unknown"


Classes = Mapping[Change, int]


@dataclass
class Script:
    """Transactions of a market with two sellers, and their effect by seller and class. `refunded`
    are the refunds of captures; those that the facilitator pays change no seller's balance.
    """

    escrows: Escrows
    dice: random.Random
    effect: dict[str, Counter[Change]] = field(default_factory=dict)
    refunded: Counter[str] = field(default_factory=Counter)
    claimed: dict[Channel, int] = field(default_factory=dict)
    unsettled: Counter[str] = field(default_factory=Counter)
    captured: list[tuple[Payment, int]] = field(default_factory=list)

    @property
    def world(self) -> World:
        return self.escrows.world

    @property
    def sellers(self) -> tuple[str, str]:
        return self.world.sender(SELLER), self.world.sender(SECOND)

    async def open(self) -> None:
        for account in (OWNER, FACILITATOR, SELLER, SECOND):
            missing = START - await balance(self.world.chain, self.world.sender(account))
            await self.world.chain.mint(self.world.sender(account), missing)
            await self.escrows.allow_refunds(account)
        allow = encode_call("approve(address,uint256)", MULTICALL3, 2**255)
        await self.world.send(USDC, allow, sender=PAYER)
        for seller in self.sellers:
            channel = self.escrows.channel(PAYER, seller)
            await self.escrows.batch(self.escrows.deposit_call(channel, 900_000))
            self.claimed[channel] = 0

    async def act(self) -> str:
        """Send a random transaction; return its hash."""
        actions = (
            self.pay,
            self.pay_by_proxy,
            self.claim,
            self.settle,
            self.refund_deposit,
            self.capture,
            self.capture,
            self.refund_capture,
            self.return_money,
            self.move_own_money,
            self.give,
            self.fail,
            self.pay_together,
        )
        return await self.dice.choice(actions)(self.dice.choice(self.sellers))

    def amount(self) -> int:
        return self.dice.randrange(1_000, 9_000)

    def count(self, seller: str, change: Change, value: int) -> None:
        self.effect.setdefault(seller.lower(), Counter())[change] += value

    def account(self, seller: str) -> int:
        return (SELLER, SECOND)[self.sellers.index(seller)]

    async def pay(self, seller: str) -> str:
        value = self.amount()
        self.count(seller, Change.PAYMENT, value)
        call = self.world.sign("Transfer", seller, value).call("transfer", "vrs")
        return await self.world.send(USDC, call)

    async def pay_by_proxy(self, seller: str) -> str:
        value = self.amount()
        self.count(seller, Change.PAYMENT, value)
        if self.dice.randrange(2):
            payload = sign(self.world, "upto", 9_000, pay_to=seller)
            call = upto_call(payload, value)
            return await self.world.send(constants.X402_UPTO_PERMIT2_PROXY_ADDRESS, call)
        call = exact_call(sign(self.world, "exact", value, pay_to=seller))
        return await self.world.send(constants.X402_EXACT_PERMIT2_PROXY_ADDRESS, call)

    async def claim(self, seller: str) -> str:
        """Claim from the seller's channel, in half of the cases together with the settlement."""
        channel = next(one for one in self.claimed if one.receiver == seller)
        value = self.amount()
        self.claimed[channel] += value
        self.unsettled[seller] += value
        claim = self.escrows.claim_call((channel, self.claimed[channel]))
        if self.dice.randrange(2):
            return await self.escrows.batch(claim)
        self._note_settled(seller)
        return await self.escrows.batch(claim, self.escrows.settle_call(seller))

    async def settle(self, seller: str) -> str:
        self._note_settled(seller)
        return await self.escrows.batch(self.escrows.settle_call(seller))

    def _note_settled(self, seller: str) -> None:
        self.count(seller, Change.PAYMENT, self.unsettled.pop(seller, 0))

    async def refund_deposit(self, seller: str) -> str:
        channel = next(one for one in self.claimed if one.receiver == seller)
        return await self.escrows.batch(self.escrows.refund_call(channel, self.amount()))

    async def capture(self, seller: str) -> str:
        """Charge a payment, or authorize it, capture a part and void the rest."""
        operator = self.dice.choice((FACILITATOR, self.account(seller)))
        escrow = self.dice.choice((ESCROW_10, ESCROW_11))
        paid = self.escrows.payment(
            seller, self.amount(), operator=self.world.sender(operator), escrow=escrow, max_fee=0
        )
        value = self.dice.randrange(500, paid.amount)
        fee = self.dice.choice((0, FEE))
        if fee:
            paid = replace(paid, max_fee=10_000)
        received = value - (value * fee // 10_000 if escrow == ESCROW_10 else fee)
        self.count(seller, Change.PAYMENT, received)
        if not fee:
            self.captured.append((paid, value))
        if self.dice.randrange(2):
            charge = self.escrows.charge_call(paid, value, fee)
            return await self.world.send(escrow, charge, sender=operator)
        for call in (
            self.escrows.authorize_call(paid),
            self.escrows.capture_call(paid, value, fee),
        ):
            await self.world.send(escrow, call, sender=operator)
        return await self.world.send(escrow, self.escrows.void_call(paid), sender=operator)

    async def refund_capture(self, seller: str) -> str:
        """Refund a capture with its operator's money: the facilitator's, or the seller's."""
        if not self.captured:
            return await self.pay(seller)
        paid, value = self.captured.pop(self.dice.randrange(len(self.captured)))
        self.refunded[paid.receiver.lower()] += value
        operator = FACILITATOR
        if paid.operator == paid.receiver:
            self.count(paid.receiver, Change.REFUND, -value)
            operator = self.account(paid.receiver)
        call = self.escrows.returned_call(paid, value)
        return await self.world.send(paid.escrow, call, sender=operator)

    async def return_money(self, seller: str) -> str:
        """Pay, and return a part to the payer with a plain transfer."""
        value = self.amount()
        await self.pay(seller)
        self.count(seller, Change.REFUND, -(value // 10))
        return await self._transfer(self.account(seller), self.world.payer.address, value // 10)

    async def move_own_money(self, seller: str) -> str:
        value, owner = self.amount(), self.world.sender(OWNER)
        if self.dice.randrange(2):
            self.count(seller, Change.OWNER, value)
            return await self._transfer(OWNER, seller, value)
        self.count(seller, Change.OWNER, -value)
        return await self._transfer(self.account(seller), owner, value)

    async def give(self, seller: str) -> str:
        """A plain transfer from a payer, or between the sellers."""
        value = self.amount()
        self.count(seller, Change.OTHER, value)
        if self.dice.randrange(2):
            return await self._transfer(PAYER, seller, value)
        other = next(one for one in self.sellers if one != seller)
        self.count(other, Change.OTHER, -value)
        return await self._transfer(self.account(other), seller, value)

    async def fail(self, seller: str) -> str:
        """A payment that reverts."""
        paid = self.escrows.payment(seller, 5_000, operator=self.world.sender(FACILITATOR))
        call = self.dice.choice(
            (
                (ESCROW_11, self.escrows.capture_call(paid, 5_000)),
                (USDC, self.world.sign("Transfer", seller, 10**12).call("transfer", "vrs")),
                (BATCH, self.escrows.refund_call(self.escrows.channel(PAYER, seller), 1)),
            )
        )
        return await self.world.send(*call)

    async def pay_together(self, seller: str) -> str:
        """Payments to both sellers between plain transfers of the same amount, in any order."""
        calls: list[tuple[str, str]] = []
        for _ in range(self.dice.randrange(2, 5)):
            payee, value = self.dice.choice(self.sellers), self.amount()
            gift = encode_call(
                "transferFrom(address,address,uint256)", self.world.payer.address, payee, value
            )
            payments = (
                (USDC, self.world.sign("Transfer", payee, value).call("transfer", "bytes")),
                (
                    constants.X402_EXACT_PERMIT2_PROXY_ADDRESS,
                    exact_call(sign(self.world, "exact", value, pay_to=payee)),
                ),
                (BATCH, self.escrows.settle_call(seller)),
            )
            kind = self.dice.randrange(3)
            if kind == 2:
                self._note_settled(seller)
            else:
                self.count(payee, Change.PAYMENT, value)
            self.count(payee, Change.OTHER, value)
            pair = [(USDC, gift), payments[kind]]
            self.dice.shuffle(pair)
            calls += pair
        return await send_together(self.world, calls)

    async def _transfer(self, sender: int, receiver: str, value: int) -> str:
        call = encode_call("transfer(address,uint256)", receiver, value)
        return await self.world.send(USDC, call, sender=sender)


def classify(logs: Sequence[Any], rows: Sequence[Any], wallet: str, owner: str) -> Classes:
    """Return the sum of a payTo's transfers by class, from its logs and its stored rows."""
    stored = {
        (row.number, row.log_index): "0x" + row.other.hex()
        for row in rows
        if "0x" + row.wallet.hex() == wallet
    }
    payers = {
        "0x" + row.other.hex() for row in rows if row.incoming and "0x" + row.wallet.hex() == wallet
    }
    sums: Counter[Change] = Counter()
    for log in logs:
        sender, receiver = ("0x" + topic[-40:] for topic in log["topics"][1:])
        other = stored.get((int(log["blockNumber"], 16), int(log["logIndex"], 16)))
        if owner in (sender, receiver):
            change = Change.OWNER
        elif receiver == wallet:
            change = Change.OTHER if other is None else Change.PAYMENT
        elif other is None:
            change = Change.UNKNOWN  # every transfer from a payTo is stored
        else:
            change = Change.REFUND if other in payers else Change.OTHER
        sums[change] += int(log["data"], 16) * (1 if receiver == wallet else -1)
    return sums


async def transfers_of(world: World, wallet: str) -> list[Any]:
    """Return the logs of transfers to and from an address."""
    word = "0x" + wallet[2:].rjust(64, "0")
    logs = []
    for topics in ([TRANSFER, None, word], [TRANSFER, word]):
        query = {"address": USDC, "fromBlock": "0x0", "toBlock": "latest", "topics": topics}
        logs += await world.chain.rpc("eth_getLogs", query)
    return logs


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def opened_world() -> AsyncIterator[World]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        await open_permit2(world)
        await open_multicall(world)
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(opened_world: World) -> AsyncIterator[World]:
    async with at_snapshot(opened_world.chain):
        yield opened_world


@pytest.mark.parametrize("seed", range(8 if THOROUGH else 2))
async def test_classes_of_changes_add_up_to_the_balance(
    world: World, tmp_path: Path, empty_sqlite: Path, seed: int
) -> None:
    script = Script(Escrows(world), random.Random(seed))
    await script.escrows.open()
    await script.open()
    for _ in range(60):
        await script.act()
    sellers = [seller.lower() for seller in script.sellers]
    owner = world.sender(OWNER).lower()
    path = Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))
    async with indexed_store(world, sellers, path) as (store, now):
        rows = await stored_transfers(store)
        flows = {
            seller: dict(await store.reading(volumes.payers, 8453, seller, as_of=now))
            for seller in sellers
        }
    for seller in sellers:
        logs = await transfers_of(world, seller)
        minted = [log for log in logs if int(log["topics"][1], 16) == 0]
        classes = classify([log for log in logs if log not in minted], rows, seller, owner)
        expected = {change: value for change, value in script.effect[seller].items() if value}
        assert dict(classes) == expected
        start = sum(int(log["data"], 16) for log in minted)
        assert await balance(world.chain, seller) == start + sum(classes.values())
        returned = [flow.returned for payer, flow in flows[seller].items() if payer in CAPTURES]
        assert sum(returned) == script.refunded[seller]
