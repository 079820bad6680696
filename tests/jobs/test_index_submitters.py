"""Looking up who submitted settlements, on a chain that reorganises and with nodes that fail."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from tests.support.fake_chain import FINAL_DEPTH, WALLETS, FakeChain
from tests.support.fake_node import Mood
from tests.support.indexer import QUICK, Indexer, _fields, agrees, world
from tests.support.statements import fetch
from x402.extensions.builder_code import encode_builder_code_suffix
from x402.extensions.builder_code.types import ERC_8021_MARKER, BuilderCodeExtensionData

from tollgauge.jobs.index_visit import LOOKUP_RETRY_MS
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.store.chain.transfers import transfer

LOOKUP = "eth_getTransactionByHash"


@pytest.fixture
def database(tmp_path: Path, empty_sqlite: Path) -> Path:
    return Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))


def limit_lookups(count: int) -> IndexSettings:
    return IndexSettings(**{**_fields(QUICK), "submitters": count})


async def payments(indexer: Indexer) -> list[Any]:
    """Return the stored payments, oldest first."""
    query = sa.select(transfer).where(transfer.c.incoming).order_by(transfer.c.number)
    return list((await fetch(indexer.store, query)).all())


async def finish(indexer: Indexer) -> None:
    """Run rounds until no transaction of a final block is left."""
    await indexer.settle()
    while (await indexer.round()).get("submitters"):
        pass


async def test_submitters_of_final_payments_follow_the_chain_through_a_reorganisation(
    database: Path,
) -> None:
    chain = FakeChain(1)
    chain.mine_some(100)
    async with world(database, chain) as (indexer, _):
        await indexer.watch(*WALLETS)
        await finish(indexer)
        rows = await payments(indexer)
        assert any(row.number > chain.final for row in rows)
        assert {row.submitter for row in rows if row.number > chain.final} == {None}
        chain.reorg(30, 35)
        chain.mine_some(FINAL_DEPTH)
        await finish(indexer)
        await agrees(indexer, WALLETS)
        rows = [row for row in await payments(indexer) if row.number <= chain.final]
    assert len({row.submitter for row in rows}) > 1
    for row in rows:
        assert "0x" + row.submitter.hex() == chain.transactions[row.transaction]["from"]


BUILDER_CODES: Final = (
    (encode_builder_code_suffix(BuilderCodeExtensionData(a="bc_maps", w="wallet")), "bc_maps"),
    (encode_builder_code_suffix(BuilderCodeExtensionData(w="wallet", s=["sdk"])), ""),
    (encode_builder_code_suffix(BuilderCodeExtensionData(a="A code; DROP")), ""),
    ("0x" + "a1" + "6161" + "0003" + "02" + ERC_8021_MARKER, ""),
    ("0x" + "ff" * 40 + "0028" + "02" + ERC_8021_MARKER, ""),
    ("0x" + "zz" + "0001" + "02" + ERC_8021_MARKER, ""),
    ("0x", ""),
    (None, ""),
    (7, ""),
)
"""Suffixes of the data of a transaction, with the code that is stored."""


async def test_builder_code_of_a_settlement_is_stored_if_it_is_valid(database: Path) -> None:
    chain = FakeChain(1)
    chain.mine_some(200)
    cases = dict(zip(chain.transactions, itertools.cycle(BUILDER_CODES), strict=False))
    for key, (suffix, _) in cases.items():
        data = "0xe3ee160e" + suffix[2:] if isinstance(suffix, str) else suffix
        chain.transactions[key]["input"] = data
    async with world(database, chain) as (indexer, _):
        await indexer.watch(*WALLETS)
        await finish(indexer)
        rows = [row for row in await payments(indexer) if row.number <= chain.final]
    assert {cases[row.transaction] for row in rows} == set(BUILDER_CODES)
    for row in rows:
        suffix, expected = cases[row.transaction]
        assert (bool(row.submitter), row.app_code) == (True, expected), suffix


async def test_a_round_looks_up_the_newest_payments_and_at_most_the_configured_number(
    database: Path,
) -> None:
    chain = FakeChain(2)
    chain.mine_some(150)
    async with world(database, chain, settings=limit_lookups(3)) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        for _ in range(8):
            before = nodes[0].calls.get(LOOKUP, 0)
            await indexer.round()
            assert nodes[0].calls.get(LOOKUP, 0) - before <= 3
        final = [row for row in await payments(indexer) if row.number <= chain.final]
        before = nodes[0].calls[LOOKUP]
        await finish(indexer)
        count = len({row.transaction for row in await payments(indexer) if row.submitter})
    known = [row.number for row in final if row.submitter is not None]
    assert known
    assert min(known) >= max(row.number for row in final if row.submitter is None)
    assert nodes[0].calls[LOOKUP] == count > before


async def test_lookups_can_be_turned_off(database: Path) -> None:
    chain = FakeChain(3)
    chain.mine_some(100)
    async with world(database, chain, settings=limit_lookups(0)) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
    assert LOOKUP not in nodes[0].calls


async def test_node_without_the_method_is_asked_once_and_still_indexed(database: Path) -> None:
    chain = FakeChain(4)
    chain.mine_some(100)
    async with world(database, chain, Mood(no_transactions=True)) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await indexer.settle()
        calls = nodes[0].calls[LOOKUP]
        await indexer.round()
        assert nodes[0].calls[LOOKUP] == calls
        await agrees(indexer, WALLETS)
        assert {row.submitter for row in await payments(indexer)} == {None}
        nodes[0].mood.no_transactions = False
        chain.mine_some(LOOKUP_RETRY_MS // 2_000 + 1, txs=0)
        await finish(indexer)
        assert all(row.submitter for row in await payments(indexer))


async def test_transactions_that_the_node_lacks_are_not_asked_for_again(database: Path) -> None:
    chain = FakeChain(5)
    chain.mine_some(100)
    async with world(database, chain, Mood(null_transactions=True)) as (indexer, nodes):
        await indexer.watch(*WALLETS)
        await finish(indexer)
        rows = await payments(indexer)
        assert {row.submitter for row in rows if row.number <= chain.final} == {b""}
        calls = nodes[0].calls[LOOKUP]
        await indexer.round()
        assert nodes[0].calls[LOOKUP] == calls


@pytest.mark.parametrize(
    "change",
    [{"from": None}, {"from": "0x12"}, {"blockHash": None}, {"blockHash": "0x" + "00" * 32}],
)
async def test_answers_for_another_block_or_without_an_address_are_unknown(
    database: Path, change: dict[str, Any]
) -> None:
    chain = FakeChain(6)
    chain.mine_some(100)
    for transaction in chain.transactions.values():
        transaction.update(change)
    async with world(database, chain) as (indexer, _):
        await indexer.watch(*WALLETS)
        await finish(indexer)
        rows = await payments(indexer)
    assert {row.submitter for row in rows if row.number <= chain.final} == {b""}
