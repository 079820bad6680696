"""Indexed chains on both databases: cursors, reorganisations, sums, windows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.databases import on_each, on_sqlite
from tests.support.statements import fetch

from tollgauge.core.base.units import DAY_MS, WINDOW_MS
from tollgauge.core.chain.blocks import BlockHeader, Span
from tollgauge.core.chain.settlement import Entry
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.score.evidence import DemandEvidence
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring, settlement
from tollgauge.store.chain import cursors as chains
from tollgauge.store.chain import periods, transfers, volumes, wallets
from tollgauge.store.chain.cursors import Cursor, CursorOvertakenError
from tollgauge.store.chain.volumes import Coverage
from tollgauge.store.endpoints import endpoints

CHAIN = 8453
NETWORK = f"eip155:{CHAIN}"
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
NOW = 20_500 * DAY_MS + DAY_MS // 2
SELLER, SHOP = (hashlib.sha256(name).digest()[:20] for name in (b"seller", b"shop"))
ANN, BEN, EVE = (hashlib.sha256(name).digest()[:20] for name in (b"ann", b"ben", b"eve"))


def text(address: bytes) -> str:
    return "0x" + address.hex()


def header(number: int, *, fork: str = "", at: int = NOW) -> BlockHeader:
    digest = hashlib.sha256(f"{number}{fork}".encode()).digest()
    parent = hashlib.sha256(f"{number - 1}{fork}".encode()).digest()
    return BlockHeader(number, digest, parent, at)


def entry(
    block: BlockHeader,
    index: int,
    wallet: bytes,
    other: bytes,
    value: int,
    *,
    incoming: bool = True,
) -> Entry:
    nonce = hashlib.sha256(f"{block.number}/{index}".encode()).digest() if incoming else None
    return Entry(
        block.number, block.hash, index, wallet, other, incoming, value, nonce, bytes(32), block.at
    )


async def list_endpoints(store: Store, *wallets: bytes, host: str = "seller") -> None:
    for wallet in wallets:
        resource = parse_resource(f"https://{host}-{wallet.hex()[:8]}.dev/pay")
        await store.writing(
            endpoints.insert,
            Endpoint(
                id=resource.id,
                resource=resource.url,
                host=resource.host,
                first_seen=0,
                last_seen=0,
                quote=Quote(network=NETWORK, asset=USDC, amount=1, pay_to=text(wallet)),
                quote_at=0,
            ),
        )


async def start_index(store: Store, *addresses: bytes, at: int = NOW) -> Cursor:
    """A chain that is indexed up to block 100, with these wallets."""
    await list_endpoints(store, *addresses)
    cursor = await store.writing(chains.start, CHAIN, header(100, at=at))
    return await store.writing(
        chains.add_wallets, cursor, await store.writing(wallets.new_addresses, CHAIN)
    )


async def advance_cursor(
    store: Store, cursor: Cursor, headers: Sequence[BlockHeader], *entries: Entry, **rest: Any
) -> Cursor:
    return await store.writing(
        chains.advance, cursor, headers, entries, finalized=rest.pop("finalized", 100), **rest
    )


async def rows(store: Store) -> list[tuple[Any, ...]]:
    query = sa.select(transfers.transfer.c.number, transfers.transfer.c.value)
    return sorted(tuple(row) for row in await fetch(store, query))


async def sums(store: Store) -> dict[tuple[bytes, int, bytes], tuple[int, int, int]]:
    rows = (await fetch(store, sa.select(transfers.transfer_day))).all()
    return {(r.wallet, r.day, r.other): (r.transfers, r.paid, r.returned) for r in rows}


async def coverage_of(store: Store, wallet: bytes) -> Coverage | None:
    covered = await store.reading(volumes.coverages, CHAIN, [text(wallet)], as_of=NOW)
    return covered.get(text(wallet))


@on_sqlite
async def test_step_writes_entries_and_cursor_together(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    block = header(101)
    after = await advance_cursor(store, cursor, [block], entry(block, 3, SELLER, ANN, 5_000))
    assert (after.number, after.hash) == (101, block.hash)
    assert await rows(store) == [(101, 5000)]
    assert await sums(store) == {(SELLER, 20_500, ANN): (1, 5000, 0)}


async def test_step_from_an_outdated_cursor_changes_nothing(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    block = header(101)
    await advance_cursor(store, cursor, [block], entry(block, 3, SELLER, ANN, 5_000))
    with pytest.raises(CursorOvertakenError):
        await advance_cursor(store, cursor, [block], entry(block, 3, SELLER, ANN, 5_000))
    assert await rows(store) == [(101, 5000)]


@on_sqlite
async def test_step_without_a_new_wallet_is_rejected(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    await list_endpoints(store, SHOP)
    after = await store.writing(
        chains.add_wallets, cursor, await store.writing(wallets.new_addresses, CHAIN)
    )
    with pytest.raises(CursorOvertakenError):
        await advance_cursor(store, cursor, [header(101)])
    await advance_cursor(store, after, [header(101)])


async def test_reorganisation_removes_exactly_the_rows_of_its_blocks(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    old = [header(101), header(102), header(103)]
    cursor = await advance_cursor(
        store,
        cursor,
        old,
        entry(old[0], 0, SELLER, ANN, 10),
        entry(old[1], 0, SELLER, ANN, 20),
        entry(old[2], 0, SELLER, BEN, 40, incoming=False),
    )
    new = [header(102, fork="b"), header(103, fork="b"), header(104, fork="b")]
    cursor = await advance_cursor(
        store, cursor, new, entry(new[1], 9, SELLER, BEN, 80), common=101, finalized=101
    )
    assert await rows(store) == [(101, 10), (103, 80)]
    assert await sums(store) == {
        (SELLER, 20_500, ANN): (1, 10, 0),
        (SELLER, 20_500, BEN): (1, 80, 0),
    }
    kept = await store.reading(chains.kept_hashes, CHAIN)
    assert kept == {101: old[0].hash, **{block.number: block.hash for block in new}}
    assert cursor.finalized == 101


async def test_sums_may_exceed_integer_columns(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    block, most = header(101), 2**256 - 1
    cursor = await advance_cursor(
        store, cursor, [block], *(entry(block, n, SELLER, ANN, most) for n in range(3))
    )
    assert (await sums(store))[(SELLER, 20_500, ANN)] == (3, 3 * most, 0)
    block = header(101, fork="b")
    await advance_cursor(store, cursor, [block], entry(block, 0, SELLER, ANN, 1), common=100)
    assert (await sums(store))[(SELLER, 20_500, ANN)] == (1, 1, 0)


async def test_entries_of_a_large_step_are_stored_once(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    block = header(101)
    payers = [hashlib.sha256(b"%d" % n).digest()[:20] for n in range(7_000)]
    entries = [entry(block, n, SELLER, payer, n) for n, payer in enumerate(payers)]
    cursor = await advance_cursor(store, cursor, [block], *entries)
    assert len(await rows(store)) == len(await sums(store)) == 7_000
    await advance_cursor(store, cursor, [header(101, fork="b")], common=100)
    assert await rows(store) == []
    assert await sums(store) == {}


async def test_wallets_are_back_filled_downwards_and_merged(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    cursor = await advance_cursor(store, cursor, [header(101), header(102)])
    await list_endpoints(store, SHOP)
    cursor = await store.writing(
        chains.add_wallets, cursor, await store.writing(wallets.new_addresses, CHAIN)
    )
    missing = await store.writing(wallets.backlog, CHAIN, limit=10)
    assert missing is not None
    assert (missing.low, missing.floor, missing.wallets) == (103, 101, frozenset({SHOP}))
    block = header(102)
    entries = [entry(block, 1, SHOP, ANN, 7)]
    await store.writing(
        chains.fill, cursor, missing, entries, low=101, low_at=NOW - 5, wanted_from=NOW - WINDOW_MS
    )
    missing = await store.writing(wallets.backlog, CHAIN, limit=10)
    assert missing is not None
    assert (missing.low, missing.floor) == (101, 0)
    assert missing.wallets == {SELLER, SHOP}
    await store.writing(chains.fill, cursor, missing, [], low=0, low_at=NOW - 9, wanted_from=0)
    assert await store.writing(wallets.backlog, CHAIN, limit=10) is None
    covered = await coverage_of(store, SHOP)
    assert covered is not None
    assert covered.indexed_ms == WINDOW_MS  # nothing was before the chain's first block
    assert await store.writing(wallets.lows, CHAIN) == {SELLER: 0, SHOP: 0}
    assert await rows(store) == [(102, 7)]


async def test_same_blocks_are_not_back_filled_twice(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    block = header(100)
    missing = await store.writing(wallets.backlog, CHAIN, limit=10)
    assert missing is not None
    rest: dict[str, Any] = {"low": 100, "low_at": NOW, "wanted_from": 0}
    await store.writing(chains.fill, cursor, missing, [entry(block, 1, SELLER, ANN, 7)], **rest)
    with pytest.raises(CursorOvertakenError):
        await store.writing(chains.fill, cursor, missing, [entry(block, 1, SELLER, ANN, 7)], **rest)
    assert await rows(store) == [(100, 7)]


async def test_wallet_added_on_a_removed_block_is_indexed_from_the_fork(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    cursor = await advance_cursor(store, cursor, [header(101), header(102), header(103)])
    await list_endpoints(store, SHOP)
    cursor = await store.writing(
        chains.add_wallets, cursor, await store.writing(wallets.new_addresses, CHAIN)
    )
    fork = [header(n, fork="b", at=NOW + n) for n in (102, 103, 104)]
    await advance_cursor(store, cursor, fork, common=101)
    assert (await store.reading(wallets.lows, CHAIN))[SHOP] == 102


async def test_audit_adds_missing_entries_once(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    blocks = [header(101), header(102)]
    seen = entry(blocks[0], 1, SELLER, ANN, 5)
    hidden = entry(blocks[1], 1, SELLER, BEN, 6)
    cursor = await advance_cursor(store, cursor, blocks, seen, finalized=102)
    added = await store.writing(
        chains.record_audit, cursor, Span(101, 102, final=True), [seen, hidden], at=NOW
    )
    assert added == 1
    assert await rows(store) == [(101, 5), (102, 6)]
    with pytest.raises(CursorOvertakenError):
        await store.writing(
            chains.record_audit, cursor, Span(101, 102, final=True), [seen, hidden], at=NOW
        )


@on_sqlite
async def test_endpoints_of_a_wallet_are_marked_at_most_once_per_interval(store: Store) -> None:
    cursor = await start_index(store, SELLER, SHOP)
    await list_endpoints(store, SELLER, host="other")
    block = header(101)
    cursor = await advance_cursor(store, cursor, [block], entry(block, 0, SELLER, ANN, 1))
    assert await store.writing(wallets.mark_dirty, CHAIN, now=NOW, every_ms=1_000) == 2
    assert await store.writing(wallets.mark_dirty, CHAIN, now=NOW, every_ms=1_000) == 0
    block = header(102)
    await advance_cursor(store, cursor, [block], entry(block, 0, SELLER, ANN, 1))
    assert await store.writing(wallets.mark_dirty, CHAIN, now=NOW + 999, every_ms=1_000) == 0
    assert await store.writing(wallets.mark_dirty, CHAIN, now=NOW + 1_000, every_ms=1_000) == 2


@on_sqlite
async def test_only_evm_addresses_of_the_chain_become_wallets(store: Store) -> None:
    await list_endpoints(store, SELLER)
    for number, (network, pay_to) in enumerate(
        [("eip155:1", text(SHOP)), (NETWORK, "0x12"), (NETWORK, "alice"), ("solana:x", "abc")]
    ):
        resource = parse_resource(f"https://odd-{number}.dev/pay")
        quote = Quote(network=network, asset=USDC, amount=1, pay_to=pay_to)
        await store.writing(
            endpoints.insert,
            Endpoint(
                id=resource.id,
                resource=resource.url,
                host=resource.host,
                first_seen=0,
                last_seen=0,
                quote=quote,
                quote_at=0,
            ),
        )
    assert await store.writing(wallets.new_addresses, CHAIN) == (text(SELLER),)


@on_each([0, 1, DAY_MS // 2, DAY_MS - 1], postgres=[DAY_MS - 1])
async def test_window_is_exact_to_the_millisecond(store: Store, value: int) -> None:
    as_of = NOW + value
    cursor = await start_index(store, SELLER, at=as_of - 40 * DAY_MS)
    instants = sorted(
        {
            *(as_of - WINDOW_MS + off for off in (-1, 0, 1)),
            *(day * DAY_MS + off for day in range(20_469, 20_502) for off in (-1, 0, 1)),
            as_of - 1,
            as_of,
        }
    )
    instants = [instant for instant in instants if instant <= as_of]
    blocks = [header(101 + n, at=at) for n, at in enumerate(instants)]
    entries = [entry(block, 0, SELLER, ANN, 2**n) for n, block in enumerate(blocks)]
    await advance_cursor(store, cursor, blocks, *entries)
    for moment in (as_of, as_of - 1, as_of - DAY_MS - 1, as_of + 1, as_of + DAY_MS):
        inside = [n for n, at in enumerate(instants) if moment - WINDOW_MS < at <= moment]
        ((_, row),) = await store.reading(volumes.payers, CHAIN, text(SELLER), as_of=moment)
        whole = await store.reading(volumes.measure_chain, CHAIN, as_of=moment)
        assert (row.transfers, row.paid) == (len(inside), sum(2**n for n in inside)), moment
        assert whole.figures.volume == row.paid, moment


@on_sqlite
async def test_coverage_states_the_indexed_part_of_the_window(store: Store) -> None:
    cursor = await start_index(store, SELLER, at=NOW - 10 * DAY_MS)
    assert await coverage_of(store, SHOP) is None
    covered = await coverage_of(store, SELLER)
    assert covered is not None
    assert covered.indexed_ms == 0
    await advance_cursor(store, cursor, [header(101, at=NOW - DAY_MS)])
    covered = await coverage_of(store, SELLER)
    assert covered is not None
    assert (covered.indexed_ms, covered.to_block) == (9 * DAY_MS, 101)
    assert covered.to_at == NOW - DAY_MS


async def test_evidence_contains_payer_sums_and_returned_amounts(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    block = header(101)
    await advance_cursor(
        store,
        cursor,
        [block],
        entry(block, 0, SELLER, ANN, 50),
        entry(block, 1, SELLER, SELLER, 9),
        entry(block, 2, SELLER, ANN, 20, incoming=False),
        entry(block, 3, SELLER, EVE, 99, incoming=False),
    )
    (known,) = (await store.reading(endpoints.get_many, [await store.reading(_id)])).values()
    seen = await store.reading(scoring.gather, known, as_of=NOW)
    assert seen.chain is not None
    assert seen.chain.demand == DemandEvidence(transfers=1, payers=1, volume=50, own=9, returned=20)
    payers = await store.reading(volumes.payers, CHAIN, text(SELLER), as_of=NOW)
    assert [(payer, *flow) for payer, flow in payers] == [
        (text(ANN), 1, 50, 20),
        (text(SELLER), 1, 9, 0),
    ]


def _id(tx: Connection) -> str:
    return str(tx.execute(sa.select(schema.endpoint.c.id)).scalar_one())


async def test_payer_list_contains_the_largest_payers(store: Store) -> None:
    cursor = await start_index(store, SELLER)
    block = header(101)
    entries = [entry(block, n, SELLER, payer, n) for n, payer in enumerate((EVE, BEN, ANN))]
    await advance_cursor(store, cursor, [block], *entries)
    payers = await store.reading(volumes.payers, CHAIN, text(SELLER), as_of=NOW, most=2)
    assert [payer for payer, _ in payers] == [text(ANN), text(BEN)]


async def test_volume_of_a_chain_excludes_self_payments(store: Store) -> None:
    cursor = await start_index(store, SELLER, SHOP, at=NOW - WINDOW_MS)
    block = header(101)
    await advance_cursor(
        store,
        cursor,
        [block],
        entry(block, 0, SELLER, ANN, 50),
        entry(block, 1, SELLER, ANN, 20, incoming=False),
        entry(block, 2, SELLER, SELLER, 9),
        entry(block, 3, SHOP, ANN, 2**200),
        entry(block, 4, SHOP, BEN, 1, incoming=False),
    )
    await settlement.measure(store, CHAIN, now=NOW)
    (found,) = await store.reading(periods.load_published)
    assert (found.window.volume, found.window.proven_volume) == (2**200 + 50, 0)
    assert (found.window.sellers, found.window.buyers, found.wallets) == (2, 1, 2)
    assert found.indexed_permille == 1_000


async def test_old_transfers_and_sums_are_deleted_in_batches(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "FORGET_BLOCKS", 1)
    monkeypatch.setattr(settlement, "FORGET_WALLETS", 1)
    cursor = await start_index(store, SELLER, SHOP)
    old, later = header(101, at=NOW - 50 * DAY_MS), header(102, at=NOW - 49 * DAY_MS)
    new = header(103)
    await advance_cursor(
        store,
        cursor,
        [old, later, new],
        entry(old, 0, SELLER, ANN, 1),
        entry(later, 0, SHOP, ANN, 1),
        entry(new, 0, SELLER, ANN, 2),
    )
    await settlement.forget(store, CHAIN, now=NOW)
    assert await rows(store) == [(103, 2)]
    assert list(await sums(store)) == [(SELLER, 20_500, ANN)]
