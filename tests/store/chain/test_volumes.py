"""The demand of all wallets of a chain, on both databases."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tests.support.attacks import AS_OF, CENT, USD, Trade, address, market_of
from tests.support.databases import on_sqlite
from tests.support.gathering import gather_many

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.chain.blocks import BlockHeader
from tollgauge.core.chain.settlement import Entry
from tollgauge.core.directory.seller_file import SiteList
from tollgauge.core.endpoint.buyers_reports import BuyerOutcome, BuyersReports
from tollgauge.core.endpoint.identity import Endpoint, Resource, parse_resource, site
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.core.score.demand import Measurement
from tollgauge.core.score.evidence import DemandEvidence
from tollgauge.db.engine import Store
from tollgauge.monitor import settlement
from tollgauge.store.chain import anchor_candidates, cursors, periods, volumes, wallets
from tollgauge.store.endpoints import buyers_reports, endpoints
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.endpoints.buyers_reports import BuyerReport

CHAIN = 8453
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
SELLER, SHOP, RING, BOOKS, MAPS = (
    address(name) for name in ("seller", "shop", "ring", "books", "maps")
)
SOLD_AT = (SELLER, SHOP, RING)
ANCHORS = {"books.example": ["0x" + BOOKS.hex()], "maps.example": ["0x" + MAPS.hex()]}
OWNERS = {BOOKS: "books.example", MAPS: "maps.example"}
ANN, BEN = address("ann"), address("ben")
TRADES = [
    *(Trade(ANN, SELLER, 30 * USD, day) for day in (29.9, 20, 0.1)),
    Trade(ANN, SHOP, 30 * USD, 12),
    *(Trade(ANN, anchor, 12 * USD, 11) for anchor in (BOOKS, MAPS)),
    Trade(BOOKS, ANN, 2 * USD, 9, signed=False),
    Trade(BEN, SELLER, 7 * USD, 3),
    Trade(BEN, SHOP, CENT - 1, 2),
    Trade(SELLER, BEN, 2 * USD, 1, signed=False),
    Trade(RING, SHOP, 9 * USD, 5),
    Trade(SHOP, RING, 9 * USD, 4),
]


WATCHED = (*SOLD_AT, BOOKS, MAPS)


def host(wallet: bytes) -> str:
    return f"seller-{wallet.hex()[:12]}.dev"


def _resource(wallet: bytes) -> Resource:
    return parse_resource(f"https://{host(wallet)}/pay")


def text(wallet: bytes) -> str:
    return "0x" + wallet.hex()


async def index_trades(store: Store, trades: list[Trade]) -> None:
    """A chain on which these trades were indexed, a block each."""
    for wallet in SOLD_AT:
        resource = _resource(wallet)
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
    await store.writing(volumes.save_anchors, ANCHORS, now=7)
    anchors = [one for addresses in ANCHORS.values() for one in addresses]
    new = await store.reading(wallets.new_addresses, CHAIN, anchors)
    assert len(new) == 5
    cursor = await store.writing(cursors.add_wallets, start, new)
    headers, entries = [], []
    for number, trade in enumerate(sorted(trades, key=lambda trade: -trade.days), 1):
        at = AS_OF - round(trade.days * DAY_MS)
        block_hash = hashlib.sha256(b"%d" % number).digest()
        headers.append(BlockHeader(number, block_hash, bytes(32), at))
        nonce = bytes(32) if trade.signed else None
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
        if trade.receiver in WATCHED and trade.signed:
            entries.append(came)
        if trade.sender in WATCHED:
            entries.append(came._replace(wallet=trade.sender, other=trade.receiver, incoming=False))
    await store.writing(cursors.advance, cursor, headers, entries, finalized=0)


def compute_expected() -> Measurement:
    return market_of(
        TRADES, sites={wallet: site(host(wallet)) for wallet in SOLD_AT}, anchors=OWNERS
    )


async def demand(store: Store, wallet: bytes, as_of: int = AS_OF) -> DemandEvidence:
    found = await store.reading(volumes.demands_of, CHAIN, [text(wallet)], as_of=as_of)
    return found[text(wallet)]


async def test_demand_from_rows_equals_demand_from_trades(store: Store) -> None:
    await index_trades(store, TRADES)
    measured = await store.reading(volumes.measure_chain, CHAIN, as_of=AS_OF)
    demands = dict(measured.demands)
    assert demands == dict(compute_expected().demands)
    assert demands[SELLER].weights == (("books.example", 450_000), ("maps.example", 375_000))
    assert measured.figures.proven_buyers == 1
    assert measured.figures == compute_expected().figures


@on_sqlite
async def test_measured_chain_is_read_with_one_row_per_wallet(store: Store) -> None:
    await index_trades(store, TRADES)
    before = await demand(store, SELLER)
    assert (before.payers, before.proven_payers, before.weights) == (2, 0, ())
    await settlement.measure(store, CHAIN, now=AS_OF)
    for wallet in SOLD_AT:
        assert await demand(store, wallet) == dict(compute_expected().demands)[wallet]
    (published,) = await store.reading(periods.load_published)
    assert (published.as_of, published.window.proven_buyers) == (AS_OF, 1)


async def test_buyers_reports_count_each_payer_with_its_weight(store: Store) -> None:
    report = BuyerReport(
        chain=CHAIN,
        payer=ANN,
        nonce=b"1" * 32,
        endpoint_id="a",
        pay_to=SELLER,
        outcome=BuyerOutcome.DELIVERED,
        at=AS_OF,
        signature=b"x" * 65,
    )
    other = replace(report, payer=BEN, nonce=b"2" * 32, outcome=BuyerOutcome.EMPTY)
    for one in (report, other):
        assert await store.writing(buyers_reports.add, one)
    await index_trades(store, TRADES)
    await settlement.measure(store, CHAIN, now=AS_OF)
    counts = await store.reading(buyers_reports.counts, ("a",))
    # The weight that any one anchor leaves, as in the demand of the seller.
    assert counts["a"] == BuyersReports(
        delivered=1, not_delivered=1, delivered_weight=375_000, not_delivered_weight=0
    )

    await settlement.measure(store, CHAIN, now=AS_OF + 60 * DAY_MS)
    counts = await store.reading(buyers_reports.counts, ("a",))
    assert counts["a"] == BuyersReports(delivered=1, not_delivered=1)


@on_sqlite
async def test_demand_of_a_window_without_transfers_is_deleted(store: Store) -> None:
    await index_trades(store, TRADES)
    await settlement.measure(store, CHAIN, now=AS_OF)
    later = AS_OF + 31 * DAY_MS
    await settlement.measure(store, CHAIN, now=later)
    assert await demand(store, SELLER, later) == DemandEvidence()


async def test_payto_belongs_to_the_first_known_site(store: Store) -> None:
    await index_trades(store, TRADES)
    endpoint = await store.reading(lambda tx: endpoints.get(tx, _resource(SELLER).id))
    assert endpoint is not None
    thief = parse_resource("https://thief.dev/pay")
    copied = replace(endpoint, id=thief.id, resource=thief.url, host=thief.host)
    await store.writing(endpoints.insert, copied)
    found = await store.reading(gather_many, (endpoint, copied), as_of=AS_OF, cadence=NORMAL)
    own, other = found[endpoint.id].chain, found[thief.id].chain
    assert own is not None
    assert other is not None
    assert (own.owner, own.shared_hosts) == (None, 2)
    assert own.demand is not None
    assert (other.owner, other.demand) == (site(host(SELLER)), None)


@on_sqlite
async def test_listed_sites_share_the_demand_of_a_payto_equally(store: Store) -> None:
    await index_trades(store, TRADES)
    endpoint = await store.reading(lambda tx: endpoints.get(tx, _resource(SELLER).id))
    assert endpoint is not None
    known = [endpoint]
    for name in ("partner.dev", "thief.dev"):
        resource = parse_resource(f"https://{name}/pay")
        known.append(replace(endpoint, id=resource.id, resource=resource.url, host=name))
        await store.writing(endpoints.insert, known[-1])
    own = site(host(SELLER))
    item = SiteList(
        network=f"eip155:{CHAIN}",
        pay_to=text(SELLER),
        sites=tuple(sorted((own, "partner.dev"))),
        issued=AS_OF // 1_000 - 60,
        expires=AS_OF // 1_000 + 60,
    )
    assert await store.writing(seller_files.save_site_list, own, item, now=AS_OF)
    await settlement.measure(store, CHAIN, now=AS_OF)
    found = await store.reading(gather_many, known, as_of=AS_OF, cadence=NORMAL)
    first, partner, thief = [found[one.id].chain for one in known]
    assert first is not None
    assert partner is not None
    assert thief is not None
    assert (first.owner, first.shares, partner.owner, partner.shares) == (None, 2, None, 2)
    assert first.demand == partner.demand == dict(compute_expected().demands)[SELLER]
    assert (thief.owner, thief.shares, thief.demand) == (item.sites[0], 1, None)
    later = AS_OF + 60_000
    found = await store.reading(gather_many, known, as_of=later, cadence=NORMAL)
    first, partner, thief = [found[one.id].chain for one in known]
    assert first is not None
    assert partner is not None
    assert (first.shares, first.demand is None, partner.owner) == (1, False, own)


@on_sqlite
async def test_sites_outside_of_a_list_lose_a_payto_that_they_named_first(store: Store) -> None:
    await index_trades(store, TRADES)
    endpoint = await store.reading(lambda tx: endpoints.get(tx, _resource(SELLER).id))
    assert endpoint is not None
    item = SiteList(
        network=f"eip155:{CHAIN}",
        pay_to=text(SELLER),
        sites=("owner.dev",),
        issued=0,
        expires=AS_OF // 1_000 + 60,
    )
    await store.writing(seller_files.save_site_list, "owner.dev", item, now=AS_OF)
    found = await store.reading(gather_many, (endpoint,), as_of=AS_OF, cadence=NORMAL)
    chain = found[endpoint.id].chain
    assert chain is not None
    assert (chain.owner, chain.demand) == ("owner.dev", None)


@on_sqlite
async def test_anchor_keeps_its_date_until_its_addresses_change(store: Store) -> None:
    changed = {**ANCHORS, "maps.example": ["0x" + RING.hex()]}
    for anchors, now in ((ANCHORS, 7), (ANCHORS, 8), (changed, 9)):
        await store.writing(volumes.save_anchors, anchors, now=now)
    found = await store.reading(volumes.anchors_of)
    assert [(anchor.owner, anchor.since) for anchor in found] == [
        ("books.example", 7),
        ("maps.example", 9),
    ]


async def test_candidates_for_anchors_are_ranked_by_proven_spending_then_age(store: Store) -> None:
    await index_trades(store, TRADES)
    await settlement.measure(store, CHAIN, now=AS_OF)
    found = await store.reading(anchor_candidates.rank_candidates, now=AS_OF, limit=9)
    assert [one.site for one in found][:2] == [site(host(SELLER)), site(host(SHOP))]
    assert [(one.proven_payers, one.proven_volume // USD) for one in found] == [
        (1, 90),
        (1, 30),
        (0, 0),
    ]
    assert {one.address for one in found}.isdisjoint(text(wallet) for wallet in OWNERS)
    assert len(await store.reading(anchor_candidates.rank_candidates, now=AS_OF, limit=2)) == 2
