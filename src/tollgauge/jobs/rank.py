"""The ranking loop: count all endpoints again for those who read (monitor/ranking)."""

from __future__ import annotations

from collections.abc import Callable

from tollgauge.db.engine import Store
from tollgauge.monitor import ranking


async def run(store: Store, *, clock: Callable[[], int]) -> dict[str, object]:
    """Count if that is due; the tally says of how many endpoints the ranking is kept."""
    now = clock()
    if not await store.reading(ranking.is_due, now=now):
        return {}
    counted = await store.reading(ranking.count, now=now)
    kept = await store.writing(ranking.keep, counted)
    return {"ranked": counted.population.scored} if kept else {}
