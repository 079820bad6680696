"""Threads of a process."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

from tollgauge import process
from tollgauge.app import open_resources
from tollgauge.config import Config
from tollgauge.db.engine import StoreSettings
from tollgauge.web.settings import Listeners


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    interval = sys.getswitchinterval()
    yield
    sys.setswitchinterval(interval)


async def test_computing_thread_yields_within_a_millisecond() -> None:
    stop = asyncio.Event()
    stop.set()
    async with open_resources(Config(store=StoreSettings(url="sqlite://"))) as resources:
        await process.run(resources, Listeners(public=None, admin=None), stop=stop)
    assert sys.getswitchinterval() <= 0.001


async def test_objects_of_the_start_are_not_collected_again() -> None:
    """A full collection that scans them blocks the event loop for a tenth of a second."""
    stop = asyncio.Event()
    stop.set()
    before = gc.get_freeze_count()
    async with open_resources(Config(store=StoreSettings(url="sqlite://"))) as resources:
        await process.run(resources, Listeners(public=None, admin=None), stop=stop)
    assert gc.get_freeze_count() > before
