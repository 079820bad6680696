"""An indexer with fake nodes, and the replay of the chain that its table must equal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from tests.support.fake_chain import BLOCK_SECONDS, START, TOKEN, FakeChain
from tests.support.fake_node import FakeNode, Mood
from tests.support.statements import fetch

from tollgauge.clients.chain.logs import ChainLogs
from tollgauge.clients.chain.rpc import Node
from tollgauge.core.base.units import day_of
from tollgauge.core.chain.blocks import DeepReorgError
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import index
from tollgauge.jobs.index_visit import IndexState
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.store.chain import cursors as chains
from tollgauge.store.chain import deposits, transfers
from tollgauge.store.endpoints import endpoints

NETWORK = "eip155:8453"


QUICK = IndexSettings(
    audit=1,
    dirty_every_ms=0,
    volume_every_ms=0,
    span=50,
    tip_span=16,
    fill_wallets=3,
    check=0.2,
    rest_s=0.0,
)


@dataclass
class Indexer:
    """A process that indexes: its own store and clients, which are gone when it is killed."""

    path: Path
    nodes: Sequence[FakeNode]
    chain: FakeChain
    settings: IndexSettings = QUICK
    own: bytes | None = None
    tallies: list[dict[str, Any]] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        self.store = Store.open(f"sqlite:///{self.path}")
        self.logs = ChainLogs(
            [Node("http://node.example", transport=node) for node in self.nodes],
            chain_id=self.chain.chain_id,
            token=TOKEN,
            settings=self.settings,
            seed=1,
        )
        self.state = IndexState()

    async def stop(self) -> None:
        await self.logs.close()
        await self.store.close()

    def now(self) -> int:
        return 1_000 * (START + (len(self.chain.blocks) + 5) * BLOCK_SECONDS)

    async def watch(self, *wallets: bytes) -> None:
        """Add an endpoint of each wallet."""
        network = f"eip155:{self.chain.chain_id}"
        await self.store.writing(_insert, [_endpoint(wallet, network) for wallet in wallets])

    async def round(self) -> dict[str, Any]:
        pay_to = "" if self.own is None else "0x" + self.own.hex()
        tally = await index.run(
            self.store, self.logs, self.state, settings=self.settings, clock=self.now, pay_to=pay_to
        )
        self.tallies.append(tally)
        return tally

    async def killed_round(self, after: float) -> None:
        """Run a round that dies at some point, and a process that starts again."""
        task = asyncio.create_task(self.round())
        await asyncio.wait({task}, timeout=after)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, DeepReorgError):
            await task
        await self.stop()
        self.start()

    async def settle(self, rounds: int = 60) -> None:
        """Run rounds until no work is left."""
        for _ in range(rounds):
            tally = await self.round()
            work = ("blocks", "filled", "audited", "unreachable", "unconfirmed", "moved")
            if not any(tally.get(name) for name in (*work, "contradicted")):
                return
        raise AssertionError(f"still at work: {self.tallies[-3:]}")

    async def rows(self) -> set[tuple[Any, ...]]:
        of_chain = transfers.transfer.c.chain == self.chain.chain_id
        stored = (await fetch(self.store, sa.select(transfers.transfer).where(of_chain))).all()
        forms = self.chain.forms
        assert forms or all(row.nonce is not None for row in stored if row.incoming)
        table = [
            (
                row.number,
                row.block_hash,
                row.log_index,
                row.wallet,
                row.other,
                row.incoming,
                int(row.value),
                row.at,
            )
            for row in stored
        ]
        assert len(set(table)) == len(table)
        return set(table)

    async def deposits(self) -> set[tuple[Any, ...]]:
        """Return all recorded deposits."""
        stored = (await fetch(self.store, sa.select(deposits.deposit))).all()
        assert {row.pay_to for row in stored} <= {"0x" + (self.own or b"").hex()}
        table = [
            (
                row.number,
                row.block_hash,
                row.log_index,
                bytes.fromhex(row.payer[2:]),
                int(row.value),
                row.nonce is not None,
                row.at,
            )
            for row in stored
        ]
        assert len(set(table)) == len(table)
        return set(table)

    async def days(self) -> dict[tuple[Any, ...], tuple[int, int, int]]:
        of_chain = transfers.transfer_day.c.chain == self.chain.chain_id
        table = (await fetch(self.store, sa.select(transfers.transfer_day).where(of_chain))).all()
        return {
            (row.wallet, row.day, row.other): (row.transfers, int(row.paid), int(row.returned))
            for row in table
        }


def _endpoint(wallet: bytes, network: str) -> Endpoint:
    """Return an endpoint that asks for payments to a wallet."""
    of_chain = "" if network == NETWORK else f"-{network.partition(':')[2]}"
    resource = parse_resource(f"https://seller-{wallet.hex()}{of_chain}.dev/pay")
    quote = Quote(network=network, asset=TOKEN, amount=5_000, pay_to="0x" + wallet.hex())
    return Endpoint(
        id=resource.id,
        resource=resource.url,
        host=resource.host,
        first_seen=1_000 * START,
        last_seen=1_000 * START,
        quote=quote,
        quote_at=1_000 * START,
    )


def _insert(tx: sa.Connection, wanted: Sequence[Endpoint]) -> None:
    """Insert the missing endpoints."""
    known = set(tx.execute(sa.select(schema.endpoint.c.id)).scalars())
    endpoints.insert(tx, *(endpoint for endpoint in wanted if endpoint.id not in known))


def sum_by_day(rows: set[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[int, int, int]]:
    """Return the daily sums that follow from rows."""
    sums: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    for _, _, _, wallet, other, incoming, value, at in rows:
        key = (wallet, day_of(at), other)
        count, paid, back = sums.get(key, (0, 0, 0))
        sums[key] = (count + 1, paid + value, back) if incoming else (count, paid, back + value)
    return {key: value for key, value in sums.items() if any(value)}


async def agrees(indexer: Indexer, wallets: Sequence[bytes]) -> None:
    """Check that the table and its sums equal the linear replay of the canonical chain."""
    expected = indexer.chain.compute_expected(wallets)
    rows = await indexer.rows()
    assert rows == expected, {"extra": rows - expected, "missing": expected - rows}
    assert await indexer.days() == sum_by_day(expected)
    if indexer.own is not None:
        came, payment_of = indexer.chain.deposits(indexer.own), await indexer.deposits()
        assert payment_of == came, {"extra": payment_of - came, "missing": came - payment_of}
    chain_id = indexer.chain.chain_id
    cursor = await indexer.store.reading(chains.cursor, chain_id)
    kept = await indexer.store.reading(chains.kept_hashes, chain_id)
    assert cursor is not None
    assert (cursor.number, cursor.hash) == (indexer.chain.head.number, indexer.chain.head.hash)
    assert all(indexer.chain.blocks[n].hash == block_hash for n, block_hash in kept.items())


@contextlib.asynccontextmanager
async def world(
    path: Path,
    chain: FakeChain,
    *moods: Mood,
    settings: IndexSettings = QUICK,
    own: bytes | None = None,
) -> AsyncIterator[tuple[Indexer, list[FakeNode]]]:
    """An indexer and its nodes, one per mood."""
    nodes = [FakeNode(chain, seed, mood) for seed, mood in enumerate(moods or (Mood(),))]
    async with Indexer(path, nodes, chain, settings, own) as indexer:
        yield indexer, nodes


def _fields(given: IndexSettings) -> dict[str, Any]:
    return {name: getattr(given, name) for name in IndexSettings.__dataclass_fields__}
