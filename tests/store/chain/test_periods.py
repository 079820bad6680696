"""Settlements by period, compared with markets of the same days, on both databases."""

from __future__ import annotations

from tests.store.chain.test_volumes import (
    BEN,
    BOOKS,
    CHAIN,
    MAPS,
    OWNERS,
    SELLER,
    SHOP,
    SOLD_AT,
    TRADES,
    WATCHED,
    host,
    index_trades,
)
from tests.support.attacks import AS_OF, USD, Trade, address, flows_of
from tests.support.databases import on_both, on_sqlite

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.chain.blocks import BlockHeader
from tollgauge.core.endpoint.identity import site
from tollgauge.core.score.demand import measure_demand
from tollgauge.core.score.income import PeriodFigures
from tollgauge.db.engine import Store
from tollgauge.monitor import settlement
from tollgauge.store.chain import cursors, periods, submitters
from tollgauge.store.chain.periods import ChainPeriods

pytestmark = on_sqlite

LAST = day_of(AS_OF) - 1
CAT = address("cat")
MORE = [
    *TRADES,
    Trade(CAT, SELLER, 3 * USD, 1),
    Trade(CAT, SHOP, USD, 2),
    Trade(CAT, BOOKS, 5 * USD, 1.2),
    Trade(CAT, MAPS, 5 * USD, 1.2),
    Trade(CAT, SHOP, 50 * USD, 0.1),  # today, which no period contains
    Trade(BEN, SHOP, 4 * USD, 9),
    Trade(BEN, MAPS, 4 * USD, 36),
]


def day(trade: Trade) -> int:
    return day_of(AS_OF - round(trade.days * DAY_MS))


def compute_expected(first: int, last: int) -> PeriodFigures:
    """The figures of some days, with the payers that the 30 days before their end prove."""
    watched = {*SOLD_AT, *OWNERS}
    sites = {wallet: site(host(wallet)) for wallet in SOLD_AT}
    within = flows_of((one for one in MORE if first <= day(one) <= last), watched)
    proving = flows_of((one for one in MORE if last - 29 <= day(one) <= last), watched)
    measured = measure_demand(
        within.items(),
        sellers={**sites, **OWNERS},
        anchors=OWNERS,
        at_anchors=[(wallet, proving[wallet]) for wallet in OWNERS],
    )
    return measured.figures


async def measure_periods(store: Store) -> ChainPeriods:
    await index_trades(store, MORE)
    await settlement.measure(store, CHAIN, now=AS_OF)
    (found,) = await store.reading(periods.load_published)
    return found


@on_both
async def test_periods_equal_markets_of_the_same_days(store: Store) -> None:
    found = await measure_periods(store)
    assert found.last_day == LAST
    day_1, week, month = found.comparisons
    assert (day_1.days, week.days, month.days) == (1, 7, 30)
    assert day_1.current == compute_expected(LAST, LAST)
    assert day_1.previous == compute_expected(LAST - 1, LAST - 1)
    assert week.current == compute_expected(LAST - 6, LAST)
    assert week.previous == compute_expected(LAST - 13, LAST - 7)
    assert month.current == compute_expected(LAST - 29, LAST)
    assert month.previous is None
    assert (day_1.current.proven_buyers, month.current.proven_buyers) == (1, 2)


async def test_days_add_up_to_the_longest_period(store: Store) -> None:
    found = await measure_periods(store)
    assert [one.day for one in found.by_day] == list(range(LAST - 29, LAST + 1))
    month = found.comparisons[-1].current
    assert sum(one.transfers for one in found.by_day) == month.settlements
    assert sum(one.volume for one in found.by_day) == month.volume
    assert 0 < sum(one.proven_volume for one in found.by_day) <= month.volume


async def test_previous_month_has_the_figures_measured_at_its_end(store: Store) -> None:
    earlier = await measure_periods(store)
    later = AS_OF + 30 * DAY_MS
    cursor = await store.reading(cursors.cursor, CHAIN)
    assert cursor is not None
    header = BlockHeader(cursor.number + 1, b"later".ljust(32), cursor.hash, later)
    await store.writing(cursors.advance, cursor, [header], [], finalized=0)
    await settlement.measure(store, CHAIN, now=later)
    (found,) = await store.reading(periods.load_published)
    month = found.comparisons[-1]
    assert month.previous == earlier.comparisons[-1].current
    assert month.current == PeriodFigures(
        settlements=2, volume=80 * USD, buyers=2, sellers=2, proven_buyers=0, proven_volume=0
    )


async def test_nothing_is_published_before_a_chain_is_indexed(store: Store) -> None:
    await settlement.measure(store, CHAIN, now=AS_OF)
    assert await store.reading(periods.load_published) == ()


@on_both
async def test_facilitators_have_the_payments_that_were_looked_up(store: Store) -> None:
    await index_trades(store, MORE)
    everything = await store.reading(submitters.find_unknown, CHAIN, final=10**6, limit=10**6)
    found = {one: (b"\x01" if one.number % 2 else b"\x02") * 20 for one in everything}
    unknown, lacking, *known = everything
    await store.writing(submitters.save, CHAIN, {one: (found[one], "") for one in known})
    await store.writing(submitters.save, CHAIN, {lacking: (b"", "")})
    assert await store.reading(submitters.find_unknown, CHAIN, final=10**6, limit=9) == [unknown]
    assert await store.reading(submitters.find_unknown, CHAIN, final=0, limit=9) == []
    await settlement.measure(store, CHAIN, now=AS_OF, signers={b"\x01" * 20})
    (published,) = await store.reading(periods.load_published)
    paid = {
        number: trade
        for number, trade in enumerate(sorted(MORE, key=lambda trade: -trade.days), 1)
        if trade.receiver in WATCHED and trade.signed
    }
    assert [one.days for one in published.facilitators] == [1, 7, 30]
    for period in published.facilitators:
        within = {n: one for n, one in paid.items() if LAST - period.days < day(one) <= LAST}
        assert period.settlements == len(within)
        expected_rows = {}
        for address_byte in (b"\x01", b"\x02"):
            own = [
                within[one.number]
                for one in known
                if one.number in within and found[one] == address_byte * 20
            ]
            if own:
                expected_rows["0x" + address_byte.hex() * 20] = (
                    len(own),
                    sum(one.value for one in own),
                    len({one.sender for one in own}),
                    address_byte == b"\x01",
                )
        assert {
            row.address: (row.settlements, row.volume, row.buyers, row.configured)
            for row in period.top
        } == expected_rows
        assert period.looked_up == sum(count for count, *_ in expected_rows.values())
        assert period.submitters == len(expected_rows)
    assert published.facilitators[-1].submitters == 2


async def test_only_the_largest_facilitators_are_stored(store: Store) -> None:
    many = [Trade(CAT, SHOP, USD, 2 + number / 100) for number in range(submitters.TOP + 3)]
    today = Trade(CAT, MAPS, USD, 0.1)  # completes the days before
    await index_trades(store, [*many, Trade(CAT, SHOP, USD, 3), today])
    _, *everything = await store.reading(submitters.find_unknown, CHAIN, final=10**6, limit=99)
    addresses = {
        one: (bytes([min(n, submitters.TOP + 2)]) * 20, "") for n, one in enumerate(everything)
    }
    await store.writing(submitters.save, CHAIN, addresses)
    await settlement.measure(store, CHAIN, now=AS_OF)
    (published,) = await store.reading(periods.load_published)
    month = published.facilitators[-1]
    assert (month.submitters, len(month.top)) == (submitters.TOP + 3, submitters.TOP)
    assert month.top[0].settlements == 2
