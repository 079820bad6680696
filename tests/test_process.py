"""Threads and memory of a process."""

from __future__ import annotations

import asyncio
import gc
import inspect
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tollgauge import process
from tollgauge.app import open_resources
from tollgauge.config import Config
from tollgauge.db.engine import StoreSettings
from tollgauge.web.settings import Listeners

CONSTANTS = ("SWITCH_INTERVAL_S", "MALLOC_OPTIONS")

# Freeing a 20 MB block raises glibc's default mmap threshold. The 2 MB blocks are then in the heap,
# between smaller blocks that stay.
SCRIPT = """
def resident_mb():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

if sys.argv[1:]:
    tune_interpreter()
before = resident_mb()
large = bytearray(b"x") * 20_000_000
del large
freed, kept = [], []
for _ in range(50):
    freed.append(bytearray(b"x") * 2_000_000)
    kept.append(bytearray(b"x") * 100_000)
freed.clear()
print(resident_mb() - before)
"""


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


def _growth_mb(*arguments: str) -> float:
    # The function without its module, whose imports take a second and leave free memory behind.
    constants = [f"{name} = {getattr(process, name)!r}" for name in CONSTANTS]
    tune = ["import ctypes, gc, sys", *constants, inspect.getsource(process.tune_interpreter)]
    command = [sys.executable, "-I", "-c", "\n".join([*tune, SCRIPT]), *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_freed_arrays_are_returned_to_the_system() -> None:
    assert _growth_mb() > 60  # the case that the options are for
    assert _growth_mb("tuned") < 20
