"""The demo's customers pay its sellers on a real chain, and the index finds what they paid."""

from __future__ import annotations

import time
from collections import Counter, defaultdict

import pytest

from tollgauge.core.units import DAY_MS, HOUR_MS
from tollgauge.demo.chain import ChainError, find_anvil, run_chain
from tollgauge.demo.customers import CUSTOM, SLOT_MS, Purchase, first_sales, purchases, sale_at
from tollgauge.demo.envelopes import BASE
from tollgauge.demo.seller import offer_at
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.settlements import Settlements

_END = 1_795_252_000_000
_START = _END - 30 * DAY_MS
_MONTH = list(purchases(_START, _END, present=_END))


def _of(label: str) -> list[Purchase]:
    return [purchase for purchase in _MONTH if purchase.seller.label == label]


def test_the_month_has_sellers_with_many_payers_with_one_and_with_none() -> None:
    payers: dict[str, set[str]] = defaultdict(set)
    for purchase in _MONTH:
        payers[purchase.seller.label].add(purchase.payer.address)
    assert len(payers["weather"]) >= 30
    assert len(payers["barometer"]) == len(payers["whisper"]) == 1
    assert len(_of("barometer")) >= 10
    assert all(purchase.returned for purchase in _of("whisper"))
    unsold = [seller for seller in SELLERS if seller.label not in payers]
    assert len(unsold) > len(SELLERS) // 3
    owners = {purchase.pay_to for purchase in _of("anything") + _of("seo")}
    assert len(owners) == 1
    assert sum(owners <= set(seller.payees) for seller in SELLERS) == 3


def test_a_customer_pays_what_was_asked_for_at_that_time() -> None:
    assert {seller.label for seller in SELLERS} > CUSTOM.keys()
    for purchase in (*_MONTH, *first_sales(_END), *(sale_at(_END + n) for n in range(99))):
        offer = offer_at(purchase.seller, purchase.at)
        assert (purchase.amount, purchase.pay_to) == (offer.amount, offer.pay_to)
        assert purchase.seller.network == BASE
        assert purchase.payer.address != purchase.pay_to


def test_overlapping_spans_of_customers_agree() -> None:
    later = list(purchases(_START + 10 * DAY_MS, _END, present=_END))
    assert later == [each for each in _MONTH if each.at > _START + 10 * DAY_MS]
    assert {each.at % SLOT_MS for each in _MONTH} == {0}


def test_no_two_purchases_are_the_same_authorization() -> None:
    keys = Counter((each.seller.label, each.at, each.number) for each in _MONTH)
    assert max(keys.values()) == 1


@pytest.fixture(scope="module", autouse=True)
def needs_anvil() -> None:
    try:
        find_anvil()
    except ChainError as error:
        pytest.skip(f"{error} {error.hint}")


async def test_the_chain_holds_the_past_at_its_times_and_then_the_present() -> None:
    now = time.time_ns() // 1_000_000
    began = now - 2 * DAY_MS
    bought = list(purchases(began, now, present=now))
    expected: Counter[str] = Counter()
    for purchase in bought:
        if not purchase.returned:
            expected[purchase.pay_to] += purchase.amount
    async with run_chain(began=began - HOUR_MS) as chain:
        sales = Settlements(chain)
        await sales.past(bought, until=now)
        for owner, amount in expected.items():
            assert await chain.balance(owner) == amount
        head = await chain.rpc("eth_getBlockByNumber", "latest", False)
        times = {
            int((await chain.rpc("eth_getBlockByNumber", hex(n), False))["timestamp"], 16)
            for n in range(int(head["number"], 16) + 1)
        }
        assert {purchase.at // 1000 for purchase in bought} < times
        assert int(head["timestamp"], 16) == now // 1000
        sale = sale_at(now)
        before = await chain.balance(sale.pay_to)
        await sales.now([sale])
        assert await chain.balance(sale.pay_to) == before + sale.amount * (not sale.returned)


async def test_money_that_comes_back_leaves_the_wash_trader_where_it_was() -> None:
    round_trip = _of("whisper")[0]
    async with run_chain() as chain:
        sales = Settlements(chain)
        await sales.now([round_trip])
        assert await chain.balance(round_trip.payer.address) == round_trip.amount
        with pytest.raises(ChainError):
            await sales.now([round_trip])
