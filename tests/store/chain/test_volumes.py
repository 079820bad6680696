"""The sums of all wallets of a chain, on both databases."""

from __future__ import annotations

import hashlib

from tests.support.attacks import AS_OF, CENT, USD, Trade, address, market_of

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.chain.blocks import BlockHeader
from tollgauge.core.chain.settlement import Entry
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.score.organic import intervals
from tollgauge.db.engine import Store
from tollgauge.monitor import settlement
from tollgauge.store.chain import cursors, volumes, wallets
from tollgauge.store.endpoints import endpoints

CHAIN = 8453
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
SELLER, SHOP, RING = (address(name) for name in ("seller", "shop", "ring"))
SOLD_AT = (SELLER, SHOP, RING)
TRADES = [
    *(Trade(address("ann"), SELLER, 30 * USD, day) for day in (29.9, 20, 0.1)),
    Trade(address("ann"), SHOP, 40 * USD, 12),
    Trade(address("ben"), SELLER, 7 * USD, 3),
    Trade(address("ben"), SHOP, CENT - 1, 2),
    Trade(SELLER, address("ben"), 2 * USD, 1, authorized=False),
    *(Trade(address("public", n), SHOP, 500 * USD, 20 + n / 9) for n in range(6)),
    Trade(RING, SHOP, 9 * USD, 5),
    Trade(SHOP, RING, 9 * USD, 4),
]


def text(wallet: bytes) -> str:
    return "0x" + wallet.hex()


async def indexed(store: Store, trades: list[Trade]) -> None:
    """A chain on which these trades were indexed, a block each."""
    for wallet in SOLD_AT:
        resource = parse_resource(f"https://seller-{wallet.hex()[:12]}.dev/pay")
        quote = Quote(network=f"eip155:{CHAIN}", asset=USDC, amount=1, pay_to=text(wallet))
        endpoint = Endpoint(
            id=resource.id,
            resource=resource.url,
            host=resource.host,
            first_seen=0,
            last_seen=0,
            quote=quote,
            quote_at=0,
        )
        await store.writing(endpoints.insert, endpoint)
    start = await store.writing(cursors.start, CHAIN, BlockHeader(0, bytes(32), bytes(32), 0))
    new = await store.reading(wallets.new_addresses, CHAIN)
    cursor = await store.writing(cursors.add_wallets, start, new)
    headers, entries = [], []
    for number, trade in enumerate(sorted(trades, key=lambda trade: -trade.days), 1):
        at = AS_OF - round(trade.days * DAY_MS)
        block_hash = hashlib.sha256(b"%d" % number).digest()
        headers.append(BlockHeader(number, block_hash, bytes(32), at))
        nonce = bytes(32) if trade.authorized else None
        came = Entry(
            number,
            block_hash,
            0,
            trade.receiver,
            trade.sender,
            True,
            trade.value,
            nonce,
            block_hash,
            at,
        )
        if trade.receiver in SOLD_AT and trade.authorized:
            entries.append(came)
        if trade.sender in SOLD_AT:
            entries.append(came._replace(wallet=trade.sender, other=trade.receiver, incoming=False))
    await store.writing(cursors.advance, cursor, headers, entries, finalized=0)


async def test_the_rows_give_what_the_trades_give(store: Store) -> None:
    await indexed(store, TRADES)
    expected = dict(intervals(market_of(TRADES, SOLD_AT)))
    computed = await store.reading(volumes.compute_sums, CHAIN, as_of=AS_OF)
    assert dict(computed) == expected
    assert expected[SELLER].low.payers == 1
    assert expected[RING].high.payers == 0


async def test_a_measured_chain_is_read_by_one_row_a_wallet(store: Store) -> None:
    await indexed(store, TRADES)
    before = await store.reading(volumes.sums, CHAIN, text(SELLER), as_of=AS_OF)
    assert (before.organic.payers, before.high.payers) == (2, 0)
    await settlement.measure(store, CHAIN, now=AS_OF)
    expected = dict(intervals(market_of(TRADES, SOLD_AT)))
    for wallet in SOLD_AT:
        sums = await store.reading(volumes.sums, CHAIN, text(wallet), as_of=AS_OF)
        assert sums == expected[wallet]
    (published,) = await store.reading(volumes.published)
    assert published.as_of == AS_OF


async def test_sums_of_a_window_without_transfers_are_deleted(store: Store) -> None:
    await indexed(store, TRADES)
    await settlement.measure(store, CHAIN, now=AS_OF)
    later = AS_OF + 31 * DAY_MS
    await settlement.measure(store, CHAIN, now=later)
    sums = await store.reading(volumes.sums, CHAIN, text(SELLER), as_of=later)
    assert sums.raw.payers == 0
