"""The components of a score: one function each, an exact subscore from 0 to 100.

The docstrings are shown to users on the methodology page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tollgauge.core.base.rounding import Ratio, smaller
from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.score.policy import interpolate
from tollgauge.core.score.signals.facts import Facts


def uptime(facts: Facts) -> Ratio:
    """How much of the time did it answer? A probe speaks for the time until the next one. Up is an
    HTTP answer in time with status 402, 2xx, 400 or 422; a refusal (429, 401, 403) is not. Days
    count less the older they are: half as much every 7 days. What nobody spoke for, and what our
    own failures would say, counts neither way.
    """
    up, down, _ = facts.weighted
    return (100 * up, up + down) if up + down else (100 if facts.is_up else 0, 1)


def compliance(facts: Facts) -> Ratio:
    """Does it ask for payment the way the protocol says? What each probe's envelope is worth (100
    for a 402 without errors, less 4 for each warning, at most 20; 50 when there are errors but a
    stock client could still pay; 0 when it could not, or nothing was answered) for the time that
    the probe speaks for, recent days more than old ones.
    """
    up, down, worth = facts.weighted
    return (worth, up + down) if up + down else (100 if facts.is_payable else 0, 1)


def latency(facts: Facts) -> Ratio:
    """How fast does it answer? The median of the probes that were up, network distance included,
    on a table: 200 ms or less is 100, 5 seconds or more is 0. Never up is 0.
    """
    median, _ = facts.latencies_ms
    return (0, 1) if median is None else interpolate(facts.policy.latency, (median, 1))


def age(facts: Facts) -> Ratio:
    """How long has it been known? The time since it was first seen, on a table that reaches 100
    at 30 days.
    """
    known = max(facts.evidence.as_of - facts.evidence.first_seen, 0)
    return interpolate(facts.policy.age, (known, DAY_MS))


def activity(facts: Facts) -> Ratio:
    """Do independent buyers really pay it? Nobody can know from outside which payers are
    independent, so there are two readings of who counts: the high end leaves out round trips,
    payments among related sellers and payers born in a batch; the low end counts only payers who
    are known for a while and spend money at unrelated sellers too. The subscore is the high end,
    but at most 20 above the low one, so wallets that cost nothing bring at most 3 points.
    """
    (part, whole), high = facts.activity_ends
    return smaller(high, (part + facts.policy.activity_gap * whole, whole))


def stability(facts: Facts) -> Ratio:
    """Do its price and its payTo stay what they are? 100, less 20 for each advertised price of the
    last 30 days that more than doubled and 10 for every other price change (at most 60), less 50
    for each change of the payTo address.
    """
    policy = facts.policy
    payto = policy.payto_step * facts.changed(PAYTO_CHANGED)
    return max(100 - min(policy.price_max, facts.price_steps) - payto, 0), 1


SUBSCORES: Final[dict[str, Callable[[Facts], Ratio]]] = {
    function.__name__: function
    for function in (uptime, compliance, latency, age, activity, stability)
}
"""The function of each component, by the name of the policy's row."""
