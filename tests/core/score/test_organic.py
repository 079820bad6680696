"""The organic interval, and what it costs to buy activity, with the real scorer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.attacks import (
    CENT,
    SELLER,
    USD,
    Trade,
    address,
    gain_tenths,
    market_of,
    recirculated,
    ring,
    score_tenths,
    spending,
    sums_at,
    sybils,
)
from tests.support.examples import examples

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.score.evidence import ChainSums
from tollgauge.core.score.organic import WHOLE_OUTSIDE, intervals

LIMITS = settings(max_examples=examples(60), deadline=None)
SHOPS = [address("shop", number) for number in range(8)]
SOLD_AT = {SELLER, *SHOPS}
FREE_TENTHS = 30
"""Three points cost nothing: the score may lie 20 above the low end of the activity."""
WINDOW_DAYS = 31
"""A window of 30 days touches so many."""


def customers(count: int, *, spend: int = 100 * USD, pay: int = USD) -> list[Trade]:
    """Customers of the seller who spend money in two shops each."""
    trades = []
    for number in range(count):
        wallet, day = address("customer", number), 4 + number / 5
        shops = [SHOPS[number % 8], SHOPS[(number + 3) % 8]]
        trades += [
            Trade(wallet, SELLER, pay, day),
            *spending([wallet], shops, spend, days=day + 12),
        ]
    return trades


def public(spend: int = 1_000 * USD) -> list[Trade]:
    """Other customers of the shops, ten of each."""
    return [
        Trade(address("public", 100 * shop + number), SHOPS[shop], spend, 25 - number / 5)
        for shop in range(8)
        for number in range(10)
    ]


@pytest.mark.parametrize("value", [CENT, USD, 100 * USD])
@pytest.mark.parametrize("attack", [sybils, recirculated])
def test_a_hundred_wallets_without_outside_spending_buy_at_most_three_points(
    attack: Callable[[int, int], list[Trade]], value: int
) -> None:
    trades = attack(100, value)
    assert 0 <= gain_tenths(trades, [], SOLD_AT) <= FREE_TENTHS
    assert sums_at(trades, SOLD_AT, SELLER).low.volume == 0


@LIMITS
@given(
    amounts=st.lists(st.integers(1, 10**12), min_size=1, max_size=100),
    honest=st.integers(0, 12),
    pay=st.sampled_from((CENT, USD, 50 * USD)),
)
def test_whatever_they_pay_and_whoever_pays_beside_them(
    amounts: list[int], honest: int, pay: int
) -> None:
    attack = [
        Trade(address("sybil", number), SELLER, amount, day)
        for number, amount in enumerate(amounts)
        for day in (20.0, 10.0)
    ]
    before = [*public(), *customers(honest, pay=pay)]
    assert gain_tenths(attack, before, SOLD_AT) <= FREE_TENTHS


@LIMITS
@given(
    wallets=st.integers(1, 120),
    dollars=st.integers(1, 3_000),
    pay=st.integers(CENT, 10**10),
    honest=st.integers(0, 12),
    honest_pay=st.sampled_from((CENT, USD, 50 * USD)),
    seed=st.integers(0, 10**6),
)
def test_with_outside_spending_a_point_costs_at_least_a_dollar_a_day(
    wallets: int, dollars: int, pay: int, honest: int, honest_pay: int, seed: int
) -> None:
    dice = random.Random(seed)
    names = [address("sybil", number) for number in range(wallets)]
    shares = [dice.random() for _ in names]
    attack = [*sybils(wallets, pay)]
    spent = 0
    for name, share in zip(names, shares, strict=True):
        part = int(dollars * USD * share / sum(shares))
        attack += spending([name], SHOPS[: dice.randrange(1, 8)], part)
        spent += part
    before = [*public(), *customers(honest, pay=honest_pay)]
    points = Fraction(gain_tenths(attack, before, SOLD_AT) - FREE_TENTHS, 10)
    rounding = Fraction(1, 10)
    assert points - rounding <= Fraction(spent, USD * WINDOW_DAYS)


@pytest.mark.parametrize("wallets", [1, 2, 3, 5, 7, 10, 30, 100, 1_000])
def test_ten_points_cost_at_least_three_dollars_a_day(wallets: int) -> None:
    names = [address("sybil", number) for number in range(wallets)]
    budget = 3 * 31 * USD
    attack = [*sybils(wallets, 1_000 * USD), *spending(names, SHOPS, budget // wallets)]
    assert gain_tenths(attack, public(), SOLD_AT) < 100


def test_a_stranger_who_pays_most_lowers_nothing_that_sybils_could_win_back() -> None:
    honest = [*public(), *customers(12)]
    whale = Trade(address("whale"), SELLER, 10_000 * USD, 9)
    before = score_tenths(sums_at(honest, SOLD_AT, SELLER))
    assert score_tenths(sums_at([*honest, whale], SOLD_AT, SELLER)) >= before - FREE_TENTHS
    assert gain_tenths(sybils(100, 10_000 * USD, gap=0.1), [*honest, whale], SOLD_AT) <= FREE_TENTHS


def test_honest_customers_who_buy_elsewhere_too_are_worth_something() -> None:
    sums = sums_at([*public(), *customers(12)], SOLD_AT, SELLER)
    assert sums.low.weight == 12 * 10**6
    assert sums.high.payers == sums.low.payers == 12
    assert sums.clusters == len(SHOPS)
    assert score_tenths(sums) - score_tenths(ChainSums()) > 60


@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize("value", [CENT, 100 * USD])
def test_ten_sellers_that_pay_each_other_buy_nothing(value: int, chain: bool) -> None:
    sellers = [SELLER, *(address("ring", number) for number in range(9))]
    attack = ring(sellers, value, chain=chain)
    assert gain_tenths(attack, [], sellers) == 0
    sums = sums_at(attack, sellers, SELLER)
    assert (sums.high.volume, sums.low.volume) == (0, 0)
    assert sums.organic.volume > 0 or not chain


@pytest.mark.parametrize("shops", [1, 2, 5])
@pytest.mark.parametrize("wallets", [3, 30])
def test_a_second_shop_that_lives_on_the_same_wallets_is_no_outside(
    wallets: int, shops: int
) -> None:
    """Fewer than five shared payers do not make a cluster, and the money comes back through a hub
    that nobody sees.
    """
    own = [address("own-shop", number) for number in range(shops)]
    names = [address("sybil", number) for number in range(wallets)]
    attack = [*sybils(wallets, 50 * USD), *spending(names, own, 1_000 * USD)]
    sums = sums_at(attack, {SELLER, *own}, SELLER)
    assert sums.low.volume == 0
    assert score_tenths(sums) - score_tenths(ChainSums()) <= FREE_TENTHS


def test_what_counts_in_a_shop_is_what_others_spend_there() -> None:
    names = [address("sybil", number) for number in range(3)]
    own = [address("own-shop")]
    stranger = [Trade(address("stranger"), own[0], 6 * USD)]
    attack = [*sybils(3, 50 * USD), *spending(names, own, 1_000 * USD), *stranger]
    sums = sums_at(attack, {SELLER, *own}, SELLER)
    assert sums.low.weight == pytest.approx(10**6 * 6 * USD / WHOLE_OUTSIDE, abs=3)


def test_what_a_cluster_pays_itself_is_not_what_others_spend_there() -> None:
    names = [address("sybil", number) for number in range(3)]
    own = [address("own-shop", number) for number in range(30)]
    attack = [*sybils(3, 50 * USD), *spending(names, own[:1], 99 * USD), *ring(own, 100 * USD)]
    assert sums_at(attack, {SELLER, *own}, SELLER).low.volume == 0


def test_what_comes_back_to_the_payers_through_another_seller_is_a_round_trip() -> None:
    hub, names = address("hub"), [address("sybil", number) for number in range(20)]
    attack = sybils(20, 10 * USD, gap=0.1)
    attack += [Trade(SELLER, hub, 200 * USD, 15, authorized=False)]
    back = [Trade(hub, name, 10 * USD, 9, authorized=False) for name in names]
    assert sums_at(attack, {*SOLD_AT, hub}, SELLER).high.payers == 20
    assert sums_at([*attack, *back], {*SOLD_AT, hub}, SELLER).high.payers == 0


def test_what_sellers_send_a_payer_is_no_spending_of_his_own() -> None:
    trades = [*public(), *customers(1)]
    back = Trade(SHOPS[7], address("customer", 0), 70 * USD, 1, authorized=False)
    assert sums_at(trades, SOLD_AT, SELLER).low.weight == 10**6
    assert sums_at([*trades, back], SOLD_AT, SELLER).low.weight == 10**6 // 2


def test_gifts_do_not_make_one_seller_of_those_who_never_met() -> None:
    joiner = address("joiner")
    trades = [*public(), *customers(6)]
    gifts = [Trade(joiner, shop, 9 * USD, authorized=False) for shop in (SELLER, *SHOPS)]
    before = sums_at(trades, SOLD_AT, SELLER)
    assert sums_at([*trades, *gifts], {*SOLD_AT, joiner}, SELLER) == before


def test_wallets_that_first_pay_in_one_hour_and_place_are_not_in_the_high_end() -> None:
    together = [Trade(address("new", n), SELLER, USD, 10 + n / 200) for n in range(5)]
    assert sums_at(together, SOLD_AT, SELLER).high.payers == 0
    assert sums_at(together[1:], SOLD_AT, SELLER).high.payers == 4
    apart = [Trade(address("new", n), SELLER, USD, 10 + n / 90) for n in range(5)]
    assert sums_at(apart, SOLD_AT, SELLER).high.payers == 5
    elsewhere = [Trade(address("new", n), SHOPS[n], USD, 11 + n / 200) for n in range(5)]
    assert sums_at([*together, *elsewhere], SOLD_AT, SELLER).high.payers == 5


def test_nobody_is_newborn_in_the_first_week_that_is_indexed() -> None:
    together = [Trade(address("old", n), SELLER, USD, 10 - n / 300) for n in range(9)]
    market = market_of(together, SOLD_AT)
    for since, payers in ((0, 0), (market.as_of - 16 * DAY_MS, 9)):
        indexed = replace(market, indexed_from={SELLER: since})
        assert dict(intervals(indexed))[SELLER].high.payers == payers


@pytest.mark.parametrize(
    ("days", "weighs"), [((20.0, 10.0), True), ((20.0,), False), ((6.0, 3.0), False)]
)
def test_a_payer_weighs_after_a_week_and_a_second_day(days: Sequence[float], weighs: bool) -> None:
    name = address("customer")
    trades = [
        *public(),
        *(Trade(name, SELLER, USD, day) for day in days),
        Trade(name, SHOPS[0], 100 * USD, days[-1]),
    ]
    assert bool(sums_at(trades, SOLD_AT, SELLER).low.weight) is weighs


def test_less_than_a_cent_counts_nothing() -> None:
    trades = [*public(), *customers(4, pay=CENT - 1)]
    sums = sums_at(trades, SOLD_AT, SELLER)
    assert (sums.raw.payers, sums.high.payers, sums.low.payers) == (4, 0, 0)
    assert sums_at([*public(), *customers(4, pay=CENT)], SOLD_AT, SELLER).high.payers == 4


def test_a_credited_volume_is_at_most_three_times_what_is_spent_outside() -> None:
    sums = sums_at([*public(), *customers(1, spend=80 * USD, pay=10**6 * USD)], SOLD_AT, SELLER)
    assert sums.low.volume == 3 * 80 * USD
    assert sums.high.volume == 10**12


@LIMITS
@given(seed=st.integers(0, 10**6))
def test_the_order_of_transfers_is_irrelevant(seed: int) -> None:
    dice = random.Random(seed)
    trades = random_trades(dice)
    shuffled = dice.sample(trades, len(trades))
    assert dict(intervals(market_of(trades, SOLD_AT))) == dict(
        intervals(market_of(shuffled, SOLD_AT))
    )


@LIMITS
@given(seed=st.integers(0, 10**6), factor=st.integers(2, 1_000))
def test_more_volume_of_wallets_that_pay_nobody_else_never_raises_the_low_end(
    seed: int, factor: int
) -> None:
    dice = random.Random(seed)
    trades = random_trades(dice)
    wash = sybils(dice.randrange(1, 30), dice.randrange(1, 100) * USD)
    less, more = (
        sums_at(
            [*trades, *(trade._replace(value=times * trade.value) for trade in wash)],
            SOLD_AT,
            SELLER,
        )
        for times in (1, factor)
    )
    assert more.low == less.low


@LIMITS
@given(seed=st.integers(0, 10**6))
def test_one_cluster_more_never_raises_what_an_end_counts(seed: int) -> None:
    """Two shops that send each other a cent are one from then on. What an end counts is who, how
    much, and with what weight: with less of a dominant payer the others may be more effective.
    """
    dice = random.Random(seed)
    trades = random_trades(dice)
    one, other = dice.sample(sorted(SOLD_AT), 2)
    cents = [Trade(one, other, 1, authorized=False), Trade(other, one, 1, authorized=False)]
    before = sums_at(trades, SOLD_AT, SELLER)
    after = sums_at([*trades, *cents], SOLD_AT, SELLER)
    for less, more in ((after.low, before.low), (after.high, before.high)):
        assert less.payers <= more.payers
        assert less.weight <= more.weight
        assert less.volume <= more.volume


def random_trades(dice: random.Random) -> list[Trade]:
    """Wallets, some of which sell, that pay and are paid at random."""
    wallets = [address("wallet", number) for number in range(12)] + sorted(SOLD_AT)
    return [
        Trade(
            dice.choice(wallets),
            dice.choice(sorted(SOLD_AT) if dice.random() < 0.9 else wallets),
            dice.choice((CENT, USD, 30 * USD, 500 * USD)),
            dice.randrange(1, 30) + dice.randrange(24) / 24,
            dice.random() < 0.95,
        )
        for _ in range(dice.randrange(1, 80))
    ]
