from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.directory.discovery import (
    CrawlCount,
    carry_terms,
    find_changes,
    is_same_directory,
)
from tollgauge.core.endpoint.terms import Quote, UnpricedTerms
from tollgauge.core.watch.changes import term_changes

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


def test_new_amount_is_a_price_change_in_atomic_units() -> None:
    assert find_changes(QUOTE, replace(QUOTE, amount=20_000)) == (
        ("price-changed", "10000", "20000"),
    )


def test_new_asset_is_a_price_change_that_names_both_assets() -> None:
    other = "0x" + "a" * 40
    assert find_changes(QUOTE, replace(QUOTE, asset=other)) == (
        ("price-changed", f"10000 {USDC}", f"10000 {other}"),
    )


def test_new_receiver_is_a_payto_change() -> None:
    after = replace(QUOTE, pay_to="0x" + "2" * 40)
    assert find_changes(QUOTE, after) == (("payto-changed", QUOTE.pay_to, after.pay_to),)


def test_same_dollar_on_another_network_is_not_a_price_change() -> None:
    after = replace(QUOTE, network=POLYGON, asset=POLYGON_USDC)
    assert find_changes(QUOTE, after) == (("network-changed", BASE, POLYGON),)


def test_unknown_token_on_another_network_is_a_price_and_a_network_change() -> None:
    after = replace(QUOTE, network=POLYGON, asset="0x" + "a" * 40)
    assert [kind for kind, _, _ in find_changes(QUOTE, after)] == [
        "price-changed",
        "network-changed",
    ]


def test_new_receiver_counts_without_an_amount() -> None:
    before = UnpricedTerms(network=BASE, asset=USDC, pay_to=QUOTE.pay_to)
    after = replace(before, pay_to="0x" + "2" * 40)
    changed = (("payto-changed", QUOTE.pay_to, after.pay_to),)
    assert find_changes(before, after) == find_changes(QUOTE, after) == changed
    assert find_changes(before, replace(before, network="")) == ()
    assert [change.type for change in term_changes(before, after, at=1, source="s")] == [
        "payto_change"
    ]


def test_omitted_terms_are_carried_over_from_the_previous_crawl() -> None:
    after = UnpricedTerms(network="", asset="", pay_to="0x" + "2" * 40)
    assert carry_terms(QUOTE, after) == replace(QUOTE, pay_to=after.pay_to)
    moved = replace(after, network=POLYGON)
    assert carry_terms(QUOTE, moved) == replace(moved, asset=USDC)
    assert carry_terms(QUOTE, None) == QUOTE
    assert carry_terms(None, after) == after
    assert carry_terms(after, QUOTE) == QUOTE


@pytest.mark.parametrize(
    ("census", "suspicious"),
    [
        (CrawlCount(listed=1), False),
        (CrawlCount(listed=50, complete=100), False),
        (CrawlCount(listed=49, complete=100), True),
        (CrawlCount(listed=49, complete=100, suspicious=40, repeated=30), False),
        (CrawlCount(listed=29, complete=100, suspicious=40, repeated=40), True),
        (CrawlCount(listed=40, complete=100, suspicious=40, repeated=29), True),
        (CrawlCount(listed=60, complete=100, suspicious=40, repeated=40), False),
    ],
)
def test_crawl_that_shrank_is_suspicious_until_a_second_agrees(
    census: CrawlCount, suspicious: bool
) -> None:
    assert census.is_suspicious is suspicious


@pytest.mark.parametrize(
    ("one", "other", "shared", "same"),
    [
        (100, 100, 50, True),
        (100, 100, 49, False),
        (30, 100, 30, True),
        (5, 1_000, 5, False),
        (0, 10, 0, False),
    ],
)
def test_listings_with_enough_shared_entries_look_the_same(
    one: int, other: int, shared: int, same: bool
) -> None:
    assert is_same_directory(one, other, shared) is is_same_directory(other, one, shared) is same


def test_tenth_is_enough_between_files_that_differ_in_digits() -> None:
    assert is_same_directory(100, 100, 10, named_alike=True)
    assert not is_same_directory(100, 100, 9, named_alike=True)
    assert not is_same_directory(0, 0, 0, named_alike=True)


def test_absence_is_not_a_price() -> None:
    assert find_changes(None, QUOTE) == find_changes(QUOTE, None) == find_changes(None, None) == ()


@given(quotes, quotes)
def test_quotes_differ_exactly_when_something_changed(before: Quote, after: Quote) -> None:
    assert bool(find_changes(before, after)) == (before != after)


@given(quotes, quotes)
def test_way_back_is_the_mirror_image(before: Quote, after: Quote) -> None:
    mirrored = tuple((kind, b, a) for kind, a, b in find_changes(after, before))
    assert find_changes(before, after) == mirrored
