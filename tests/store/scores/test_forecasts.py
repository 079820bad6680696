"""Forecasts and counts as rows, on both databases."""

from __future__ import annotations

from tests.support.forecasts import HALF_HOUR, HOUR, START, add_probed_endpoint, row

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.score.calibration import DAY, FORECAST, NEXT, Cell, Sums
from tollgauge.core.watch.watch_rules import FORECASTS_MS
from tollgauge.db.engine import Store
from tollgauge.store.scores import forecasts

TODAY = day_of(START)


async def test_forecast_is_written_once(store: Store) -> None:
    assert await store.reading(forecasts.latest_hour) is None
    await store.writing(forecasts.add, [row(), row("b")])
    await store.writing(forecasts.add, [row(payable_now=1), row("c")])
    await store.writing(forecasts.add, [])
    stored = await store.reading(forecasts.of_day, TODAY)
    assert stored == (row(), row("b"), row("c"))
    assert await store.reading(forecasts.latest_hour) == HOUR


async def test_forecasts_are_stored_per_policy(store: Store) -> None:
    await store.writing(forecasts.add, [row(policy=1), row(policy=2, grade="B")])
    stored = await store.reading(forecasts.of_day, TODAY)
    assert [(one.policy_version, one.forecast.grade) for one in stored] == [(1, "A"), (2, "B")]


async def test_day_contains_the_forecasts_of_its_24_hours(store: Store) -> None:
    rows = [row(hour=hour) for hour in (-1, 0, 23, 24)]
    await store.writing(forecasts.add, rows)
    assert await store.reading(forecasts.of_day, TODAY) == tuple(rows[1:3])
    assert await store.reading(forecasts.unscored_days, before=TODAY + 1) == (TODAY - 1, TODAY)


async def test_counts_of_a_day_are_written_once(store: Store) -> None:
    await store.writing(forecasts.add, [row()])
    first = Sums([(Cell(DAY, FORECAST, 950), 3, 2)])
    await store.writing(forecasts.save_day, TODAY, {2: first})
    await store.writing(forecasts.save_day, TODAY, {2: Sums([(Cell(DAY, FORECAST, 950), 9, 9)])})
    assert await store.reading(forecasts.unscored_days, before=TODAY + 1) == ()
    sums = await store.reading(forecasts.sums_since, TODAY)
    assert {version: list(one.rows()) for version, one in sums.items()} == {
        2: [(Cell(DAY, FORECAST, "950"), 3, 2)]
    }


async def test_days_are_summed_but_policies_are_not(store: Store) -> None:
    cell = Cell(NEXT, "grade", "A")
    for day in range(3):
        sums = {1: Sums([(cell, 1, 0)]), 2: Sums([(cell, 5, 4)])}
        await store.writing(forecasts.save_day, TODAY + day, sums)
    added = await store.reading(forecasts.sums_since, TODAY + 1)
    assert {version: list(one.rows()) for version, one in added.items()} == {
        1: [(cell, 2, 0)],
        2: [(cell, 10, 8)],
    }
    assert await store.reading(forecasts.days_since, TODAY + 1) == (TODAY + 1, TODAY + 2)


async def test_counts_outlive_their_forecasts(store: Store) -> None:
    await store.writing(forecasts.add, [row(), row(hour=1), row(hour=24)])
    await store.writing(forecasts.save_day, TODAY, {2: Sums([(Cell(NEXT, "grade", "A"), 1, 1)])})
    late = (TODAY + 1) * DAY_MS + FORECASTS_MS
    assert await store.writing(forecasts.forget, now=late - 1, limit=1) == 0
    assert [await store.writing(forecasts.forget, now=late, limit=1) for _ in range(3)] == [1, 1, 0]
    assert await store.reading(forecasts.of_day, TODAY) == ()
    assert 2 in await store.reading(forecasts.sums_since, TODAY)


async def test_recently_probed_endpoints_are_found(store: Store) -> None:
    late = await add_probed_endpoint(
        store, "https://late.example.com/a", [True], start=START + HALF_HOUR
    )
    await add_probed_endpoint(store, "https://early.example.com/a", [True])
    assert await store.reading(forecasts.find_probed_since, START) == [late]
