"""What a process decides about its threads and its garbage collector."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

from tollgauge import process
from tollgauge.app import opened
from tollgauge.config import Config
from tollgauge.db.engine import StoreSettings
from tollgauge.web.edge.listen import Listeners


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


async def test_a_thread_that_computes_hands_over_long_before_an_answer_would_be_ready() -> None:
    stop = asyncio.Event()
    stop.set()
    async with opened(Config(store=StoreSettings(url="sqlite://"))) as resources:
        await process.run(resources, Listeners(public=None, admin=None), stop=stop)
    assert sys.getswitchinterval() <= 0.001


def test_what_an_index_is_made_of_is_looked_through_in_small_lots() -> None:
    process.freeze_garbage_collector()
    lots = [0]

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] > 0:
            lots.append(sum(len(gc.get_objects(one)) for one in range(info["generation"] + 1)))

    gc.callbacks.append(note)
    entries = [[number] for number in range(300_000)]
    gc.callbacks.remove(note)
    assert len(entries) == 300_000
    assert max(lots) < 50_000
