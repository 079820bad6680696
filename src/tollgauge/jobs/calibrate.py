"""The calibrate loop: once an hour it stores forecasts, and once a day it scores those whose time
has come (monitor/calibration).
"""

from __future__ import annotations

from typing import Final

from pydantic import NonNegativeInt
from pydantic.dataclasses import dataclass

from tollgauge.core.base.units import HOUR_MS, Clock
from tollgauge.core.calibration.calibration import Sums, sample
from tollgauge.db.engine import Store
from tollgauge.monitor import calibration
from tollgauge.store import rows
from tollgauge.store.scores import forecasts

BATCH: Final = 50
"""How many forecasts are made or scored in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How many forecasts are looked at."""

    forecasts_per_hour: NonNegativeInt = 500
    """Stored to be held against what happens; 0 stores none."""


async def run(store: Store, *, settings: CalibrationSettings, clock: Clock) -> dict[str, object]:
    """Store forecasts of this hour if there are none, and score one day; the tally counts both."""
    kept = await _keep(store, limit=settings.forecasts_per_hour, now=clock())
    last = calibration.last_complete_day(clock())
    days = await store.reading(forecasts.unscored_days, before=last + 1)
    scored = await _score(store, days[0]) if days else 0
    return {"kept": kept, "scored": scored, "busy": len(days) > 1}


async def _keep(store: Store, *, limit: int, now: int) -> int:
    hour = forecasts.hour_of(now)
    if await store.reading(forecasts.latest_hour) == hour:
        return 0
    probed = await store.reading(forecasts.probed_since, now - HOUR_MS)
    new = []
    for ids in rows.chunks(sample(probed, hour, limit=limit), BATCH):
        new += await store.reading(calibration.make, ids, now=now)
    await store.writing(forecasts.add, new)
    return len(new)


async def _score(store: Store, day: int) -> int:
    of_day = await store.reading(forecasts.of_day, day)
    sums: dict[int, Sums] = {}
    for batch in rows.chunks(of_day, BATCH):
        for version, counted in (await store.reading(calibration.outcomes, batch)).items():
            sums.setdefault(version, Sums()).update(counted)
    await store.writing(forecasts.save_day, day, sums)
    return len(of_day)
