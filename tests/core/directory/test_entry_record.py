"""Statements of directories, reasons for dropped entries, and differences from the live 402."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.units import BASE, DAY_MS
from tollgauge.core.directory.entry_record import (
    CatalogueStatus,
    DropReason,
    EntryStatement,
    explain_drop,
    find_differences,
    read_statement,
)
from tollgauge.core.directory.listing import ListedItem, read_item
from tollgauge.core.endpoint.terms import KnownOffer, Quote, UnpricedTerms

NOW = 1_766_283_370_000
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
QUOTE = Quote(network=BASE, asset=USDC, amount=10_000, pay_to="0xaa")
OFFER = KnownOffer(BASE, "exact", "0xaa", 10_000)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def test_quality_and_status_of_an_entry_are_read() -> None:
    item = read_item(
        {
            "resource": "https://a.com/x",
            "lastUpdated": "2025-12-21T02:16:10Z",
            "quality": {
                "l30DaysTotalCalls": 12,
                "l30DaysUniquePayers": 3,
                "lastCalledAt": "2025-12-20T02:16:10Z",
            },
            "extensionResponses": {
                "bazaar": {"status": "rejected", "rejectedReason": "invalid\u202e configuration"}
            },
        }
    )
    assert isinstance(item, ListedItem)
    assert item.statement == EntryStatement(
        status=CatalogueStatus.REJECTED,
        reason="invalid configuration",
        calls=12,
        payers=3,
        last_called_at=NOW - DAY_MS,
        updated_at=NOW,
    )


def test_entry_without_statement_has_none() -> None:
    assert read_statement({"resource": "https://a.com/x", "quality": {}}) is None


@given(JSON, JSON, JSON)
def test_no_value_of_an_entry_raises(quality: Any, bazaar: Any, updated: Any) -> None:
    item = {"quality": quality, "extensionResponses": {"bazaar": bazaar}, "lastUpdated": updated}
    read_statement(item)
    read_statement({"quality": {"l30DaysTotalCalls": quality, "lastCalledAt": bazaar}})
    read_statement({"extensions": {"bazaar": {"status": quality, "reason": bazaar}}})


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (None, None),
        (EntryStatement(calls=0), None),
        (EntryStatement(last_called_at=NOW - 27 * DAY_MS), None),
        (EntryStatement(last_called_at=NOW - 29 * DAY_MS), DropReason.NO_RECENT_CALL),
        (EntryStatement(status=CatalogueStatus.PROCESSING), None),
        (EntryStatement(status=CatalogueStatus.REJECTED, last_called_at=NOW), DropReason.REJECTED),
    ],
)
def test_drop_is_explained_only_by_the_last_statement(
    statement: EntryStatement | None, expected: DropReason | None
) -> None:
    assert explain_drop(statement, NOW) is expected


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ((), []),
        ((OFFER,), []),
        ((KnownOffer(BASE, "upto", "0xbb", 1), OFFER), []),
        ((KnownOffer(BASE, "exact", "0xaa", 10_000, until=NOW),), []),
        ((KnownOffer(BASE, "exact", "0xaa", 20_000),), [("price", "$0.01", "$0.02")]),
        ((KnownOffer(BASE, "exact", "0xaa", None),), [("price", "$0.01", "")]),
        ((KnownOffer(BASE, "exact", "0xbb", 10_000),), [("payTo", "0xaa", "0xbb")]),
        ((KnownOffer(BASE, "upto", "0xaa", 10_000),), [("scheme", "exact", "upto")]),
        ((KnownOffer("eip155:137", "exact", "0xaa", 10_000),), [("network", BASE, "eip155:137")]),
        # The price belongs to the offer with the listed payTo.
        (
            (KnownOffer(BASE, "exact", "0xbb", 10_000), KnownOffer(BASE, "exact", "0xaa", 5_000)),
            [("price", "$0.01", "$0.005")],
        ),
    ],
)
def test_listed_terms_are_compared_with_the_current_offers(
    offers: tuple[KnownOffer, ...], expected: list[tuple[str, str, str]]
) -> None:
    found = find_differences(QUOTE, "exact", offers)
    assert [(one.field, one.listed, one.live) for one in found] == expected


def test_missing_and_varying_terms_are_not_compared() -> None:
    other = (KnownOffer("eip155:137", "upto", "0xbb", 5),)
    missing = UnpricedTerms(network="", asset="", pay_to="0xbb")
    assert find_differences(missing, "", other) == ()
    found = find_differences(QUOTE, "", other, without=("payTo", "price"))
    assert [one.field for one in found] == ["network"]
