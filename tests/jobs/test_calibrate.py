"""The calibrate loop with a simulated clock."""

from __future__ import annotations

from tests.support.databases import on_both, on_sqlite
from tests.support.forecasts import (
    HALF_HOUR,
    HOUR,
    START,
    add_probed_endpoint,
    record,
    score_and_store,
)
from tests.support.probe_loop import Clock

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, day_of
from tollgauge.core.score.calibration import DAY, FORECAST, KEPT, NOW, qualities, sample
from tollgauge.core.score.policy import POLICY
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.jobs.loop_settings import CalibrationSettings
from tollgauge.monitor import calibration
from tollgauge.store.scores import forecasts

pytestmark = on_sqlite


async def run(store: Store, clock: Clock, limit: int = 500) -> dict[str, object]:
    return await score.calibrate(
        store, settings=CalibrationSettings(forecasts_per_hour=limit), clock=clock
    )


async def sites(store: Store, count: int) -> list[str]:
    """Store and score endpoints that were payable for six hours; return their IDs."""
    ids = [
        await add_probed_endpoint(store, f"https://site{number}.example.com/a", [True] * 12)
        for number in range(count)
    ]
    for id_ in ids:
        await score_and_store(store, id_, as_of=START + 11 * HALF_HOUR)
    return ids


async def test_each_hour_is_stored_once_and_each_day_scored_once(store: Store) -> None:
    (id_,) = await sites(store, 1)
    clock = Clock(START + 11 * HALF_HOUR + MINUTE_MS)
    assert await run(store, clock) == {"kept": 1, "scored": 0, "busy": False}
    assert (await run(store, clock))["kept"] == 0
    await record(store, id_, [False], start=START + 12 * HALF_HOUR)
    await record(store, id_, [True], start=START + 11 * HALF_HOUR + DAY_MS)
    clock.now = START + 2 * DAY_MS + HALF_HOUR - 1
    assert (await run(store, clock))["scored"] == 0
    clock.now += 1
    assert (await run(store, clock))["scored"] == 1
    assert (await run(store, clock))["scored"] == 0
    sums = (await store.reading(calibration.report, now=clock.now)).sums[POLICY.version]
    assert sums.of(KEPT.horizon, KEPT.measure) == {"kept": (1, 0)}
    brier = {row.name: row.brier_millionths for row in qualities(sums, NOW)}
    assert (brier[FORECAST], brier["last-probe"]) == (980_100, 1_000_000)
    brier = {row.name: row.brier_millionths for row in qualities(sums, DAY)}
    assert (brier[FORECAST], brier["last-probe"]) == (2_500, 0)


async def test_large_set_of_endpoints_is_sampled(store: Store) -> None:
    ids = await sites(store, 6)
    clock = Clock(START + 11 * HALF_HOUR + MINUTE_MS)
    assert (await run(store, clock, limit=2))["kept"] == 2
    stored = await store.reading(forecasts.of_day, day_of(START))
    assert {row.endpoint_id for row in stored} == set(sample(ids, HOUR + 5, limit=2))


@on_both
async def test_nothing_is_stored_if_disabled_or_without_probes(store: Store) -> None:
    await sites(store, 1)
    clock = Clock(START + 11 * HALF_HOUR + MINUTE_MS)
    assert (await run(store, clock, limit=0))["kept"] == 0
    clock.now += HOUR_MS
    assert (await run(store, clock))["kept"] == 0


async def test_day_without_outcomes_is_not_scored_again(store: Store) -> None:
    await sites(store, 1)
    clock = Clock(START + 11 * HALF_HOUR + MINUTE_MS)
    await run(store, clock)
    clock.now = START + 3 * DAY_MS
    assert (await run(store, clock))["scored"] == 1
    assert (await run(store, clock))["scored"] == 0


def test_sample_changes_every_hour_and_ignores_the_order_of_ids() -> None:
    ids = [f"{number:016x}" for number in range(1_000)]
    first = sample(ids, 1, limit=100)
    assert sorted(first) == sorted(sample(reversed(ids), 1, limit=100))
    assert len(set(first)) == 100
    assert len(set(first) & set(sample(ids, 2, limit=100))) < 30
    assert sample(ids[:3], 1, limit=100) != []
