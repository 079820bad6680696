"""Loops of scores: compute scores whose evidence changed, and test forecasts.

A score is also recomputed at least every 24 hours, because its window moves. Forecasts are stored
once per hour, and those of a complete day are compared with the outcomes once per day
(monitor/calibration).
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from tollgauge.core.base.units import DAY_MS, HOUR_MS, Clock
from tollgauge.core.calibration.calibration import Sums, sample
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store
from tollgauge.monitor import calibration, scoring
from tollgauge.observe import SCORES, log
from tollgauge.store import rows
from tollgauge.store.endpoints import endpoints
from tollgauge.store.scores import forecasts


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """How many endpoints are scored together, and the maximum age of a score."""

    batch: PositiveInt = 200
    """Endpoints per round."""
    max_age_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = DAY_MS
    """Maximum age of a score; at most 24 hours."""


async def run(
    store: Store, *, settings: ScoreSettings, cadence: Cadence, clock: Clock
) -> dict[str, object]:
    """Score a batch of dirty or stale endpoints. The tally counts grades."""
    ids = await store.writing(
        endpoints.claim_dirty, now=clock(), limit=settings.batch, max_age_ms=settings.max_age_ms
    )
    tally: Counter[str] = Counter()
    outcome = await scoring.score_and_save(store, ids, cadence=cadence, now=clock())
    for id_, error in outcome.failed.items():
        log().error("score.fail", endpoint=id_, error=str(error))
    SCORES.inc(len(outcome.rows))
    tally["scored"] += len(outcome.rows) + len(outcome.failed)
    tally["failed"] += len(outcome.failed)
    figures = (row.figures for row in outcome.rows if row.figures is not None)
    tally.update(row.grade or "unverified" for row in figures)
    return {**+tally, "busy": len(ids) >= settings.batch} if ids else {}


BATCH_SIZE: Final = 50  # forecasts stored or compared per transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How many forecasts are tested."""

    forecasts_per_hour: NonNegativeInt = 500
    """Forecasts stored per hour for comparison with the outcomes; 0 stores none."""


async def calibrate(
    store: Store, *, settings: CalibrationSettings, clock: Clock
) -> dict[str, object]:
    """Store this hour's forecasts and compare those of one day. The tally counts both."""
    kept = await _store_forecasts(store, limit=settings.forecasts_per_hour, now=clock())
    last = calibration.last_complete_day(clock())
    days = await store.reading(forecasts.unscored_days, before=last + 1)
    scored = await _score_day(store, days[0]) if days else 0
    return {"kept": kept, "scored": scored, "busy": len(days) > 1}


async def _store_forecasts(store: Store, *, limit: int, now: int) -> int:
    hour = forecasts.hour_of(now)
    if await store.reading(forecasts.latest_hour) == hour:
        return 0
    probed = await store.reading(forecasts.probed_since, now - HOUR_MS)
    new = []
    for ids in rows.chunks(sample(probed, hour, limit=limit), BATCH_SIZE):
        new += await store.reading(calibration.make, ids, now=now)
    await store.writing(forecasts.add, new)
    return len(new)


async def _score_day(store: Store, day: int) -> int:
    of_day = await store.reading(forecasts.of_day, day)
    sums: dict[int, Sums] = {}
    for batch in rows.chunks(of_day, BATCH_SIZE):
        for version, counted in (await store.reading(calibration.outcomes, batch)).items():
            sums.setdefault(version, Sums()).update(counted)
    await store.writing(forecasts.save_day, day, sums)
    return len(of_day)
