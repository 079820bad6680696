"""The report on a payTo address, on both databases."""

from __future__ import annotations

from dataclasses import replace

from tests.store.chain.test_volumes import (
    CHAIN,
    SELLER,
    SHOP,
    TRADES,
    host,
    index_trades,
    text,
)
from tests.support.attacks import AS_OF, USD, Trade, address
from tests.support.databases import on_both, on_sqlite
from tests.support.score_rows import endpoint

from tollgauge.core.directory.seller_file import SellerFile
from tollgauge.core.endpoint.identity import endpoint_id
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.score.evidence import TermChange
from tollgauge.db.engine import Store
from tollgauge.monitor import settlement
from tollgauge.monitor.reports.wallets import read_wallet
from tollgauge.store.chain import periods
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.endpoints import seller_file_states as seller_files

pytestmark = on_sqlite

OTHER = "0x" + "12" * 20
PAYERS = [
    *(Trade(address("payer", n), SHOP, (n + 1) * USD, 3 + n % 3) for n in range(15)),
    Trade(address("payer"), SELLER, USD, 0.1),  # completes the days before
]


def payto_change(before: str, after: str, at: int = AS_OF) -> TermChange:
    return TermChange(at=at, kind="payto-changed", source="probe", before=before, after=after)


async def measure_trades(store: Store, trades: list[Trade]) -> None:
    await index_trades(store, trades)
    await settlement.measure(store, CHAIN, now=AS_OF)


async def test_income_is_that_of_complete_days_with_proven_payers(store: Store) -> None:
    await measure_trades(store, TRADES)
    wallet = await store.reading(read_wallet, text(SELLER), now=AS_OF)
    assert wallet is not None
    (network,) = wallet.networks
    assert (network.network, network.indexed, network.measured) == ("eip155:8453", True, True)
    assert network.income is not None
    day_1, week, month = network.income.incomes
    assert [days for days, _ in (day_1, week, month)] == [1, 7, 30]
    # Today's payment is not in the period yet.
    assert (month[1].transfers, month[1].volume, month[1].payers) == (3, 67 * USD, 2)
    assert (month[1].proven_payers, month[1].proven_volume) == (1, 60 * USD)
    assert (week[1].volume, day_1[1].volume) == (7 * USD, 0)
    ann, ben = network.income.top
    assert (ann.paid, ann.proven, ben.paid, ben.returned) == (60 * USD, True, 7 * USD, 2 * USD)


async def test_largest_payers_are_named_and_few(store: Store) -> None:
    await measure_trades(store, PAYERS)
    wallet = await store.reading(read_wallet, text(SHOP), now=AS_OF)
    assert wallet is not None
    assert wallet.networks[0].income is not None
    top = wallet.networks[0].income.top
    assert [payer.paid // USD for payer in top] == list(range(15, 5, -1))
    assert wallet.networks[0].income.incomes[-1][1].payers == 15


@on_both
async def test_income_without_payments_in_the_periods_is_deleted(store: Store) -> None:
    await measure_trades(store, PAYERS)
    await store.writing(periods.INCOMES.drop, CHAIN, before=AS_OF)
    assert SHOP in await store.reading(periods.INCOMES.load, CHAIN, [SHOP])
    await store.writing(periods.INCOMES.drop, CHAIN, before=AS_OF + 1)
    assert await store.reading(periods.INCOMES.load, CHAIN, [SHOP]) == {}


async def test_endpoints_hosts_changes_and_statements_are_those_of_the_address(
    store: Store,
) -> None:
    quote = Quote(network="eip155:8453", asset="0x1", amount=1, pay_to=OTHER)
    await store.writing(endpoints.insert, replace(endpoint("/now"), quote=quote))
    left = endpoint("/left", host="left.dev")
    await store.writing(endpoints.insert, replace(left, quote=replace(quote, pay_to="0x3")))
    came, went = payto_change("0x2", OTHER, 5), payto_change(OTHER, "0x3", 9)
    others = payto_change("0x2", "0x3", 8)
    events = [(endpoint("/now").id, came), (left.id, went), (left.id, others)]
    await store.writing(listings.add_events, events)
    file = SellerFile(statement="We sell maps.")
    await store.writing(seller_files.save, "a.com", file, now=1, next_due=2, gone=False)
    wallet = await store.reading(read_wallet, OTHER, now=AS_OF)
    assert wallet is not None
    assert [row.id for row in wallet.rows] == [endpoint("/now").id]
    assert [(one.endpoint_id, one.at) for one in wallet.changes] == [
        (left.id, 9),
        (endpoint("/now").id, 5),
    ]
    assert [one.resource for one in wallet.former] == [left.resource]
    assert [file.statement for file in wallet.seller_files] == ["We sell maps."]
    assert [one.indexed for one in wallet.networks] == [False]


@on_both
async def test_addresses_of_endpoints_that_are_not_public_are_unknown(store: Store) -> None:
    quote = Quote(network="eip155:8453", asset="0x1", amount=1, pay_to=OTHER)
    asked = replace(endpoint("/asked"), quote=quote)
    await store.writing(endpoints.insert, asked, adopted=True)
    await store.writing(listings.add_events, [(asked.id, payto_change("0x2", OTHER))])
    assert await store.reading(read_wallet, OTHER, now=AS_OF) is None
    assert await store.reading(read_wallet, "0x" + "34" * 20, now=AS_OF) is None


async def test_known_seller_belongs_to_its_first_site(store: Store) -> None:
    await measure_trades(store, TRADES)
    wallet = await store.reading(read_wallet, text(SELLER), now=AS_OF)
    assert wallet is not None
    assert wallet.networks[0].owner is not None
    assert wallet.networks[0].owner in host(SELLER)
    assert wallet.rows[0].id == endpoint_id(f"https://{host(SELLER)}/pay")
