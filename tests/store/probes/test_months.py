"""Old days as months, on both databases, against sums over every probe."""

from __future__ import annotations

from dataclasses import replace

from tests.support.day_spans import spans_by_day
from tests.support.probe_archive import (
    DAY,
    GOOD,
    A,
    B,
    cadence,
    close_all,
    lively,
    prepare,
    sums_by_month,
)
from tests.support.record_probe import record_probe

from tollgauge.core.probe import ProbeResult
from tollgauge.core.rollup import Totals, rollup, totals
from tollgauge.core.spans import NO_SPANS, spans_sum, statement
from tollgauge.core.units import DAY_MS, date_of, day_of, month_of
from tollgauge.db.engine import Store
from tollgauge.store.probes import changes, months, probes

LAST_OF_MONTH = next(day for day in range(DAY, DAY + 31) if date_of(day + 1).day == 1)
"""The last UTC day of the month of DAY."""


async def fold_all(store: Store, before_day: int, limit: int = 40) -> int:
    total = 0
    while folded := await store.writing(months.fold, before_day=before_day, limit=limit):
        total += folded
    return total


def sums_of(results: list[ProbeResult], *, month: int) -> Totals:
    """What the probes of a month add up to, without their spans."""
    days = {day_of(one.at) for one in results if month_of(day_of(one.at)) == month}
    of_day = {day: [one for one in results if day_of(one.at) == day] for day in days}
    return totals(rollup(day, probed) for day, probed in of_day.items())


async def test_old_days_become_the_sums_of_their_months(store: Store) -> None:
    first = LAST_OF_MONTH - 1
    results = lively(7, first=first * DAY_MS, last=(first + 4) * DAY_MS - 1, number=300)
    await prepare(store, results, replace(GOOD, at=first * DAY_MS))
    await close_all(store, first + 4)
    assert await fold_all(store, first + 3, limit=2) == 4  # three days of A, one of B
    folded = [one for one in results if day_of(one.at) < first + 3]
    sums = await store.reading(sums_by_month, A.id)
    assert {month: replace(part, spans=NO_SPANS) for month, part in sums.items()} == {
        month: sums_of(folded, month=month) for month in (month_of(first), month_of(first + 2))
    }
    assert (await store.reading(sums_by_month, B.id))[month_of(first)].probes == 1
    kept = await store.reading(probes.days, A.id, first_day=first, last_day=first + 9)
    assert [day.day for day in kept] == [first + 3]


async def test_the_time_that_a_month_was_up_is_that_of_its_days(store: Store) -> None:
    first, end = LAST_OF_MONTH - 2, (LAST_OF_MONTH + 1) * DAY_MS
    results = cadence(4, days=3, start=first * DAY_MS)
    await prepare(store, results)
    await close_all(store, first + 3)
    assert await fold_all(store, first + 3) == 3
    (sums,) = (await store.reading(sums_by_month, A.id)).values()
    said = [one for one in map(statement, results) if one is not None]
    by_day = spans_by_day(said, until=end)
    assert sums.spans == spans_sum((spans, 1) for spans in by_day.values())
    assert 0 < sums.spans.down < sums.spans.up


async def test_a_late_probe_of_a_folded_day_is_added_to_its_month(store: Store) -> None:
    results = cadence(4, days=1)
    await prepare(store, results)
    await close_all(store, DAY + 1)
    await fold_all(store, DAY + 1)
    assert await store.writing(record_probe, A.id, replace(GOOD, at=results[0].at + 1))
    await close_all(store, DAY + 1)
    assert await fold_all(store, DAY + 1) == 1
    (sums,) = (await store.reading(sums_by_month, A.id)).values()
    assert sums.probes == len([one for one in results if day_of(one.at) == DAY]) + 1


async def test_how_often_an_endpoint_was_checked_is_known_of_each_folded_day(store: Store) -> None:
    """A watch that was renewed again and again tells it since it began."""
    first = LAST_OF_MONTH - 2
    results = lively(9, first=first * DAY_MS, last=(first + 6) * DAY_MS - 1, number=500)
    await prepare(store, results)
    await close_all(store, first + 6)
    since, until = (first + 1) * DAY_MS - 1, (first + 6) * DAY_MS - 1
    before = await store.reading(changes.checks, A.id, since=since, until=until)
    await fold_all(store, first + 1)
    for folded in (2, 3, 5):
        await fold_all(store, first + folded)
        days = [rollup(first + n, of_day(results, first + n)) for n in range(1, folded)]
        whole = {"first_day": first + 1, "last_day": first + folded - 1}
        expected = sum(day.probes for day in days), sum(day.scored for day in days)
        assert await store.reading(months.counts, A.id, **whole) == expected
    # The day of its beginning is cut, so that its probes themselves count: they are gone.
    gone = [one for one in of_day(results, first + 1) if not one.confirms]
    checks = await store.reading(changes.checks, A.id, since=since, until=until)
    assert checks == (before[0] - len(gone), before[1] - sum(one.scored for one in gone))


def of_day(results: list[ProbeResult], day: int) -> list[ProbeResult]:
    return [one for one in results if day_of(one.at) == day]
