"""Buyers' reports in both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tollgauge.core.endpoint.buyers_reports import (
    REPORTS_KEPT_MS,
    BuyerOutcome,
    BuyersReports,
)
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import buyers_reports
from tollgauge.store.endpoints.buyers_reports import BuyerReport

pytestmark = pytest.mark.asyncio

REPORT = BuyerReport(
    chain=8453,
    payer=b"p" * 20,
    nonce=b"1" * 32,
    endpoint_id="a",
    pay_to=b"s" * 20,
    outcome=BuyerOutcome.DELIVERED,
    at=1_000,
    signature=b"x" * 65,
)


async def test_each_payer_counts_once_per_payto_with_its_latest_report(store: Store) -> None:
    later = replace(REPORT, nonce=b"2" * 32, at=2_000, outcome=BuyerOutcome.EMPTY)
    for report in (
        *(REPORT, later),
        replace(REPORT, payer=b"q" * 20),
        replace(REPORT, nonce=b"3" * 32, pay_to=b"t" * 20, endpoint_id="b"),
    ):
        assert await store.writing(buyers_reports.add, report)

    assert await store.reading(buyers_reports.counts, ("a", "b", "c")) == {
        "a": BuyersReports(delivered=1, not_delivered=1),
        "b": BuyersReports(delivered=1, not_delivered=0),
    }


async def test_another_report_about_a_payment_is_not_stored(store: Store) -> None:
    assert await store.writing(buyers_reports.add, REPORT)
    assert await store.writing(buyers_reports.add, replace(REPORT, signature=b"y" * 65))
    changed = replace(REPORT, outcome=BuyerOutcome.EMPTY)
    assert not await store.writing(buyers_reports.add, changed)

    counts = await store.reading(buyers_reports.counts, ("a",))
    assert counts == {"a": BuyersReports(delivered=1, not_delivered=0)}


async def test_old_reports_are_deleted_in_batches(store: Store) -> None:
    for number in range(3):
        report = replace(REPORT, nonce=bytes([number]) * 32)
        assert await store.writing(buyers_reports.add, report)
    now = REPORT.at + REPORTS_KEPT_MS + 1
    deleted = [await store.writing(buyers_reports.forget, now=now, limit=2) for _ in range(3)]
    assert deleted == [2, 1, 0]
