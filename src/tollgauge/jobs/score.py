"""The score loop: score the endpoints whose evidence changed (monitor/scoring).

A score is computed again when its evidence changed, and at least every 24 hours,
because the window moves on even when nothing else does.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from tollgauge.core.base.units import DAY_MS, Clock
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring
from tollgauge.observe import SCORES, log
from tollgauge.store.endpoints import endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """How much is scored at once, and how old a score may get."""

    batch: PositiveInt = 200
    """Endpoints that a round takes."""
    max_age_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = DAY_MS
    """A score is never older; 24 hours at most."""


async def run(
    store: Store, *, settings: ScoreSettings, cadence: Cadence, clock: Clock
) -> dict[str, object]:
    """Score a batch of dirty or stale endpoints, which are probed at a cadence; the tally counts
    grades.
    """
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
    tally.update(row.grade or "unverified" for row in outcome.rows)
    return {**+tally, "busy": len(ids) >= settings.batch} if ids else {}
