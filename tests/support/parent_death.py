"""No process of a test outlives the one that made it, however that one ends."""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """In a child: get this signal when its parent is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
