"""Loops that count: the ranking and statistics of all endpoints, and each one's alternatives.

Results are stored for all readers (monitor/ranking, monitor/statistics). Numbers of better
alternatives come from the similarity index; only changed ones are written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollgauge.core.base.units import Clock
from tollgauge.db.engine import Store
from tollgauge.monitor import ranking, statistics
from tollgauge.monitor.alternatives import Alternatives
from tollgauge.store.endpoints import rated_endpoints

if TYPE_CHECKING:
    from tollgauge.core.similarity.similarity_index import SimilarityIndex


async def run(store: Store, *, clock: Clock) -> dict[str, object]:
    """Compute ranking and statistics if they are due. The tally contains the ranked endpoints."""
    now = clock()
    if await store.reading(statistics.is_due, now=now):
        await store.writing(statistics.keep, await store.reading(statistics.count, now=now))
    if not await store.reading(ranking.is_due, now=now):
        return {}
    counted = await store.reading(ranking.count, now=now)
    stored = await store.writing(ranking.keep, counted)
    return {"ranked": counted.population.scored} if stored else {}


SLICE: Final = 500  # endpoints per read of the database
# Pause after a count as a multiple of its duration: 100,000 endpoints keep a core busy.
REST_FACTOR: Final = 4


@dataclass(slots=True)
class CountingPause:
    """The time before which the next count must not begin (ms UTC)."""

    resting_until: int = 0


async def count_alternatives(
    store: Store, alternatives: Alternatives, *, pause: CountingPause, clock: Clock
) -> dict[str, object]:
    """Refresh the index and count alternatives. The tally contains the endpoints and the changed
    counts.
    """
    began = clock()
    if began < pause.resting_until:
        return {}
    index = await alternatives.refresh(store)
    changed = 0
    for first in range(0, index.size, SLICE):
        changed += await _count_slice(store, index, first)
    ended = clock()
    pause.resting_until = ended + REST_FACTOR * (ended - began)
    return {"counted": index.size, "changed": changed} if changed else {}


async def _count_slice(store: Store, index: SimilarityIndex, first: int) -> int:
    """Count one slice and store the changed counts."""
    counts = dict(await asyncio.to_thread(index.counts, first, first + SLICE))
    before = await store.reading(rated_endpoints.count_better, counts)
    changed = {id_: better for id_, better in counts.items() if before.get(id_) != better}
    if changed:
        await store.writing(rated_endpoints.save_better, changed)
    return len(changed)
