"""Probe times in the middle of their ranges: gaps of one interval, confirmations after 1 and 5
minutes. tests/core/probe/test_schedule.py tests the whole ranges.
"""

from __future__ import annotations

import pytest

from tollgauge.core.probe.schedule import DRAW_RANGE, Draws
from tollgauge.monitor import probing


@pytest.fixture(autouse=True)
def steady_probe_times(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = Draws(gap=DRAW_RANGE // 2, confirm=DRAW_RANGE // 2)
    monkeypatch.setattr(probing, "draw_times", lambda: draws)
