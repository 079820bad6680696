"""How fast does it answer?"""

from __future__ import annotations

from fractions import Fraction

from tollgauge.core.latency import percentile
from tollgauge.core.policy import Policy, interpolate
from tollgauge.core.rollup import Totals


def subscore(totals: Totals, policy: Policy) -> Fraction:
    """How fast does it answer? The median of the probes that were up, network distance included,
    on a table: 200 ms or less is 100, 5 seconds or more is 0. Never up is 0.
    """
    median = percentile(totals.latency, 50)
    return Fraction(0) if median is None else interpolate(policy.latency, median)
