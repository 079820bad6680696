"""Several chains in one database, each with its nodes, cursor and reorganisations."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.fake_chain import FINAL_DEPTH, PAYERS, TOKEN, WALLETS, FakeChain
from tests.support.fake_node import Mood
from tests.support.indexer import Indexer, agrees, world

from tollgauge.core.endpoint.terms import KnownOffer, Quote
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.evidence_document import from_json, to_json
from tollgauge.core.score.scoring import score
from tollgauge.monitor import scoring
from tollgauge.store.chain import cursors, periods
from tollgauge.store.endpoints import endpoints, rated_endpoints
from tollgauge.store.probes import probes

POLYGON, ARBITRUM = 137, 42161


@pytest.fixture
def database(tmp_path: Path, empty_sqlite: Path) -> Path:
    return Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))


async def test_reorganisation_of_one_chain_leaves_the_other_unchanged(database: Path) -> None:
    base, polygon = FakeChain(1), FakeChain(2, chain_id=POLYGON)
    async with world(database, base) as (one, _), world(database, polygon) as (other, _):
        for indexer in (one, other):
            indexer.chain.mine_some(90)
            await indexer.watch(*WALLETS[:2])
            await indexer.settle()
        known = await other.rows()
        base.reorg(12, 14)
        await one.settle()
        await agrees(one, WALLETS[:2])
        assert await other.rows() == known
        polygon.reorg(5, 3)
        polygon.mine_some(4)
        await other.settle()
        await agrees(other, WALLETS[:2])
        assert [found.chain for found in await one.store.reading(periods.load_published)] == [
            POLYGON,
            8453,
        ]


async def test_unreachable_chain_does_not_delay_the_other(database: Path) -> None:
    base, polygon = FakeChain(3), FakeChain(4, chain_id=POLYGON)
    async with (
        world(database, base, Mood(garbage=1.0)) as (one, _),
        world(database, polygon) as (other, _),
    ):
        polygon.mine_some(60)
        await one.watch(WALLETS[0])
        await other.watch(WALLETS[0])
        assert (await one.round())["unreachable"] == 1
        await other.settle()
        await agrees(other, WALLETS[:1])


async def test_chain_with_blocks_under_one_second_is_followed_to_its_final_block(
    database: Path,
) -> None:
    chain = FakeChain(5, chain_id=ARBITRUM)
    chain.mine_some(150)
    async with world(database, chain) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        await _agrees_to_final(indexer)
        chain.reorg(FINAL_DEPTH - 1, FINAL_DEPTH + 20)
        await indexer.settle()
        await _agrees_to_final(indexer)
        # Blocks are read in ranges: far fewer queries than blocks.
        assert nodes[0].calls["eth_getLogs"] < len(chain.blocks) / 2


async def _agrees_to_final(indexer: Indexer) -> None:
    """Check that the table equals a replay of the final blocks."""
    final = indexer.chain.head.number - FINAL_DEPTH
    expected = {row for row in indexer.chain.compute_expected(WALLETS) if row[0] <= final}
    assert await indexer.rows() == expected
    cursor = await indexer.store.reading(cursors.cursor, indexer.chain.chain_id)
    assert cursor is not None
    assert cursor.number == cursor.finalized == final


async def test_payments_of_every_form_are_read_like_others(database: Path) -> None:
    chain = FakeChain(8, forms=True)
    chain.mine_some(120)
    async with world(database, chain) as (indexer, _):
        await indexer.watch(*WALLETS[:3])
        await indexer.settle()
        await agrees(indexer, WALLETS[:3])
        chain.reorg(9, 12)
        chain.mine_some(30)
        await indexer.watch(WALLETS[3])
        await indexer.settle()
        await agrees(indexer, WALLETS[:4])


async def test_activity_is_the_sum_over_the_networks_of_the_offers(database: Path) -> None:
    wallet, elsewhere, payer = WALLETS[0], WALLETS[1], PAYERS[0]
    base, polygon = FakeChain(6), FakeChain(7, chain_id=POLYGON)
    base.mine(base.write.payment((payer, wallet, 700)))
    polygon.mine(polygon.write.payment((payer, elsewhere, 40_000)))
    polygon.mine(polygon.write.plain(elsewhere, payer, 10_000))
    async with contextlib.AsyncExitStack() as stack:
        one, _ = await stack.enter_async_context(world(database, base))
        other, _ = await stack.enter_async_context(world(database, polygon))
        await one.watch(wallet)
        host = f"seller-{wallet.hex()}.dev"
        (listed,) = await one.store.reading(rated_endpoints.of_host, host, limit=9)
        offers = (
            KnownOffer("eip155:8453", "exact", "0x" + wallet.hex(), 5_000),
            KnownOffer("eip155:137", "exact", "0x" + elsewhere.hex(), 5_000),
        )
        seen = ProbeResult(
            at=one.now(),
            outcome=Outcome.PAYMENT_REQUIRED,
            attribution=Attribution.TARGET,
            up=True,
            payable=True,
            status=402,
            timings=Timings(total=80),
            accepts=2,
            quote=Quote(
                network="eip155:8453", asset=TOKEN, amount=5_000, pay_to="0x" + wallet.hex()
            ),
            forms=("eip155:137 eip3009", "eip155:8453 eip3009"),
            offers=offers,
        )
        await one.store.writing(probes.record_many, listed.id, [seen])
        for indexer in (one, other):
            await indexer.settle()
        endpoint = await one.store.reading(endpoints.get, listed.id)
        assert endpoint is not None
        evidence = await one.store.reading(scoring.gather, endpoint, as_of=seen.at + 1_000)
        assert from_json(to_json(evidence)) == evidence
        result = score(evidence)
        # The address of a former envelope is no longer part of the evidence.
        only = replace(seen, at=seen.at + 1, offers=offers[:1], forms=("eip155:8453 eip3009",))
        await one.store.writing(probes.record_many, listed.id, [only])
        endpoint = await one.store.reading(endpoints.get, listed.id)
        assert endpoint is not None
        later = await one.store.reading(scoring.gather, endpoint, as_of=seen.at + 2_000)
    assert [chain.network for chain in evidence.other_chains] == ["eip155:137"]
    assert result.demand is not None
    assert (result.demand.payers, result.demand.volume) == (2, 40_700)
    assert result.coverage == {
        "eip155:137": {"eip3009": "read"},
        "eip155:8453": {"eip3009": "read"},
    }
    assert not result.is_activity_partial
    assert later.other_chains == ()
