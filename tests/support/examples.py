"""How many examples a property is tried with: all in `make test-all`, a third in `make test`."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = "TOLLGAUGE_SCHEDULES" in os.environ
LEAST: Final = 25


def examples(number: int) -> int:
    """The part of `number` that this run has time for."""
    return number if THOROUGH else min(number, max(LEAST, number // 3))
