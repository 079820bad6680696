"""The ranking loop: counts all endpoints, so that no reader has to (monitor/ranking and
monitor/statistics).
"""

from __future__ import annotations

from tollgauge.core.base.units import Clock
from tollgauge.db.engine import Store
from tollgauge.monitor import ranking, statistics


async def run(store: Store, *, clock: Clock) -> dict[str, object]:
    """Count what is due; the tally says how many endpoints are ranked."""
    now = clock()
    if await store.reading(statistics.is_due, now=now):
        await store.writing(statistics.keep, await store.reading(statistics.count, now=now))
    if not await store.reading(ranking.is_due, now=now):
        return {}
    counted = await store.reading(ranking.count, now=now)
    stored = await store.writing(ranking.keep, counted)
    return {"ranked": counted.population.scored} if stored else {}
