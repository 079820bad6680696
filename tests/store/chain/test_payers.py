"""When and where payers were first seen, on both databases."""

from __future__ import annotations

import hashlib

from tests.support.statements import fetch

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.chain.settlement import Entry
from tollgauge.core.score.organic import First
from tollgauge.db.engine import Store
from tollgauge.store.chain import payers

CHAIN = 8453
DAY = 20_500
SELLER, SHOP, ANN, BEN, EVE = (
    hashlib.sha256(name).digest()[:20] for name in (b"seller", b"shop", b"ann", b"ben", b"eve")
)


def paid(payer: bytes, wallet: bytes, at: int, *, incoming: bool = True) -> Entry:
    return Entry(at, bytes(32), 0, wallet, payer, incoming, 1, bytes(32), bytes(32), at)


async def firsts(store: Store) -> list[First]:
    return await store.reading(lambda tx: list(payers.firsts(tx, CHAIN)))


async def test_a_first_payment_is_the_earliest_in_whatever_order_blocks_are_read(
    store: Store,
) -> None:
    noon = DAY * DAY_MS
    await store.writing(
        payers.note, CHAIN, [paid(ANN, SHOP, noon), paid(ANN, SELLER, noon + 5), paid(BEN, SHOP, 9)]
    )
    await store.writing(payers.note, CHAIN, [paid(ANN, SELLER, noon - 7), paid(BEN, SHOP, 10)])
    await store.writing(payers.note, CHAIN, [paid(EVE, SELLER, noon, incoming=False)])
    await store.writing(payers.note, CHAIN + 1, [paid(ANN, SHOP, 1)])
    expected = [First(ANN, SELLER, noon - 7), First(BEN, SHOP, 9)]
    assert await firsts(store) == sorted(expected, key=lambda first: (first.pay_to, first.at))


async def test_a_payer_is_forgotten_when_he_paid_nothing_for_long(store: Store) -> None:
    old, new = (DAY - 50) * DAY_MS, DAY * DAY_MS
    await store.writing(payers.note, CHAIN, [paid(ANN, SHOP, old), paid(BEN, SHOP, old)])
    await store.writing(payers.note, CHAIN, [paid(ANN, SELLER, new)])
    await store.writing(payers.forget, CHAIN, before_day=DAY - 40)
    assert await firsts(store) == [First(ANN, SHOP, old)]
    rows = await fetch(store, payers.chain_payer.select())
    assert [row.last_day for row in rows] == [DAY]
