"""Which endpoint a payment is for, where several are paid at the same address."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.chain.shared_pay_to import PaymentGroup, attribute_payments
from tollgauge.core.endpoint.terms import KnownOffer

NETWORK = "eip155:8453"
PAY_TO = "0x" + 40 * "1"


def offer(
    amount: int | None, scheme: str = "exact", code: str = "", until: int | None = None
) -> KnownOffer:
    return KnownOffer(NETWORK, scheme, PAY_TO, amount, until, app_code=code)


def test_amount_that_one_endpoint_asks_is_certain() -> None:
    groups = [PaymentGroup(100, "", 3), PaymentGroup(200, "", 5), PaymentGroup(300, "", 7)]
    assert attribute_payments(groups, {"cheap": [offer(100)], "dear": [offer(200)]}) == {
        "cheap": (3, 0),
        "dear": (5, 0),
    }


def test_amount_that_several_endpoints_ask_is_possible_for_each() -> None:
    offers = {"one": [offer(100), offer(200)], "two": [offer(100)]}
    groups = [PaymentGroup(100, "", 3), PaymentGroup(200, "", 5)]
    assert attribute_payments(groups, offers) == {"one": (5, 3), "two": (0, 3)}


def test_earlier_price_counts() -> None:
    offers = {"one": [offer(200), offer(100, until=9)], "two": [offer(300)]}
    assert attribute_payments([PaymentGroup(100, "", 4)], offers) == {"one": (4, 0), "two": (0, 0)}


def test_upto_may_settle_less_than_its_price() -> None:
    offers = {"upto": [offer(500, "upto")], "exact": [offer(100)]}
    groups = [PaymentGroup(100, "", 1), PaymentGroup(499, "", 2), PaymentGroup(501, "", 4)]
    assert attribute_payments(groups, offers) == {"upto": (2, 1), "exact": (0, 1)}


def test_batch_may_settle_any_sum() -> None:
    offers = {"batch": [offer(500, "batch-settlement")], "exact": [offer(100)]}
    groups = [PaymentGroup(100, "", 1), PaymentGroup(7_777, "", 2)]
    assert attribute_payments(groups, offers) == {"batch": (2, 1), "exact": (0, 1)}


def test_any_amount_is_possible_for_an_unknown_price() -> None:
    offers = {"unknown": [offer(None)], "known": [offer(100)]}
    groups = [PaymentGroup(100, "", 1), PaymentGroup(7, "", 2)]
    assert attribute_payments(groups, offers) == {"unknown": (2, 1), "known": (0, 1)}


def test_builder_code_decides_between_equal_amounts() -> None:
    offers = {"maps": [offer(100, code="bc_maps")], "news": [offer(100, code="bc_news")]}
    groups = [
        PaymentGroup(100, "bc_maps", 3),
        PaymentGroup(100, "bc_wallet", 5),
        PaymentGroup(100, "", 7),
        PaymentGroup(900, "bc_maps", 9),  # of the app, and of neither of its prices
    ]
    assert attribute_payments(groups, offers) == {"maps": (3, 12), "news": (0, 12)}


prices = st.integers(1, 6)
codes = st.sampled_from(["", "a", "b"])
known = st.builds(offer, st.none() | prices, st.sampled_from(["exact", "upto"]), codes)
groups_made = st.lists(st.builds(PaymentGroup, prices, codes, st.integers(1, 9)), max_size=12)


@given(groups_made, st.dictionaries(st.sampled_from("wxyz"), st.lists(known, min_size=1)))
def test_no_payment_is_certain_for_two_endpoints(
    groups: list[PaymentGroup], offers: dict[str, list[KnownOffer]]
) -> None:
    found = attribute_payments(groups, offers)
    total = sum(group.payments for group in groups)
    certain = sum(of_one for of_one, _ in found.values())
    assert set(found) == set(offers)
    assert certain <= total
    assert all(possible <= total - certain for _, possible in found.values())
    for group in groups:
        (alone,) = [attribute_payments([group], offers)]
        assert sum(of_one == group.payments for of_one, _ in alone.values()) <= 1
        assert sum(possible > 0 for _, possible in alone.values()) != 1
