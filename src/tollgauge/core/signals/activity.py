"""Do independent buyers really pay it?"""

from __future__ import annotations

from fractions import Fraction

from tollgauge.core.policy import Policy, interpolate
from tollgauge.core.signals.settled import Settled


def subscore(settled: Settled, policy: Policy) -> Fraction:
    """Do independent buyers really pay it? Settlements on chain to its payTo: min(P, (P + V) / 2)
    with P from the number of effective payers and V from the organic dollars. Whatever one wallet
    pays, it is at most one effective payer: alone it brings at most 5 (0.75 points of the score).
    What the seller pays itself brings nothing.
    """
    return _combined(settled.effective, settled.organic_usd, policy)


def raw_subscore(settled: Settled, policy: Policy) -> Fraction:
    """The activity if nothing were left out and nobody shared the payTo: the high end of the
    score range. Never below the organic value, although leaving out a dominant payer can raise
    the number of effective ones.
    """
    raw = _combined(settled.raw_effective, settled.raw_usd, policy)
    return max(raw, subscore(settled, policy))


def _combined(payers: Fraction, usd: Fraction, policy: Policy) -> Fraction:
    by_payers = interpolate(policy.payers, payers)
    by_volume = interpolate(policy.volume, usd)
    return min(by_payers, (by_payers + by_volume) / 2)
