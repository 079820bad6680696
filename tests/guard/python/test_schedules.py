"""Fault schedules against the official seller: never a second authorization for one purchase.

TOLLGAUGE_SCHEDULES sets the number of schedules, TOLLGAUGE_SCHEDULES_FROM the first seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.fault_schedules import play

FIRST = int(os.environ.get("TOLLGAUGE_SCHEDULES_FROM", "0"))
COUNT = int(os.environ.get("TOLLGAUGE_SCHEDULES", "300"))
BATCHES = 10


@pytest.mark.parametrize("batch", range(BATCHES))
async def test_no_schedule_leads_to_a_second_authorization(batch: int, tmp_path: Path) -> None:
    wrong: dict[int, list[str]] = {}
    calls = answers = 0
    for seed in range(FIRST + batch, FIRST + COUNT, BATCHES):
        world = await play(seed, tmp_path)
        calls, answers = calls + world.calls, answers + world.answers
        if world.wrong:
            wrong[seed] = world.wrong
    assert wrong == {}
    assert calls > answers > 0
