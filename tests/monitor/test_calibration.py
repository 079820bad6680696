"""Stored forecasts and their outcomes."""

from __future__ import annotations

from dataclasses import replace

from tests.support.databases import on_both, on_sqlite
from tests.support.forecasts import (
    HALF_HOUR,
    HOUR,
    START,
    add_probed_endpoint,
    record,
    row,
    score_and_store,
)

from bench.replay import Line, probe_of
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, day_of
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.score.calibration import BASELINES, DAY, FORECAST, KEPT, NEXT, NOW, Sums
from tollgauge.db.engine import Store
from tollgauge.monitor import calibration
from tollgauge.store.probes import archive, probes
from tollgauge.store.scores import forecasts
from tollgauge.store.scores.forecasts import ForecastRow

pytestmark = on_sqlite

URL = "https://api.example.com/a"


async def outcomes(store: Store, *rows: ForecastRow) -> Sums:
    (sums,) = (await store.reading(calibration.outcomes, rows)).values()
    return sums


async def test_forecast_is_stored_with_its_baselines(store: Store) -> None:
    id_ = await add_probed_endpoint(store, URL, [True] * 47 + [False])
    as_of = START + 47 * HALF_HOUR
    score = await score_and_store(store, id_, as_of=as_of, payable_now_permille=321, grade="B")
    (forecast,) = await store.reading(calibration.make, [id_, "unknown"], now=as_of + MINUTE_MS)
    assert (forecast.hour, forecast.as_of, forecast.policy_version) == (HOUR + 23, as_of, 3)
    assert (forecast.forecast.payable_now, forecast.forecast.payable_24h) == (321, 950)
    assert forecast.forecast.grade == score.grade
    assert forecast.forecast.recommendation == score.recommendation
    last, average, week, month = forecast.forecast.baselines
    assert (last, week, month) == (0, 979, 979)
    assert 0 < average < week


async def test_old_score_or_score_without_forecast_is_not_stored(store: Store) -> None:
    id_ = await add_probed_endpoint(store, URL, [True] * 48)
    as_of = START + 47 * HALF_HOUR
    await score_and_store(store, id_, as_of=as_of)
    assert await store.reading(calibration.make, [id_], now=as_of + HOUR_MS) == []
    await score_and_store(store, id_, as_of=as_of + 1, payable_now_permille=None)
    assert await store.reading(calibration.make, [id_], now=as_of + 2) == []


@on_both
async def test_forecast_is_compared_with_next_probe_and_one_a_day_later(
    store: Store,
) -> None:
    id_ = await add_probed_endpoint(store, URL, [True, False] + [True] * 46 + [False, True])
    sums = await outcomes(store, row(id_))
    assert sums.of(NOW, FORECAST) == {990: (1, 0)}
    # 24 hours after the forecast is the 48th half hour.
    assert sums.of(DAY, FORECAST) == {950: (1, 0)}
    assert sums.of(NEXT, "grade") == {"A": (1, 0)}
    assert sums.of(DAY, "recommendation") == {"proceed": (1, 0)}
    assert sums.of(DAY, "age") == {"7 to 29 days": (1, 0)}
    assert all(sums.of(NOW, name) for name in BASELINES)


async def test_forecast_without_probes_is_not_counted(store: Store) -> None:
    id_ = await add_probed_endpoint(store, URL, [True])
    await record(store, id_, [True], start=START + DAY_MS + 31 * MINUTE_MS)
    late = probe_of(Line(START + HALF_HOUR, up=False), HALF_HOUR)
    ours = replace(late, attribution=Attribution.LOCAL)
    await store.writing(probes.record_many, id_, [ours])
    sums = await outcomes(store, row(id_))
    assert list(sums.rows()) == [(KEPT, 1, 0)]


async def test_throttled_probe_is_an_outcome_that_is_not_payable(store: Store) -> None:
    id_ = await add_probed_endpoint(store, URL, [True])
    throttled = probe_of(Line(START + HALF_HOUR, up=False, status=429), HALF_HOUR)
    await store.writing(probes.record_many, id_, [throttled])
    sums = await outcomes(store, row(id_))
    assert [hits for _, hits in sums.of(NOW, FORECAST).values()] == [0]


async def test_outcomes_do_not_change_when_their_days_are_closed(store: Store) -> None:
    id_ = await add_probed_endpoint(store, URL, [True, False, True] * 32)
    rows = [row(id_, hour=hour) for hour in range(24)]
    before = await outcomes(store, *rows)
    await store.writing(archive.close_days, before_day=day_of(START) + 3, limit=100)
    after = await outcomes(store, *rows)
    assert sorted(before.rows(), key=str) == sorted(after.rows(), key=str)
    assert before.of(NOW, FORECAST)[990][0] == 24


async def test_policies_are_never_pooled(store: Store) -> None:
    id_ = await add_probed_endpoint(store, URL, [True] * 50)
    sums = await store.reading(calibration.outcomes, [row(id_, policy=1), row(id_, policy=2)])
    assert {version: one.of(NOW, FORECAST) for version, one in sums.items()} == {
        1: {990: (1, 1)},
        2: {990: (1, 1)},
    }


def test_day_is_complete_when_probes_of_the_next_day_are() -> None:
    today = day_of(START)
    assert calibration.last_complete_day(START + 30 * MINUTE_MS - 1) == today - 3
    assert calibration.last_complete_day(START + 30 * MINUTE_MS) == today - 2


async def test_report_covers_the_last_thirty_days(store: Store) -> None:
    today = day_of(START)
    nothing = await store.reading(calibration.report, now=START)
    assert (nothing.first_day, nothing.last_day, nothing.sums) == (None, None, {})
    for day in (today - 31, today - 30, today - 2):
        await store.writing(forecasts.save_day, day, {2: Sums([(KEPT, 7, 0)])})
    report = await store.reading(calibration.report, now=START)
    assert (report.first_day, report.last_day) == (today - 30, today - 2)
    assert list(report.sums[2].rows()) == [(KEPT, 14, 0)]
