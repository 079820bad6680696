"""The number of examples per property: all in `make test-all`, a third in `make test`."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = "TOLLGAUGE_SCHEDULES" in os.environ
LEAST: Final = 25


def examples(number: int) -> int:
    """Return `number`, or a third of it in `make test`, at least LEAST."""
    return number if THOROUGH else min(number, max(LEAST, number // 3))
