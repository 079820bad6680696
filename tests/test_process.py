"""Threads of a process."""

from __future__ import annotations

import asyncio
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
