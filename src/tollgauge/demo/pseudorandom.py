"""Pseudorandom numbers as pure functions of their arguments.

The simulated past and the running demo must agree, so a number depends on nothing but the
arguments: not on the state of a generator, the order of calls or the process.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

_UNIFORM_MEAN: Final = 2 * 0xFFFF
_UNIFORM_DEVIATION: Final = 0xFFFF / math.sqrt(3)
"""Mean and standard deviation of the sum of four uniform 16-bit numbers."""


def roll(*parts: str | int) -> int:
    """A uniform 64-bit number, the same for the same parts."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def chance(permille: int, *parts: str | int) -> bool:
    """True in `permille` of a thousand cases."""
    return roll("chance", *parts) % 1000 < permille


def skewed(median: int, *parts: str | int, sigma: float = 0.3) -> int:
    """A whole number spread like latencies are: log-normal about `median`, at least 1."""
    value = roll("skewed", *parts)
    total = sum((value >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
    bell = (total - _UNIFORM_MEAN) / _UNIFORM_DEVIATION
    return max(1, round(median * math.exp(sigma * bell)))
