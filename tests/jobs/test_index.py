"""The indexer on a chain that reorganises, with nodes that lag, lie, throttle and fail.

The oracle is a linear replay of the canonical chain, which the fake chain records. Whatever happens
in between, the table finally equals that replay.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.support.fake_chain import PAYERS, STRANGER, USED, WALLETS, FakeChain, address
from tests.support.fake_node import FakeNode, Mood
from tests.support.indexer import QUICK, Indexer, _fields, agrees, world
from tests.support.statements import fetch

from tollgauge.core.chain.blocks import DeepReorgError
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.monitor import scoring
from tollgauge.store.chain import deposits, periods, wallets
from tollgauge.store.endpoints import endpoints, rated_endpoints


@pytest.fixture
def database(tmp_path: Path, empty_sqlite: Path) -> Path:
    return Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))


async def test_table_is_a_replay_of_the_chain(database: Path) -> None:
    chain = FakeChain(1)
    chain.mine_some(150)
    async with world(database, chain) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        await agrees(indexer, WALLETS)
        chain.mine_some(100)
        await indexer.settle()
        await agrees(indexer, WALLETS)
    assert nodes[0].methods_with_pending == 0


@pytest.mark.parametrize("by_hash", [0, 400])
async def test_reorganisations_replace_orphaned_rows(database: Path, by_hash: int) -> None:
    settings = IndexSettings(**{**_fields(QUICK), "by_hash": by_hash})
    chain = FakeChain(1)
    chain.mine_some(60)
    async with world(database, chain, settings=settings) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        for depth, growth in itertools.product([30, 7, 2, 1], [-1, 0, 1, 5]):
            orphan = chain.blocks[-depth]
            chain.reorg(depth, max(1, depth + growth))
            assert orphan not in chain.blocks
            await indexer.settle()
            if depth + growth < 1:
                chain.mine_some(2)
                await indexer.settle()
            await agrees(indexer, WALLETS)


async def test_late_node_undoes_nothing(database: Path) -> None:
    chain = FakeChain(3)
    chain.mine_some(100)
    async with world(database, chain) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        nodes[0].mood.lag = 25
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_empty_reply_of_a_node_that_is_behind_is_not_believed(database: Path) -> None:
    """Blocks come from a node that has 200 of them, and logs from a replica that has only 80. For
    the final blocks 81 to 160, the replica returns an empty list.
    """
    chain = FakeChain(4)
    chain.mine_some(200)

    class Balanced(FakeNode):
        def result(self, method: str, params: list[Any]) -> Any:
            ranged = method == "eth_getLogs" and "fromBlock" in params[0]
            self.mood.lag = 120 if ranged or method == "eth_blockNumber" else 0
            return super().result(method, params)

    node = Balanced(chain)
    async with Indexer(database, [node], chain) as indexer:
        await indexer.watch(*WALLETS)
        for _ in range(4):
            await indexer.round()
        lows = await indexer.store.reading(wallets.lows, 8453)
        assert set(lows.values()) == {161}, "the empty reply of the replica was believed"
        assert await indexer.rows() <= chain.compute_expected(WALLETS)
    async with Indexer(database, [FakeNode(chain)], chain) as indexer:
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_wallet_added_later_is_backfilled(database: Path) -> None:
    chain = FakeChain(5)
    chain.mine_some(120)
    async with world(database, chain) as (indexer, _):
        await indexer.watch(WALLETS[0])
        await indexer.settle()
        await agrees(indexer, WALLETS[:1])
        chain.mine_some(10)
        await indexer.watch(*WALLETS[1:4])
        await indexer.round()
        chain.reorg(5, 8)
        await indexer.watch(WALLETS[4])
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_every_deposit_to_the_service_is_recorded(database: Path) -> None:
    chain = FakeChain(16)
    chain.mine_some(120)
    async with world(database, chain, own=WALLETS[1]) as (indexer, _):
        await indexer.watch(WALLETS[0])
        await indexer.settle()
        await agrees(indexer, WALLETS[:1])
        await indexer.watch(WALLETS[1])
        chain.mine_some(20)
        await indexer.settle()
        await agrees(indexer, WALLETS[:2])
        kinds = {authorized for *_, authorized, _ in await indexer.deposits()}
        assert kinds == {True, False}


async def test_own_address_is_indexed_without_monitored_endpoints(database: Path) -> None:
    chain = FakeChain(17)
    chain.mine_some(120)
    async with world(database, chain, own=WALLETS[1]) as (indexer, _):
        await indexer.settle()
        chain.reorg(9, 12)
        await indexer.settle()
        await agrees(indexer, ())
        assert await indexer.deposits()


async def test_former_own_address_is_still_indexed(database: Path) -> None:
    chain = FakeChain(18)
    chain.mine_some(80)
    async with world(database, chain, own=WALLETS[1]) as (indexer, _):
        await indexer.settle()
        indexer.own = WALLETS[2]
        chain.mine_some(20)
        await indexer.settle()
        came = chain.deposits(WALLETS[1]), chain.deposits(WALLETS[2])
        rows = (await fetch(indexer.store, sa.select(deposits.deposit))).all()
    for own, expected in zip(WALLETS[1:3], came, strict=True):
        mine = [row for row in rows if row.pay_to == "0x" + own.hex()]
        assert {(row.number, row.block_hash, row.log_index) for row in mine} == {
            entry[:3] for entry in expected
        }
        assert len(mine) == len(expected) > 20


async def test_authorization_hidden_by_a_node_is_found_when_the_block_is_final(
    database: Path,
) -> None:
    """At first, the transfer looks like one that paid for nothing."""
    chain = FakeChain(19)
    chain.mine_some(60)

    class Reticent(FakeNode):
        silent = True

        def logs(self, where: dict[str, Any]) -> list[dict[str, Any]]:
            logs = super().logs(where)
            return [log for log in logs if not (self.silent and log["topics"][0] == USED)]

    node = Reticent(chain)
    async with Indexer(database, [node], chain, own=WALLETS[1]) as indexer:
        node.silent = False
        await indexer.settle()
        node.silent = True
        chain.mine(chain.write.payment((PAYERS[0], WALLETS[1], 5_000)))
        await indexer.round()
        assert await indexer.deposits() != chain.deposits(WALLETS[1])
        node.silent = False
        for _ in range(50):
            chain.mine()
        await indexer.settle()
        await agrees(indexer, ())


async def test_query_is_split_at_the_limits_of_a_provider(database: Path) -> None:
    chain = FakeChain(6)
    chain.mine_some(100, txs=6)
    mood = Mood(range_max=7, results_max=9, topics_max=3, batch_max=4)
    async with world(database, chain, mood) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle(200)
        await agrees(indexer, WALLETS)
    assert nodes[0].largest_topics <= 5


async def test_list_of_topics_has_at_most_500_entries(database: Path) -> None:
    chain = FakeChain(7)
    chain.mine_some(60)
    many = [address(f"other wallet {n}") for n in range(1_300)]
    settings = IndexSettings(audit=1, span=500)
    async with world(database, chain, Mood(), settings=settings) as (indexer, nodes):
        await indexer.watch(*WALLETS, *many)
        await indexer.settle()
        await agrees(indexer, [*WALLETS, *many])
        assert nodes[0].largest_topics == 500


async def test_hidden_logs_are_detected_with_a_second_node(database: Path) -> None:
    chain = FakeChain(8)
    chain.mine_some(150)
    async with world(database, chain, Mood(lie_empty=1.0), Mood()) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_logs_hidden_at_the_tip_are_added_when_the_block_is_final(database: Path) -> None:
    """With only one node, hidden logs of new blocks cannot be detected until the blocks are
    final.
    """
    chain = FakeChain(9)
    chain.mine_some(60)
    async with world(database, chain) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        nodes[0].mood.lie_partly = 0.7
        chain.mine_some(30)
        await indexer.round()
        assert await indexer.rows() < chain.compute_expected(WALLETS)
        nodes[0].mood.lie_partly = 0.0
        for _ in range(50):
            chain.mine()
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_nodes_on_two_forks_end_on_the_longer_one(database: Path) -> None:
    chain = FakeChain(10)
    chain.mine_some(100)
    async with world(database, chain, Mood(), Mood()) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        nodes[0].mood.fork = list(chain.blocks)
        chain.reorg(6, 12)
        for _ in range(6):
            with contextlib.suppress(DeepReorgError):
                await indexer.round()
        nodes[0].mood.fork = None
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_chain_that_contradicts_final_blocks_is_not_followed(database: Path) -> None:
    chain = FakeChain(11)
    chain.mine_some(120)
    async with world(database, chain) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        before = await indexer.rows()
        chain.final = 0
        chain.reorg(70, 75)
        with pytest.raises(DeepReorgError):
            await indexer.round()
        assert await indexer.rows() == before


async def test_node_of_another_chain_is_not_queried(database: Path) -> None:
    chain = FakeChain(12)
    chain.mine_some(50)

    class Stranger(FakeNode):
        def result(self, method: str, params: list[Any]) -> Any:
            return hex(1) if method == "eth_chainId" else super().result(method, params)

    node = Stranger(chain)
    async with Indexer(database, [node], chain) as indexer:
        await indexer.watch(*WALLETS)
        assert (await indexer.round())["unreachable"] == 1
        assert "eth_getLogs" not in node.calls


async def test_depth_replaces_a_missing_finalized_tag(database: Path) -> None:
    chain = FakeChain(13)
    chain.mine_some(130)
    settings = IndexSettings(audit=1, finality=50, tip_span=16, span=40)
    async with world(database, chain, Mood(finalized=False), settings=settings) as (indexer, _):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        chain.reorg(20, 25)
        await indexer.settle()
        await agrees(indexer, WALLETS)


async def test_settlements_reach_the_evidence_and_the_statistics(database: Path) -> None:
    chain = FakeChain(14, stamped=True)
    wallet, (first, second) = WALLETS[0], PAYERS[:2]
    chain.mine(chain.write.payment((first, wallet, 700), (second, wallet, 50)))
    chain.mine(chain.write.payment((first, wallet, 300)), chain.write.plain(first, wallet, 9_999))
    chain.mine(chain.write.payment((wallet, wallet, 1_000)), chain.write.plain(wallet, second, 20))
    chain.mine(chain.write.plain(wallet, STRANGER, 4))
    async with world(database, chain) as (indexer, _):
        await indexer.watch(wallet)
        await indexer.settle()
        host = f"seller-{wallet.hex()}.dev"
        (listed,) = await indexer.store.reading(rated_endpoints.of_host, host, limit=9)
        endpoint = await indexer.store.reading(endpoints.get, listed.id)
        assert endpoint is not None
        seen = await indexer.store.reading(scoring.gather, endpoint, as_of=indexer.now())
        (found,) = await indexer.store.reading(periods.load_published)
    assert seen.chain is not None
    demand = seen.chain.demand
    assert demand is not None
    assert (demand.transfers, demand.own, demand.returned) == (2, 1_000, 0)
    assert (demand.payers, demand.volume) == (1, 1_000)
    assert seen.chain.indexed_to_block == chain.head.number
    assert seen.chain.indexed_ms > 0
    assert (found.window.volume, found.window.proven_buyers) == (1_000, 0)
    assert (found.window.sellers, found.window.buyers, found.wallets) == (1, 1, 1)


async def test_only_endpoints_with_new_payments_are_rescored(database: Path) -> None:
    chain = FakeChain(15)
    chain.mine_some(60)
    async with world(database, chain) as (indexer, _):
        await indexer.watch(*WALLETS[:3])
        await indexer.settle()
        await indexer.store.writing(
            endpoints.claim_dirty, now=indexer.now(), limit=9, max_age_ms=10**12
        )
        chain.mine(chain.write.payment((PAYERS[0], WALLETS[1], 500)))
        tally = await indexer.round()
        assert tally["marked"] == 1
        dirty = await indexer.store.writing(
            endpoints.claim_dirty, now=indexer.now(), limit=9, max_age_ms=10**12
        )
        endpoints_by_id = await indexer.store.writing(endpoints.get_many, dirty)
    assert [endpoint.quote.pay_to for endpoint in endpoints_by_id.values() if endpoint.quote] == [
        "0x" + WALLETS[1].hex()
    ]
