"""Rollup: what one UTC day (or a part of one) of an endpoint's probes adds up to.

Rollups merge exactly: counts and sums add, the latency histogram adds bucket by bucket, the
half-hour slots of a day are a bitmap. Thirty of them give the exact 30-day statistics
(scoring.md, arithmetic; architecture.md, probe archive).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SLOT_MS: Final = 30 * 60 * 1_000
SLOTS_PER_DAY: Final = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """One day's sums. `day` counts UTC days since the epoch.

    `excluded` counts unscored probes by reason, sorted by reason. `slots` has bit i set when a
    scored probe fell into the i-th half hour of the day. `compliance` sums the per-probe
    subscores (0..100) over scored probes. `latency` is (bucket, count) in ascending bucket order
    over up, scored probes, `latency_sum` the exact sum of their milliseconds.
    """

    day: int
    probes: int = 0
    scored: int = 0
    up: int = 0
    compliant: int = 0
    payable: int = 0
    compliance: int = 0
    slots: int = 0
    latency_sum: int = 0
    latency: tuple[tuple[int, int], ...] = ()
    excluded: tuple[tuple[str, int], ...] = ()
