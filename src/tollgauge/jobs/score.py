"""The score loop: score the endpoints whose evidence changed (monitor/scoring).

A score is computed again when its evidence changed, and at least every 24 hours,
because the window moves on even when nothing else does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Annotated

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from tollgauge.core.evidence import EvidenceError
from tollgauge.core.schedule import Cadence
from tollgauge.core.score import ScoreError
from tollgauge.core.units import DAY_MS
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring
from tollgauge.observe import SCORES, log
from tollgauge.store.endpoints import endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """How many endpoints a round takes, and how old a score may get."""

    batch: PositiveInt = 200
    max_age_ms: Annotated[int, Field(ge=1, le=DAY_MS)] = DAY_MS


async def run(
    store: Store, *, settings: ScoreSettings, cadence: Cadence, clock: Callable[[], int]
) -> dict[str, object]:
    """Score a batch of dirty or stale endpoints, which are probed at a cadence; the tally counts
    grades.
    """
    ids = await store.writing(
        endpoints.claim_dirty, now=clock(), limit=settings.batch, max_age_ms=settings.max_age_ms
    )
    if not ids:
        return {}
    claimed = await store.reading(endpoints.get_many, ids)
    tally: Counter[str] = Counter()
    for endpoint in claimed.values():
        try:
            row = await scoring.score_and_save(store, endpoint, cadence=cadence, now=clock())
        except (EvidenceError, ScoreError) as error:  # one that cannot be scored stops nobody else
            log().error("score.fail", endpoint=endpoint.id, error=str(error))
            tally["failed"] += 1
            continue
        SCORES.inc()
        tally[row.grade or "unverified"] += 1
    return {"scored": len(claimed), **tally, "busy": len(ids) >= settings.batch}
