"""Advice: what a score recommends, and why.

The docstring of `advise` is the rules in words, as the methodology page shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from tollgauge.core.base.rounding import Ratio, is_below
from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.endpoint.finding import NOT_EVALUATED, is_lint
from tollgauge.core.score.policy import Cap
from tollgauge.core.score.signals.facts import Facts
from tollgauge.core.score.signals.flag import Fired

RECOMMENDATIONS: Final = (
    "proceed",
    "caution",
    "avoid",
    "unverified",
    "not-payable",
    "parameterize",
)
"""Every recommendation that a score can have."""
AVOIDED: Final = frozenset({"avoid", "not-payable"})
"""The advice not to pay at all."""
PAYABLE: Final = frozenset({"proceed", "caution"})
"""The advice that lets pay. An endpoint with any other is on no leaderboard and no alternative, and
nobody is told how to pay it."""
_TEMPLATE_FLAGS: Final = frozenset({"down-now", "never-compliant"})
"""Error flags that a URL with a placeholder gets because of the placeholder alone."""
_WEAK: Final = {
    "uptime": "it was up for only part of the time that was checked",
    "compliance": "its 402 often does not follow the protocol",
    "latency": "it answers slowly",
    "age": "it is not known for long",
    "activity": "no independent buyers are known",
    "stability": "its price or payTo changed",
}
_NEVER_UP: Final = "it was never up when it was checked"


class Advice(NamedTuple):
    """A recommendation, and the reason in one sentence."""

    recommendation: str
    reason: str


class Judgement(NamedTuple):
    """What advice rests on: the facts, what the flags say by code, the codes of those that are
    errors, the caps, the grade (None while nothing was measured), the exact subscores by component,
    and what these add up to before the caps.
    """

    facts: Facts
    flags: Mapping[str, Fired]
    errors: Collection[str]
    caps: tuple[Cap, ...]
    grade: str | None
    subscores: dict[str, Ratio]
    uncapped: Ratio

    def message(self, code: str) -> str:
        """The message of a flag, empty where it was not raised."""
        return self.flags[code].message if code in self.flags else ""

    @property
    def is_template_alone(self) -> bool:
        """Whether the URL is a template and no error speaks against the host itself."""
        return self.facts.evidence.templated and all(
            code in _TEMPLATE_FLAGS or is_lint(code) for code in self.errors
        )


def advise(judgement: Judgement) -> Advice:
    """What to do, the most useful answer first, with its reason:

    1. `not-payable`: the latest envelope lists no way to pay;
    2. `parameterize`: the URL is a template, and no error speaks against the host itself: fill the
       placeholder in and ask again;
    3. `unverified`: nothing was measured, or nothing was heard for so long that it is stale, or no
       offer can be evaluated (`avoid` while the latest probe is a failure);
    4. `avoid`: grade D or F, and never with another grade;
    5. `caution`: grade C; the latest probe was not payable, whatever the cause; the price jumped;
       the payTo changed unannounced in the last 30 days; or fewer than 24 half hours were observed;
    6. `proceed`.
    """
    grade, facts = judgement.grade, judgement.facts
    if message := judgement.message("not-payable"):
        return Advice("not-payable", message)
    if judgement.is_template_alone:
        return Advice("parameterize", judgement.message("unresolved-template"))
    if (message := judgement.message(NOT_EVALUATED)) and not facts.is_payable:
        return Advice("avoid", judgement.message("down-now") or message)
    if message:
        return Advice("unverified", message)
    if grade is None:
        return Advice("unverified", "Nothing was measured yet.")
    if message := judgement.message("stale"):
        return Advice("unverified", message)
    if grade in ("D", "F"):
        return Advice("avoid", _why_low(judgement))
    if reason := _why_careful(judgement):
        return Advice("caution", reason)
    reason = "It could be paid when it was last checked."
    if judgement.facts.evidence.pay_to_varies:
        varies = judgement.flags["payto-varies"]
        reason = f"{reason} {varies.message} {varies.to_pay}"
    return Advice("proceed", reason)


def _why_careful(judgement: Judgement) -> str | None:
    """The first thing that asks for caution, None where nothing does."""
    facts = judgement.facts
    payto = facts.latest(PAYTO_CHANGED)
    if message := judgement.message("down-now") or judgement.message("price-jumped"):
        return message
    if payto is not None and facts.evidence.as_of - payto <= facts.policy.payto_caution_ms:
        return "The address that receives the money changed in the last 30 days."
    if facts.totals.slots < facts.policy.slots_min:
        count = facts.totals.slots
        return f"Only {count} half {'hour was' if count == 1 else 'hours were'} observed yet."
    return _why_low(judgement) if judgement.grade == "C" else None


def _why_low(judgement: Judgement) -> str:
    """What keeps the score down: the lowest cap, else the component that costs most."""
    caps = judgement.caps
    if caps and not is_below(judgement.uncapped, (10 * caps[0].limit_tenths, 1)):
        return caps[0].reason
    worst = _costliest(judgement)
    never_up = worst == "uptime" and not judgement.subscores[worst][0]
    return f"The score is low, most of all because {_NEVER_UP if never_up else _WEAK[worst]}."


def _costliest(judgement: Judgement) -> str:
    """The component that takes most points off the score, the first of several."""
    name, most = "", (-1, 1)
    for row in judgement.facts.policy.rows:
        points, whole = judgement.subscores[row.name]
        lost = row.weight * (100 * whole - points), whole
        if is_below(most, lost):
            name, most = row.name, lost
    return name
