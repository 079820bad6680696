"""Does it ask for payment the way the protocol says?"""

from __future__ import annotations

from fractions import Fraction

from tollgauge.core.rollup import Totals


def subscore(totals: Totals) -> Fraction:
    """Does it ask for payment the way the protocol says? The mean over scored probes: 100 for a
    402 without errors, less 4 for each warning (at most 20); 50 when there are errors but a stock
    client could still pay; 0 when it could not, which a probe without an answer is too.
    """
    return Fraction(totals.compliance, totals.scored) if totals.scored else Fraction(0)
