"""Proven demand: what raises it, what it costs, and that strangers cannot change it."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.attacks import (
    ANCHORS,
    CENT,
    SELLER,
    SITES,
    USD,
    Trade,
    address,
    demand_of,
    market_of,
    payments_of,
    ring,
    score_tenths,
    wallets,
)
from tests.support.examples import examples

from tollgauge.core.base.units import chain_number
from tollgauge.core.score.demand import (
    WHOLE_WEIGHT,
    addresses_on,
    measure_demand,
    sum_of_weights,
)
from tollgauge.core.score.evidence import DemandEvidence
from tollgauge.core.score.income import Flow
from tollgauge.core.score.policy import POLICY, interpolate

LIMITS = settings(max_examples=examples(150), deadline=None)
A, B, C = ANCHORS
SECOND = address("seller", 1)
SHOPS = [wallet for wallet in SITES if wallet.startswith(b"shop")]
ANN = address("ann")
UNPAID = score_tenths(DemandEvidence())


def customer(wallet: bytes, *, spends: int = 40 * USD, pays: int = USD) -> list[Trade]:
    """A payer of the seller who spends the same at each of three anchors."""
    return [*(Trade(wallet, anchor, spends) for anchor in ANCHORS), Trade(wallet, SELLER, pays)]


def customers(count: int) -> list[Trade]:
    return [trade for wallet in wallets("customer", count) for trade in customer(wallet)]


def least(demand: DemandEvidence) -> Fraction:
    return Fraction(min((weight for _, weight in demand.weights), default=0), WHOLE_WEIGHT)


def test_customer_of_anchors_counts_fully_at_its_only_seller() -> None:
    demand = demand_of(customer(ANN))
    assert least(demand) == 1
    assert (demand.payers, demand.proven_payers) == (1, 1)
    assert demand.volume == demand.proven_volume == USD


def test_weight_is_anchor_spending_by_twenty_dollars_without_the_largest_anchor() -> None:
    trades = [Trade(ANN, A, 90 * USD), Trade(ANN, B, 5 * USD), Trade(ANN, SELLER, USD)]
    demand = demand_of(trades)
    assert dict(demand.weights) == {ANCHORS[A]: 250_000, ANCHORS[B]: 10**6, ANCHORS[C]: 10**6}
    assert least(demand) == Fraction(1, 4)


def test_spending_at_one_anchor_only_raises_nothing() -> None:
    trades = [trade for n in range(30) for trade in (
        Trade(address("fan", n), A, 500 * USD), Trade(address("fan", n), SELLER, USD))]  # fmt: skip
    demand = demand_of(trades)
    assert demand.proven_payers == 30
    assert score_tenths(demand) == UNPAID


def test_addresses_of_one_owner_are_one_anchor() -> None:
    anchors = {A: "one.example", B: "one.example", C: "two.example"}
    trades = [Trade(ANN, A, 40 * USD), Trade(ANN, B, 40 * USD), Trade(ANN, SELLER, USD)]
    assert least(demand_of(trades, anchors=anchors)) == 0


def test_weights_of_a_payer_over_all_sellers_add_up_to_one() -> None:
    trades = [*customer(ANN, pays=3 * USD), *(Trade(ANN, shop, USD) for shop in SHOPS)]
    demands = dict(market_of(trades).demands)
    weights = [least(demands[wallet]) for wallet in (SELLER, *SHOPS)]
    assert weights[0] == Fraction(333_333, 10**6)
    assert sum(weights) <= 1


def test_refund_from_any_address_of_a_seller_lowers_its_net_spending() -> None:
    back = Trade(SECOND, ANN, USD - CENT + 1, signed=False)
    assert least(demand_of([*customer(ANN), back])) == 0
    assert least(demand_of([*customer(ANN), back._replace(value=USD - CENT)])) == 1


def test_what_an_anchor_sends_back_is_subtracted() -> None:
    refunds = [Trade(anchor, ANN, 35 * USD, signed=False) for anchor in ANCHORS]
    assert least(demand_of([*customer(ANN), *refunds])) == Fraction(1, 2)


def test_anchor_that_sends_back_more_than_it_received_proves_nothing() -> None:
    assert least(demand_of([*customer(ANN), Trade(A, ANN, 200 * USD, signed=False)])) == 0


def test_less_than_a_cent_at_a_seller_has_no_weight() -> None:
    assert least(demand_of(customer(ANN, pays=CENT - 1))) == 0
    assert least(demand_of(customer(ANN, pays=CENT))) == 1


@pytest.mark.parametrize("trade", [Trade(ANN, SELLER, 99), Trade(ANN, SELLER, USD, signed=False)])
def test_dust_and_plain_transfers_are_not_payments(trade: Trade) -> None:
    spending = customer(ANN)[:-1]
    demand = demand_of([*spending, trade])
    assert (demand.payers, demand.volume, demand.weights) == (0, 0, ())


def test_seller_that_pays_itself_has_no_payer() -> None:
    demand = demand_of([Trade(SELLER, SELLER, USD), Trade(SECOND, SELLER, 2 * USD)])
    assert (demand.payers, demand.own) == (0, 3 * USD)


def test_wallets_of_one_site_share_their_demand_without_division() -> None:
    trades = [*customer(ANN), Trade(address("ben"), SECOND, USD), Trade(ANN, SECOND, USD)]
    assert demand_of(trades) == demand_of(trades, SECOND)
    assert demand_of(trades).payers == 2


def test_payer_on_two_chains_costs_as_much_as_two_payers() -> None:
    """The sum over networks adds no cheaper way to points: $10 at anchors on each of two chains
    proves as much as $20 on one.
    """
    half = demand_of(customer(ANN, spends=5 * USD)).weights
    whole = demand_of(customer(ANN, spends=10 * USD)).weights
    together, unit = sum_of_weights([(half, 1), (half, 1)], anchors=3)
    assert Fraction(together, unit) == Fraction(*sum_of_weights([(whole, 1)], anchors=3))
    assert Fraction(together, unit) == 1
    shared, unit = sum_of_weights([(whole, 2), (whole, 1)], anchors=3)
    assert Fraction(shared, unit) == Fraction(3, 2)
    assert sum_of_weights([(whole, 1)], anchors=1) == (0, 1)


def test_anchor_address_counts_on_its_chain_or_on_all_of_its_kind() -> None:
    one, two, three = (f"0x{digit * 40}" for digit in "abc")
    key, other = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU", 32 * "1"
    mainnet = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
    addresses = (one, f"eip155:8453:{two}", f"eip155:137:{three}", key, f"{mainnet}:{other}")
    assert addresses_on(8453, addresses) == (one, two)
    assert addresses_on(137, addresses) == (one, three)
    assert addresses_on(10, addresses) == (one,)
    assert addresses_on(chain_number(mainnet) or 0, addresses) == (key, other)
    assert addresses_on(
        chain_number("solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1") or 0, addresses
    ) == (key,)


def test_owner_without_an_address_on_a_chain_removes_no_spending_there() -> None:
    paid = {ANN: Flow(1, 40 * USD)}
    measured = measure_demand(
        [(SELLER, {ANN: Flow(1, USD)})],
        sellers={SELLER: "seller.example"},
        anchors={A: "books.example", B: "maps.example"},
        at_anchors=[(A, paid), (B, paid)],
        owners=["books.example", "maps.example", "news.example"],
    )
    ((_, demand),) = measured.demands
    assert dict(demand.weights) == dict.fromkeys(
        ("books.example", "maps.example", "news.example"), WHOLE_WEIGHT
    )


def test_anchor_does_not_prove_its_own_customers() -> None:
    anchors = {SELLER: "seller.example", A: "a.example", B: "b.example"}
    trades = [Trade(ANN, SELLER, 90 * USD), Trade(ANN, A, 8 * USD), Trade(ANN, B, 6 * USD)]
    demand = demand_of(trades, anchors=anchors)
    assert dict(demand.weights)["seller.example"] == 700_000
    assert least(demand) == Fraction(3, 10)


@pytest.mark.parametrize(("points", "cost"), [(3, 44), (10, 334)])
def test_points_cost_anchor_spending_at_two_anchors_for_each_seller(points: int, cost: int) -> None:
    """44 and 333 dollars and a third, at each of two anchors: one of them does not count."""

    def gain(dollars: int) -> Fraction:
        weight = least(demand_of(_spread(dollars)))
        return Fraction(*interpolate(POLICY.payers, weight.as_integer_ratio())) * 15 / 100

    assert gain(cost - 1) < points <= gain(cost)


def _spread(dollars: int) -> list[Trade]:
    """Own wallets that each spend the same amount at two anchors, in whole weights and a rest."""
    parts = [20 * USD] * (dollars // 20) + [dollars % 20 * USD]
    return [
        trade
        for wallet, part in zip(wallets("own", len(parts)), parts, strict=True)
        for trade in (Trade(wallet, A, part), Trade(wallet, B, part), Trade(wallet, SELLER, USD))
    ]


@pytest.mark.parametrize(
    "attack",
    [
        payments_of(wallets("sybil", 100), CENT),
        payments_of(wallets("sybil", 100), 100 * USD, back=address("hub")),
        ring([SELLER, *SHOPS], 50 * USD),
        ring([SELLER, *SHOPS], 50 * USD, step=2),
        [trade for shop in SHOPS for trade in payments_of(wallets("group", 9), USD, to=shop)]
        + payments_of(wallets("group", 9), USD),
    ],
    ids=["dust", "one-note", "circle", "star", "three-shops-nine-wallets"],
)
def test_wallets_without_anchor_spending_raise_nothing(attack: list[Trade]) -> None:
    assert score_tenths(demand_of(attack)) == UNPAID
    honest = customers(12)
    assert score_tenths(demand_of([*honest, *attack])) <= score_tenths(demand_of(honest))


STRANGERS = [*wallets("stranger", 5), *SHOPS]
STRANGE_TRADES = st.lists(
    st.builds(
        Trade,
        st.sampled_from(STRANGERS),
        st.sampled_from(
            [SELLER, SECOND, *SHOPS, *wallets("customer", 12), *wallets("stranger", 5)]
        ),
        st.sampled_from([1, 99, 100, CENT, USD, 10**6 * USD]),
        signed=st.booleans(),
    ),
    max_size=30,
)
"""Transfers by strangers: they spend nothing at anchors."""


@LIMITS
@given(STRANGE_TRADES, st.integers(0, 12))
def test_no_payments_by_strangers_change_a_score(attack: list[Trade], count: int) -> None:
    honest = customers(count)
    before, after = demand_of(honest), demand_of([*honest, *attack])
    assert after.weights == before.weights
    assert after.proven_payers == before.proven_payers
    assert score_tenths(after) == score_tenths(before)


@LIMITS
@given(STRANGE_TRADES, st.lists(st.sampled_from(STRANGERS), max_size=9))
def test_nothing_without_anchor_spending_raises_a_score(
    attack: list[Trade], refunded: list[bytes]
) -> None:
    refunds = [Trade(SELLER, wallet, USD, signed=False) for wallet in refunded]
    assert score_tenths(demand_of([*attack, *refunds])) == UNPAID


@LIMITS
@given(
    st.dictionaries(st.sampled_from(wallets("listed", 6)), st.sampled_from(["x.example", "y.dev"])),
    STRANGE_TRADES,
    st.randoms(use_true_random=False),
)
def test_no_listing_by_a_stranger_lowers_a_score(
    listed: dict[bytes, str], attack: list[Trade], dice: random.Random
) -> None:
    """New sites with addresses of their own, and wallets of their own that pay there."""
    honest = customers(9)
    payments = [Trade(dice.choice(STRANGERS), wallet, USD) for wallet in listed]
    before = demand_of(honest)
    after = demand_of([*honest, *attack, *payments], sites={**SITES, **listed})
    assert after.weights == before.weights


@LIMITS
@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 2))
def test_no_single_anchor_raises_a_score(spent: list[int], place: int) -> None:
    bought = list(ANCHORS)[place]
    trades = [
        trade
        for number, dollars in enumerate(spent)
        for trade in (
            Trade(address("own", number), bought, dollars * USD),
            Trade(address("own", number), SELLER, USD),
        )
    ]
    honest = customers(5)
    assert score_tenths(demand_of([*honest, *trades])) == score_tenths(demand_of(honest))


@LIMITS
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))))
def test_weights_never_exceed_the_spending_that_is_left(spent: list[tuple[int, int, int]]) -> None:
    trades = []
    for number, amounts in enumerate(spent):
        wallet = address("own", number)
        trades.append(Trade(wallet, SELLER, USD))
        trades += [Trade(wallet, a, n * USD) for a, n in zip(ANCHORS, amounts, strict=True) if n]
    limit = min(sum(Fraction(min(20, sum(row) - row[x]), 20) for row in spent) for x in range(3))
    assert least(demand_of(trades)) <= limit


def test_chain_adds_up_its_sellers() -> None:
    trades = [*customer(ANN), Trade(ANN, SHOPS[0], USD), Trade(address("ben"), SHOPS[0], USD)]
    figures = market_of(trades).figures
    assert (figures.buyers, figures.proven_buyers) == (2, 1)
    assert figures.proven_volume == 2 * USD + 120 * USD
    assert figures.volume == 123 * USD
