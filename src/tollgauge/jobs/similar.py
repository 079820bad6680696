"""The alternatives loop: refresh the similarity index, and count for every endpoint how many
better alternatives it has, in one batch (the free snapshot shows the count).

Only counts that changed are written. After a round the loop rests several times as long as the
round took, so that counting 100,000 endpoints leaves most of a processor to others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollgauge.core.base.units import Clock
from tollgauge.db.engine import Store
from tollgauge.monitor.alternatives import Alternatives
from tollgauge.store.lists import alternative_counts

if TYPE_CHECKING:
    from tollgauge.core.similarity.index import Index

SLICE: Final = 500
"""How many endpoints are counted between two reads of the database."""
REST: Final = 4


@dataclass(slots=True)
class CountingPause:
    """When the next count may begin, in milliseconds UTC."""

    resting_until: int = 0


async def run(
    store: Store, alternatives: Alternatives, *, pause: CountingPause, clock: Clock
) -> dict[str, object]:
    """Count once; the tally says how many endpoints there are and how many counts changed."""
    began = clock()
    if began < pause.resting_until:
        return {}
    index = await alternatives.refresh(store)
    changed = 0
    for first in range(0, index.size, SLICE):
        changed += await _count(store, index, first)
    ended = clock()
    pause.resting_until = ended + REST * (ended - began)
    return {"counted": index.size, "changed": changed} if changed else {}


async def _count(store: Store, index: Index, first: int) -> int:
    """Count one slice and keep what changed."""
    counts = dict(await asyncio.to_thread(index.counts, first, first + SLICE))
    before = await store.reading(alternative_counts.counts, counts)
    changed = {id_: better for id_, better in counts.items() if before.get(id_) != better}
    if changed:
        await store.writing(alternative_counts.save_counts, changed)
    return len(changed)
