"""How often did it answer?"""

from __future__ import annotations

from fractions import Fraction

from tollgauge.core.rollup import Totals


def subscore(totals: Totals) -> Fraction:
    """How often did it answer? The share of scored probes of the last 30 days that were up: an
    HTTP answer in time with status 402, 2xx, 400, 401, 403 or 422. Failures of our own are not
    scored.
    """
    return Fraction(100 * totals.up, totals.scored) if totals.scored else Fraction(0)
