"""EVM nodes that lack a method, contradict themselves or send malformed logs: the loop continues,
and its table finally equals a linear replay of the canonical chain.
"""

from __future__ import annotations

import asyncio
import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.fake_chain import PAYERS, REFUNDED, WALLETS, FakeChain
from tests.support.fake_node import FakeNode, Mood
from tests.support.indexer import QUICK, Indexer, _fields, agrees, world

from tollgauge.jobs.loop_settings import IndexSettings

Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
def database(tmp_path: Path, empty_sqlite: Path) -> Path:
    return Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))


LACKING: Final = [Mood(no_transactions=True), Mood(null_transactions=True)]


def mine_refund(chain: FakeChain) -> None:
    """Mine a capture, its refund, and a payment after both."""
    chain.mine_some(60, txs=0)
    chain.mine(chain.write.capture(WALLETS[0], 7_000, fee=False, is_first=True))
    chain.mine(chain.write.refund(WALLETS[0], 2_000, chain.chain_id))
    chain.mine(chain.write.payment((PAYERS[0], WALLETS[0], 5_000)))
    chain.mine_some(60, txs=0)


@pytest.mark.parametrize("mood", LACKING)
async def test_node_without_transactions_does_not_stop_the_loop_at_a_refund(
    database: Path, mood: Mood
) -> None:
    chain = FakeChain(3, forms=True)
    mine_refund(chain)
    async with world(database, chain, mood) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        expected = {row for row in chain.compute_expected(WALLETS) if row[5]}
        assert len(expected) == 2
        assert await indexer.rows() == expected


@pytest.mark.parametrize("mood", LACKING)
async def test_another_node_supplies_the_transactions_that_the_first_lacks(
    database: Path, mood: Mood
) -> None:
    chain = FakeChain(3, forms=True)
    mine_refund(chain)
    async with world(database, chain, mood, Mood()) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        await agrees(indexer, WALLETS)


def topics(*values: Any) -> Change:
    return lambda log: log | {"topics": list(values)}


REFUND_DATA: Final = {"data": "0x" + 128 * "0"}
MALFORMED: Final[dict[str, Change]] = {
    "topics are objects": topics(REFUNDED, {}),
    "topics are lists": topics(REFUNDED, []),
    "topics are numbers": topics(REFUNDED, 7),
    "first topic is an object": topics({}, REFUNDED),
    "topic is short": topics(REFUNDED, "0x12"),
    "topics are null": lambda log: log | {"topics": None},
    "data is not hex": lambda log: log | {"data": "0xzz"},
    "data without 0x": lambda log: log | {"data": 130 * "0"},
    "data is a number": lambda log: log | {"data": 7},
    "negative index": lambda log: log | {"logIndex": "-0x1"},
    "index is a number": lambda log: log | {"logIndex": 1},
    "huge number": lambda log: log | {"blockNumber": "0x" + 40 * "f"},
    "number without 0x": lambda log: log | {"blockNumber": "12"},
    "hash is short": lambda log: log | {"blockHash": "0x12"},
    "other block": lambda log: log | {"blockHash": "0x" + 64 * "1"},
    "removed": lambda log: log | {"removed": True},
    "time in the far future": lambda log: log | {"blockTimestamp": "0xffffffffff"},
    "time of 1970": lambda log: log | {"blockTimestamp": "0x1"},
}


@dataclass(eq=False)
class ForgingNode(FakeNode):
    """A node that changes each log."""

    change: Change = field(default=lambda log: log)

    def alter_logs(self, logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self.change(log) for log in logs]


UNCHECKED: Final = IndexSettings(**{**_fields(QUICK), "check": 0.0})


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory, empty_sqlite: Path) -> tuple[FakeChain, Path]:
    """A chain, and a database in which it is indexed. Tests copy both."""
    path = Path(shutil.copy(empty_sqlite, tmp_path_factory.mktemp("indexed") / "index.db"))
    chain = FakeChain(3, forms=True, stamped=True)
    chain.mine_some(60, txs=0)

    async def index() -> None:
        async with world(path, chain, settings=UNCHECKED) as (indexer, _):
            await indexer.watch(*WALLETS)
            await indexer.settle()

    asyncio.run(index())
    return chain, path


@pytest.mark.parametrize("fault", MALFORMED)
@pytest.mark.parametrize("nodes", [1, 2])
async def test_malformed_logs_are_not_stored(
    indexed: tuple[FakeChain, Path], tmp_path: Path, fault: str, nodes: int
) -> None:
    chain = copy.deepcopy(indexed[0])
    database = Path(shutil.copy(indexed[1], tmp_path / "index.db"))
    first = ForgingNode(chain)
    honest = [FakeNode(chain, seed) for seed in range(1, nodes)]
    async with Indexer(database, [first, *honest], chain, UNCHECKED) as indexer:
        mine_refund(chain)
        first.change = MALFORMED[fault]
        for _ in range(4):
            await indexer.round()
        assert await indexer.rows() <= chain.compute_expected(WALLETS)
        first.change = lambda log: log
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_contradiction_of_two_nodes_stops_the_audit_and_not_the_scores(
    database: Path,
) -> None:
    chain = FakeChain(3, stamped=True)
    chain.mine_some(60, txs=0)
    second = ForgingNode(chain, 1)
    async with Indexer(database, [FakeNode(chain), second], chain, UNCHECKED) as indexer:
        await indexer.watch(*WALLETS)
        await indexer.settle()
        chain.mine(chain.write.payment((PAYERS[0], WALLETS[0], 5_000)))
        chain.mine_some(60, txs=0)
        second.change = lambda log: log | {"data": "0x" + f"{7_000:064x}"}
        tallies = [await indexer.round() for _ in range(3)]
        assert any(tally.get("contradicted") for tally in tallies)
        assert sum(tally["marked"] for tally in tallies) == 1
        second.change = lambda log: log
        await indexer.settle()
        await agrees(indexer, WALLETS)
