"""The indexer on a real chain: real tokens, real authorizations, real reorganisations.

The oracle is the chain itself. Exactly the sent transactions that finally have a successful receipt
must be in the table, with exact amounts.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.support.command_server import command as prepared_command
from tests.support.examples import THOROUGH
from tests.support.statements import fetch
from tests.support.token_balance import balance
from tests.support.trace_world import FOREVER, World, encode_call

from tollgauge.clients.chain.logs import ChainLogs
from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.transactions import Transactions, sample_block
from tollgauge.core.chain.settlement import MIN_PAYMENT
from tollgauge.core.chain.trace.result import Party
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.db.engine import Store
from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.jobs import index
from tollgauge.jobs.index_visit import IndexState
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.store.chain import submitters, transfers, volumes
from tollgauge.store.endpoints import endpoints

pytestmark = pytest.mark.usefixtures("anvil")

SETTINGS = IndexSettings(audit=1, dirty_every_ms=0, volume_every_ms=0, tip_span=7)
SELLERS = (3, 4)
"""Accounts of the chain that sell; the payer is account 1."""


@dataclass
class Market:
    """A chain with sellers, and everything that was sent on it: by transaction, the expected
    (wallet, other, incoming, value).
    """

    world: World
    sent: dict[str, list[tuple[str, str, bool, int]]] = field(default_factory=dict)

    def seller(self, which: int) -> str:
        return self.world.sender(SELLERS[which])

    async def pay(self, which: int, value: int, form: str = "vrs") -> str:
        signed = self.world.sign("Transfer", self.seller(which), value)
        tx = await self.world.send(USDC, signed.call("transfer", form))
        return self._note(tx, (self.seller(which), signed.payer, True, value))

    async def collect(self, which: int, value: int, form: str) -> str:
        """The seller submits a `receiveWithAuthorization` itself."""
        signed = self.world.sign("Receive", self.seller(which), value)
        tx = await self.world.send(USDC, signed.call("receive", form), sender=SELLERS[which])
        return self._note(tx, (self.seller(which), signed.payer, True, value))

    async def batch(self, values: list[int]) -> str:
        """Several payments in one transaction of another contract, one of them to an unrelated
        address.
        """
        signed = [
            self.world.sign("Transfer", self.world.sender(0), 1),
            *(self.world.sign("Transfer", self.seller(n % 2), v) for n, v in enumerate(values)),
        ]
        forms = ["vrs", "bytes"]
        calls = [
            (USDC, authorization.call("transfer", forms[n % 2]))
            for n, authorization in enumerate(signed)
        ]
        tx = await self.world.send(self.world.places["Batcher"], self.world.batch(calls))
        rows = [
            (authorization.payee, authorization.payer, True, authorization.value)
            for authorization in signed[1:]
        ]
        return self._note(tx, *rows)

    async def refund(self, which: int, value: int) -> str:
        """A plain transfer from the seller back to the payer."""
        payer = self.world.payer.address
        data = encode_call("transfer(address,uint256)", payer, value)
        tx = await self.world.send(USDC, data, sender=SELLERS[which])
        return self._note(tx, (self.seller(which), payer, False, value))

    async def gift(self, which: int, value: int) -> str:
        """A plain transfer to the seller, which is not a settlement."""
        data = encode_call("transfer(address,uint256)", self.seller(which), value)
        return self._note(await self.world.send(USDC, data, sender=1))

    def _note(self, tx: str, *rows: tuple[str, str, bool, int]) -> str:
        """Expect these rows, but no payment that is too small to be one."""
        self.sent[tx] = [
            (w.lower(), o.lower(), incoming, v)
            for w, o, incoming, v in rows
            if v >= MIN_PAYMENT or not incoming
        ]
        return tx

    async def compute_expected(self) -> list[tuple[Any, ...]]:
        """Return the sent transfers that the chain contains now."""
        entries = []
        for tx, rows in self.sent.items():
            receipt = await self.world.chain.rpc("eth_getTransactionReceipt", tx)
            if receipt is not None and receipt["status"] == "0x1":
                place = (int(receipt["blockNumber"], 16), receipt["blockHash"], tx)
                entries += [(*place, *row) for row in rows]
        return sorted(entries)

    async def act_randomly(self, dice: random.Random) -> None:
        which, value = dice.randrange(2), dice.randrange(1, 2_000)
        kind = dice.randrange(6)
        if kind == 0:
            await self.batch([dice.randrange(1, 900) for _ in range(dice.randrange(1, 5))])
        elif kind == 1:
            await self.collect(which, value, dice.choice(("vrs", "bytes")))
        elif kind == 2:
            await self.gift(which, value)
        elif kind == 3:
            await self.refund(which, 1 + value // 10)
        else:
            await self.pay(which, value, dice.choice(("vrs", "bytes")))


@pytest.fixture
async def market() -> AsyncIterator[Market]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        yield Market(world)


@pytest.fixture
def path(tmp_path: Path, empty_sqlite: Path) -> Path:
    return Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    opened = Store.open(f"sqlite:///{path}")
    yield opened
    await opened.close()


@pytest.fixture
async def logs(market: Market) -> AsyncIterator[ChainLogs]:
    logs = ChainLogs(
        [Node(market.world.chain.rpc_url)], chain_id=8453, token=USDC, settings=SETTINGS
    )
    yield logs
    await logs.close()


def now() -> int:
    return time.time_ns() // 1_000_000


async def list_sellers(store: Store, market: Market) -> None:
    for which in range(len(SELLERS)):
        resource = parse_resource(f"https://seller-{which}.dev/pay")
        pay_to = market.seller(which).lower()
        await store.writing(
            endpoints.insert,
            Endpoint(
                id=resource.id,
                resource=resource.url,
                host=resource.host,
                first_seen=0,
                last_seen=0,
                quote=Quote(network="eip155:8453", asset=USDC.lower(), amount=1, pay_to=pay_to),
                quote_at=0,
            ),
        )


async def settle(store: Store, logs: ChainLogs) -> None:
    state = IndexState()
    for _ in range(50):
        tally = await index.run(store, logs, state, settings=SETTINGS, clock=now)
        if not any(tally.get(name) for name in ("blocks", "filled", "audited", "unreachable")):
            return
    raise AssertionError("the indexer does not come to rest")


async def table(store: Store) -> list[tuple[Any, ...]]:
    rows = (await fetch(store, sa.select(transfers.transfer))).all()
    return sorted(
        (
            row.number,
            "0x" + row.block_hash.hex(),
            "0x" + row.transaction.hex(),
            "0x" + row.wallet.hex(),
            "0x" + row.other.hex(),
            row.incoming,
            int(row.value),
        )
        for row in rows
    )


async def test_every_kind_of_settlement_is_found_and_nothing_else(
    market: Market, store: Store, logs: ChainLogs
) -> None:
    await list_sellers(store, market)
    await market.pay(0, 100, "vrs")
    await market.pay(0, 200, "bytes")
    await market.collect(1, 300, "vrs")
    await market.collect(1, 400, "bytes")
    await market.batch([1, 99, 100, 101, 102])
    await market.gift(0, 5_000)
    await market.refund(1, 50)
    await settle(store, logs)
    expected = await market.compute_expected()
    assert len(expected) == 8
    assert await table(store) == expected
    # Mining makes the settlements final, so that their submitters are looked up.
    await market.world.chain.rpc("anvil_mine", hex(SETTINGS.finality))
    await settle(store, logs)
    stored = (await fetch(store, sa.select(transfers.transfer))).all()
    assert {row.submitter is None for row in stored if row.incoming} == {False}
    for row in stored:
        if row.incoming:
            sent = await market.world.chain.rpc(
                "eth_getTransactionReceipt", "0x" + row.transaction.hex()
            )
            assert "0x" + row.submitter.hex() == sent["from"]
    assert len({row.submitter for row in stored if row.incoming}) > 1
    # The gift and the payments of the batch that are too small are money, but no payments.
    for which, others in ((0, 5_000 + 1), (1, 99)):
        wallet = market.seller(which).lower()
        net = sum(row[-1] if row[5] else -row[-1] for row in expected if row[3] == wallet)
        assert await balance(market.world.chain, wallet) == net + others
        demands = await store.reading(volumes.demands_of, 8453, [wallet], as_of=now())
        paid = sum(row[-1] for row in expected if row[3] == wallet and row[5])
        assert demands[wallet].volume == paid
        assert demands[wallet].weights == ()


@pytest.mark.parametrize("seed", range(3 if THOROUGH else 1))
async def test_sums_follow_the_chain_while_payments_are_reorganised(
    market: Market, store: Store, logs: ChainLogs, seed: int
) -> None:
    dice, chain, state = random.Random(seed), market.world.chain, IndexState()
    await list_sellers(store, market)
    for _ in range(8):
        await market.act_randomly(dice)
    await settle(store, logs)
    for turn in range(8):
        snapshot = await chain.rpc("evm_snapshot")
        for _ in range(dice.randrange(1, 6)):
            await market.act_randomly(dice)
        await index.run(store, logs, state, settings=SETTINGS, clock=now)
        if turn % 3 == 0:
            await chain.rpc("anvil_reorg", dice.randrange(1, 5), [])
        elif turn % 3 == 1:
            await chain.rpc("evm_revert", snapshot)
        for _ in range(dice.randrange(1, 3)):
            await market.act_randomly(dice)
        await index.run(store, logs, state, settings=SETTINGS, clock=now)
        assert await table(store) == await market.compute_expected(), turn
    await settle(store, logs)
    assert await table(store) == await market.compute_expected()


INDEXER = """
import asyncio, sys, time
from tollgauge.clients.chain.logs import ChainLogs
from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.transactions import Transactions, sample_block
from tollgauge.jobs import index
from tollgauge.jobs.index_visit import IndexState
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.db.engine import Store

async def main() -> None:
    settings = IndexSettings(audit=1, dirty_every_ms=0, volume_every_ms=0, span=3, tip_span=2)
    store = Store.open(sys.argv[1])
    logs = ChainLogs([Node(sys.argv[2])], chain_id=8453, token=sys.argv[3],
                     settings=settings)
    state = IndexState()
    while True:
        await index.run(store, logs, state, settings=settings,
                        clock=lambda: time.time_ns() // 1_000_000)
        print("round", flush=True)

asyncio.run(main())
"""


async def test_repeatedly_killed_indexer_misses_nothing(
    market: Market, store: Store, logs: ChainLogs, path: Path
) -> None:
    dice = random.Random(9)
    await list_sellers(store, market)
    url = market.world.chain.rpc_url
    command = prepared_command("-c", INDEXER, f"sqlite:///{path}", url, USDC)
    for turn in range(6):
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, env={**os.environ}
        )
        assert process.stdout is not None
        try:
            await market.act_randomly(dice)
            if turn % 2:
                await process.stdout.readline()
            for _ in range(3):
                await market.act_randomly(dice)
            if turn == 3:
                await market.world.chain.rpc("anvil_reorg", 5, [])
            await asyncio.sleep(dice.random() * 0.3)
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()
    await settle(store, logs)
    assert await table(store) == await market.compute_expected()


async def test_attempts_are_counted_with_the_party_that_caused_a_failure(
    market: Market, store: Store, logs: ChainLogs
) -> None:
    world, seller = market.world, market.seller(0)
    await list_sellers(store, market)
    at = int((await world.chain.rpc("eth_getBlockByNumber", "latest", False))["timestamp"], 16)
    signed = world.sign("Transfer", seller, 100)
    used = world.sign("Transfer", seller, 100)
    await world.send(USDC, used.call("transfer", "vrs"))
    stale = world.sign("Transfer", seller, 100, before=at)
    poor = world.sign("Transfer", seller, 10**12)
    early = world.sign("Transfer", seller, 100, after=FOREVER - 1)
    dated = world.sign("Transfer", seller, 100, after=at - 605)
    batched = world.sign("Transfer", seller, 100)
    calls = [
        (USDC, one.call("transfer", "vrs"), "0x30d40")
        for one in (signed, used, stale, poor, early, dated)
    ]
    calls.append((USDC, world.sign("Transfer", seller, 1).call("transfer", "bytes"), "0xc350"))
    whole = world.batch([(USDC, batched.call("transfer", "vrs"))])
    calls.append((world.places["Batcher"], whole, "0x7a120"))
    calls.append((USDC, encode_call("transfer(address,uint256)", seller, 5), "0x30d40"))
    async with world.chain.by_hand():
        sent = [
            {"from": world.sender(), "to": to, "data": data, "gas": gas} for to, data, gas in calls
        ]
        await world.chain.send(sent)
        await world.chain.mine()
    view = await logs.nodes.view()
    found = await sample_block(view.node, "eip155:8453", view.head.number)
    assert [(one.settled, one.fault) for one in found] == [
        (True, None),
        (False, Party.FACILITATOR),
        (False, Party.FACILITATOR),
        (False, Party.PAYER),
        (False, Party.FACILITATOR),
        (True, None),
        (False, Party.FACILITATOR),
        (True, None),
    ]
    assert [one.delay_s is not None for one in found].index(True) == 5
    # The loop reads the newest block, once.
    await settle(store, logs)
    await settle(store, logs)
    (sample,) = await store.reading(submitters.load_samples, 8453)
    assert sample.address == world.sender().lower()
    assert dict(sample.outcomes) == {"settled": 3, "facilitator": 4, "payer": 1}
    assert sample.p50_delay_s == found[5].delay_s == sample.p95_delay_s
    trace = await Transactions({"eip155:8453": [view.node]}).trace(
        "eip155:8453", await _last_reverted(world)
    )
    assert (trace.fault, trace.payments) == (Party.FACILITATOR, ())
    assert trace.reason is not None
    assert "gas limit" in trace.reason


async def _last_reverted(world: World) -> str:
    block = await world.chain.rpc("eth_getBlockByNumber", "latest", False)
    return str(block["transactions"][6])
