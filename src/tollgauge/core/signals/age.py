"""How long has it been known?"""

from __future__ import annotations

from fractions import Fraction

from tollgauge.core.evidence import Evidence
from tollgauge.core.policy import Policy
from tollgauge.core.units import DAY_MS


def subscore(evidence: Evidence, policy: Policy) -> Fraction:
    """How long has it been known? The time since it was first seen, growing evenly to 100 at 30
    days.
    """
    known = max(evidence.as_of - evidence.first_seen, 0)
    return min(Fraction(100 * known, policy.age_days * DAY_MS), Fraction(100))
