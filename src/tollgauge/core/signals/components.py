"""The components of a score: one function each, an exact subscore from 0 to 100.

The docstrings are shown to users on the methodology page. A function that a published policy uses
never changes: a policy that measures something in another way gets a function of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

from tollgauge.core.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.latency import percentile
from tollgauge.core.policy import Policy, interpolate
from tollgauge.core.signals.facts import Facts
from tollgauge.core.units import DAY_MS


def uptime(facts: Facts) -> Fraction:
    """How often did it answer? The share of scored probes of the last 30 days that were up: an
    HTTP answer in time with status 402, 2xx, 400, 401, 403 or 422. Failures of our own are not
    scored.
    """
    sums = facts.totals
    return Fraction(100 * sums.up, sums.scored) if sums.scored else Fraction(0)


def compliance(facts: Facts) -> Fraction:
    """Does it ask for payment the way the protocol says? The mean over scored probes: 100 for a
    402 without errors, less 4 for each warning (at most 20); 50 when there are errors but a stock
    client could still pay; 0 when it could not, which a probe without an answer is too.
    """
    sums = facts.totals
    return Fraction(sums.compliance, sums.scored) if sums.scored else Fraction(0)


def latency(facts: Facts) -> Fraction:
    """How fast does it answer? The median of the probes that were up, network distance included,
    on a table: 200 ms or less is 100, 5 seconds or more is 0. Never up is 0.
    """
    median = percentile(facts.totals.latency, 50)
    return Fraction(0) if median is None else interpolate(facts.policy.latency, median)


def age(facts: Facts) -> Fraction:
    """How long has it been known? The time since it was first seen, growing evenly to 100 at 30
    days.
    """
    known = max(facts.evidence.as_of - facts.evidence.first_seen, 0)
    return min(Fraction(100 * known, facts.policy.age_days * DAY_MS), Fraction(100))


def activity(facts: Facts) -> Fraction:
    """Do independent buyers really pay it? Settlements on chain to its payTo: min(P, (P + V) / 2)
    with P from the number of effective payers and V from the organic dollars. Whatever one wallet
    pays, it is at most one effective payer: alone it brings at most 5 (0.75 points of the score).
    What the seller pays itself brings nothing.
    """
    return _activity(facts.volume.effective, facts.volume.organic_usd, facts.policy)


def raw_activity(facts: Facts) -> Fraction:
    """The activity if nothing were left out and nobody shared the payTo: the high end of the
    score range. Never below the organic value, although leaving out a dominant payer can raise
    the number of effective ones.
    """
    raw = _activity(facts.volume.raw_effective, facts.volume.raw_usd, facts.policy)
    return max(raw, activity(facts))


def _activity(payers: Fraction, usd: Fraction, policy: Policy) -> Fraction:
    by_payers = interpolate(policy.payers, payers)
    by_volume = interpolate(policy.volume, usd)
    return min(by_payers, (by_payers + by_volume) / 2)


def stability(facts: Facts) -> Fraction:
    """Do its price and its payTo stay what they are? 100, less 20 for each advertised price change
    of the last 30 days (at most 60), less 50 for each change of the payTo address.
    """
    policy = facts.policy
    price = min(policy.price_max, policy.price_step * facts.changed(PRICE_CHANGED))
    payto = policy.payto_step * facts.changed(PAYTO_CHANGED)
    return Fraction(max(100 - price - payto, 0))


SUBSCORES: Final[dict[str, Callable[[Facts], Fraction]]] = {
    function.__name__: function
    for function in (uptime, compliance, latency, age, activity, stability)
}
"""The function of each component, by its name in a policy's rows."""
