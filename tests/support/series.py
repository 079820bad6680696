"""Series of up and down for replays."""

from __future__ import annotations

from collections.abc import Sequence

from bench.replay import Line
from tollgauge.core.base.units import DAY_MS, MINUTE_MS

START = 20_000 * DAY_MS
HALF_HOUR = 30 * MINUTE_MS


def half_hours(states: Sequence[bool], *, start: int = START) -> list[Line]:
    """One line every half hour."""
    return [Line(start + HALF_HOUR * number, up) for number, up in enumerate(states)]
