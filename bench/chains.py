"""The daily cost of following a chain of each kind, for `tollgauge bench index`.

- EVM chains with blocks of 2 seconds, of which each new block is read by its hash: one with a
  million payments a day, as on Base, and one with a tenth of that, as on Polygon.
- A chain with 4 blocks per second, of which ranges of final blocks are read, as on Arbitrum.
- Solana, with 350,000 payments a day and ten fee payers.

Every chain is followed in rounds of 5 seconds, its nodes are canned and run in another process. The
figures of a day are extrapolated from some minutes of the chain's time; on Solana from the cost of
a payment, of a round without payments, and of the daily look at the accounts of a payTo.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson
from solders.keypair import Keypair
from solders.pubkey import Pubkey
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bench import CHECKOUT
from bench.canned import World
from bench.indexer import make_seller, open_indexer, quiet_settings
from tollgauge.app import now_ms
from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.solana import SolanaReader
from tollgauge.core.base.units import DAY_MS, chain_number, settlement_token
from tollgauge.core.chain.solana import classify, read_transaction
from tollgauge.core.endpoint.terms import KnownOffer, Quote, indexable_addresses
from tollgauge.db.engine import Store
from tollgauge.demo.envelopes import SOLANA
from tollgauge.demo.serving import serve
from tollgauge.demo.solana_ledger import SolanaLedger
from tollgauge.demo.solana_node import SolanaChain
from tollgauge.jobs import index, index_solana
from tollgauge.jobs.index_visit import IndexState
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.store.chain import wallets
from tollgauge.store.endpoints import endpoints

PAY_TOS: Final = (500, 5_000, 30_000)
ROUND_MS: Final = IndexSettings().every_ms
FEE_PAYERS: Final = 10
SOLANA_A_DAY: Final = 350_000
SOLANA_PAID: Final = 2_000
SOLANA_SCANNED: Final = 300
ROUNDS: Final = 12
_SOLANA_ID: Final = chain_number(SOLANA) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainKind:
    """An EVM chain: its blocks, and payments per block."""

    name: str
    chain_id: int
    block_ms: int
    pairs: int


KINDS: Final = (
    ChainKind(name="2 s, a million payments", chain_id=8453, block_ms=2_000, pairs=23),
    ChainKind(name="2 s, 100,000 payments", chain_id=137, block_ms=2_000, pairs=2),
    ChainKind(name="4 blocks/s, by ranges", chain_id=42161, block_ms=250, pairs=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyCost:
    """The cost of a day: JSON-RPC calls, megabytes of both directions, and the share of a core."""

    calls: int
    mb: int
    share_of_a_core: float


async def measure_chains(
    pay_tos: tuple[int, ...] = PAY_TOS,
) -> tuple[dict[str, dict[int, DailyCost]], dict[str, Any]]:
    """Return the daily cost by kind of chain and number of payTo addresses, and the figures of
    `measure_solana`.
    """
    costs: dict[str, dict[int, DailyCost]] = {}
    for kind in KINDS:
        costs[kind.name] = {count: await _follow(kind, count) for count in pay_tos}
    on_solana = await measure_solana()
    costs["Solana"] = {count: _solana_day(on_solana, count) for count in pay_tos}
    return costs, on_solana


async def _follow(kind: ChainKind, count: int) -> DailyCost:
    step = ROUND_MS // kind.block_ms or 1
    world = World(
        blocks=50 * step,
        pairs=kind.pairs,
        wallets=count,
        payers=100_000,
        began=int(time.time()) - 60 * step * kind.block_ms // 1_000,
        chain_id=kind.chain_id,
        block_ms=kind.block_ms,
    )
    settings, state = quiet_settings(), IndexState()
    async with open_indexer(world, settings) as (store, chain, grow, traffic):
        while (await index.run(store, chain, state, settings=settings, clock=now_ms)).get("busy"):
            pass
        before, cpu = await traffic(), time.process_time()
        for _ in range(ROUNDS):
            await grow(step)
            await index.run(store, chain, state, settings=settings, clock=now_ms)
        cpu, after = time.process_time() - cpu, await traffic()
    a_day = DAY_MS / (ROUNDS * step * kind.block_ms)
    return DailyCost(
        calls=round((after[1] - before[1]) * a_day),
        mb=round((after[2] - before[2]) * a_day / 1e6),
        share_of_a_core=round(cpu * a_day * 1_000 / DAY_MS, 4),
    )


async def measure_solana(paid: int = SOLANA_PAID, scanned: int = SOLANA_SCANNED) -> dict[str, Any]:
    """Return the cost of payments, of rounds and of daily looks: CPU seconds, calls and bytes of
    each, and the payments decoded per CPU second.
    """
    settings = quiet_settings()
    async with _open_solana(paid, scanned, settings) as (store, reader, ask):
        state, without_scans = IndexState(), replace(settings, fills=0)

        async def spend(units: int, rounds: int, of_phase: IndexSettings) -> list[float]:
            before, cpu = await ask("bench_traffic"), time.process_time()
            for _ in range(rounds):
                await index_solana.run(store, reader, state, settings=of_phase, clock=now_ms)
            cpu, after = time.process_time() - cpu, await ask("bench_traffic")
            spent = (cpu, *(end - start for start, end in zip(before, after, strict=True)))
            return [one / units for one in spent]

        costs = {
            "paid": await spend(paid, 2, without_scans),
            "idle": await spend(ROUNDS, ROUNDS, without_scans),
            # The first of these rounds finds the accounts of each payTo, the second reads them.
            "scanned": await spend(scanned, 2, replace(settings, fills=2 * scanned)),
        }
        raw = orjson.dumps(await ask("bench_transactions"))
    return {**costs, "transactions_per_cpu_s": _decode(raw, 40_000)}


def _solana_day(costs: dict[str, Any], count: int) -> DailyCost:
    units = {"paid": SOLANA_A_DAY, "idle": DAY_MS // ROUND_MS, "scanned": count}
    cpu, _, calls, size = (
        sum(costs[name][place] * number for name, number in units.items()) for place in range(4)
    )
    return DailyCost(
        calls=round(calls), mb=round(size / 1e6), share_of_a_core=round(cpu * 1_000 / DAY_MS, 4)
    )


def _decode(raw: bytes, total: int) -> int:
    """Return the transactions per CPU second, from JSON to transfers of wallets."""
    token = settlement_token(SOLANA)
    assert token is not None  # noqa: S101 (a constant)
    known = {one: one.encode() for one in orjson.loads(raw)["wallets"]}
    gc.collect()
    gc.freeze()  # as the service does at its start (process.run)
    count, cpu = 0, time.process_time()
    while count < total:
        for one in orjson.loads(raw)["transactions"]:
            read = read_transaction(one, mint=token.address)
            classify(read, known, frozenset({read.fee_payer}), at=0)
            count += 1
    return round(count / (time.process_time() - cpu))


class _Traffic:
    """Counts the traffic of a network's node, and shows its transactions."""

    def __init__(self, chain: SolanaChain, owners: list[str]) -> None:
        self._chain, self._owners = chain, owners
        self._traffic = [0, 0, 0]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        asked = orjson.loads(body)
        calls = [asked] if isinstance(asked, dict) else asked
        replies = [self._reply(call) for call in calls]
        reply = orjson.dumps(replies[0] if isinstance(asked, dict) else replies)
        for place, count in enumerate((1, len(calls), len(body) + len(reply))):
            self._traffic[place] += count
        await Response(reply)(scope, receive, send)

    def _reply(self, call: dict[str, Any]) -> dict[str, Any]:
        if call["method"] == "bench_traffic":
            result: Any = list(self._traffic)
        elif call["method"] == "bench_transactions":
            result = {
                "wallets": self._owners,
                "transactions": self._chain.ledger.transactions[:500],
            }
        else:
            result = self._chain.answer(call["method"], call.get("params", []))
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}


async def run_node(paid: int, scanned: int) -> None:
    """Print owners, fee payers and port of a network with `paid` payments; serve it until standard
    input ends.
    """
    chain = SolanaChain(now_ms)
    ledger: SolanaLedger = chain.ledger
    owners = [Keypair.from_seed(b"seller %25d" % n).pubkey() for n in range(scanned)]
    payers = [Keypair.from_seed(b"buyers %25d" % n) for n in range(50)]
    fee_payers = [Keypair.from_seed(b"feepay %25d" % n) for n in range(FEE_PAYERS)]
    for owner in (*owners, *(one.pubkey() for one in payers)):
        ledger.fund(owner, 10**9)
    for number in range(paid):
        pay_to: Pubkey = owners[number % scanned]
        payer, fee_payer = payers[number % 50], fee_payers[number % FEE_PAYERS]
        ledger.pay(payer, pay_to, 1_000 + number, fee_payer=fee_payer, memo=b"%032d" % number)
    names = [str(one) for one in owners]
    async with serve(_Traffic(chain, names)) as port:
        document = {"port": port, "owners": names}
        document["fee_payers"] = [str(one.pubkey()) for one in fee_payers]
        sys.stdout.write(orjson.dumps(document).decode() + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


@contextlib.asynccontextmanager
async def _open_solana(
    paid: int, scanned: int, settings: IndexSettings
) -> AsyncIterator[tuple[Store, SolanaReader, Any]]:
    """Open a store with the network's sellers, a client of its node, and a function that calls the
    node.
    """
    command = [sys.executable, "-m", "bench.chains", str(paid), str(scanned)]
    token = settlement_token(SOLANA)
    assert token is not None  # noqa: S101 (a constant)
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(  # noqa: S603, ASYNC220 (our program; once)
            command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdin is not None  # noqa: S101 (PIPE above)
        assert process.stdout is not None  # noqa: S101 (PIPE above)
        told = orjson.loads(await asyncio.to_thread(process.stdout.readline))
        node = Node(f"http://127.0.0.1:{told['port']}", timeout_s=60)
        reader = SolanaReader(
            [node], chain_id=_SOLANA_ID, mint=token.address, check=settings.check, rest_s=5
        )
        store = Store.open(f"sqlite:///{Path(folder) / 'bench.db'}")
        try:
            await store.migrate()
            await store.writing(_list_sellers, token.address, told["owners"], told["fee_payers"])
            yield store, reader, node.call
        finally:
            await reader.close()
            await store.close()
            process.stdin.close()


def _list_sellers(tx: Any, mint: str, owners: list[str], fee_payers: list[str]) -> None:
    """Insert one endpoint per payTo."""
    offered = {}
    rows = []
    for number, pay_to in enumerate(owners):
        fee_payer = fee_payers[number % len(fee_payers)]
        offer = KnownOffer(SOLANA, "exact", pay_to, 1_000, fee_payer=fee_payer)
        quote = Quote(network=SOLANA, asset=mint, amount=1_000, pay_to=pay_to)
        rows.append(make_seller(number, quote, (offer,)))
        offered[rows[-1].id] = indexable_addresses([offer])
    endpoints.insert(tx, *rows)
    wallets.save_offered(tx, offered)


if __name__ == "__main__":
    asyncio.run(run_node(*map(int, sys.argv[1:3])))
