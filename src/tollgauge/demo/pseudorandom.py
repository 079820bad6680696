"""Pseudorandom numbers as pure functions of their arguments.

The simulated history and the running demo must agree, so a number depends only on the arguments:
not on the state of a generator, the order of calls or the process.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

_UNIFORM_MEAN: Final = 2 * 0xFFFF
_UNIFORM_DEVIATION: Final = 0xFFFF / math.sqrt(3)
"""Mean and standard deviation of the sum of four uniform 16-bit numbers."""


def roll(*parts: str | int) -> int:
    """Return a uniform 64-bit number, which is the same for the same parts."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def chance(permille: int, *parts: str | int) -> bool:
    """Return True in `permille` of 1,000 cases."""
    return roll("chance", *parts) % 1000 < permille


def draw_log_normal(median: int, *parts: str | int, sigma: float = 0.3) -> int:
    """Return an integer of at least 1 with the log-normal distribution of latencies."""
    value = roll("skewed", *parts)
    total = sum((value >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
    bell = (total - _UNIFORM_MEAN) / _UNIFORM_DEVIATION
    return max(1, round(median * math.exp(sigma * bell)))
