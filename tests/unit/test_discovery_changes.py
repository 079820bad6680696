from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.discovery import changes
from tollgauge.core.terms import Quote

BASE, SEPOLIA, POLYGON = "eip155:8453", "eip155:84532", "eip155:137"
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
POLYGON_USDC = "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359"
QUOTE = Quote(network=BASE, asset=USDC, amount=10_000, pay_to="0x" + "1" * 40)

quotes = st.builds(
    Quote,
    network=st.sampled_from((BASE, SEPOLIA, POLYGON)),
    asset=st.sampled_from((USDC, POLYGON_USDC, "0x" + "a" * 40)),
    amount=st.integers(min_value=0, max_value=3),
    pay_to=st.sampled_from(("0x" + "1" * 40, "0x" + "2" * 40)),
)


def test_a_new_amount_is_a_price_change_in_atomic_units() -> None:
    assert changes(QUOTE, replace(QUOTE, amount=20_000)) == (("price-changed", "10000", "20000"),)


def test_a_new_asset_is_a_price_change_that_names_both_assets() -> None:
    other = "0x" + "a" * 40
    assert changes(QUOTE, replace(QUOTE, asset=other)) == (
        ("price-changed", f"10000 {USDC}", f"10000 {other}"),
    )


def test_a_new_receiver_is_a_payto_change() -> None:
    after = replace(QUOTE, pay_to="0x" + "2" * 40)
    assert changes(QUOTE, after) == (("payto-changed", QUOTE.pay_to, after.pay_to),)


def test_the_same_dollar_on_another_network_is_no_price_change() -> None:
    after = replace(QUOTE, network=POLYGON, asset=POLYGON_USDC)
    assert changes(QUOTE, after) == (("network-changed", BASE, POLYGON),)


def test_an_unknown_token_on_another_network_is_a_price_and_a_network_change() -> None:
    after = replace(QUOTE, network=POLYGON, asset="0x" + "a" * 40)
    assert [kind for kind, _, _ in changes(QUOTE, after)] == ["price-changed", "network-changed"]


def test_absence_is_not_a_price() -> None:
    assert changes(None, QUOTE) == changes(QUOTE, None) == changes(None, None) == ()


@given(quotes, quotes)
def test_quotes_differ_exactly_when_something_changed(before: Quote, after: Quote) -> None:
    assert bool(changes(before, after)) == (before != after)


@given(quotes, quotes)
def test_the_way_back_is_the_mirror_image(before: Quote, after: Quote) -> None:
    mirrored = tuple((kind, b, a) for kind, a, b in changes(after, before))
    assert changes(before, after) == mirrored
