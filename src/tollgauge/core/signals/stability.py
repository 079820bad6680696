"""Do its price and its payTo stay what they are?"""

from __future__ import annotations

from fractions import Fraction

from tollgauge.core.policy import Policy


def subscore(price_changes: int, payto_changes: int, policy: Policy) -> Fraction:
    """Do its price and its payTo stay what they are? 100, less 20 for each advertised price change
    of the last 30 days (at most 60), less 50 for each change of the payTo address.
    """
    price = min(policy.price_most, policy.price_step * price_changes)
    return Fraction(max(100 - price - policy.payto_step * payto_changes, 0))
