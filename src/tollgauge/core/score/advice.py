"""Advice: the recommendation of a score with its reason, and a summary for people and agents.

The methodology page shows the docstrings of `advise` and `verdict` as the rules in words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from tollgauge.core.base.rounding import Ratio, half_up, is_below
from tollgauge.core.base.units import DAY_MS, HOUR_MS, WINDOW_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.probe.exchange import NOT_EVALUATED, is_lint
from tollgauge.core.score.facts import Facts
from tollgauge.core.score.flag import Fired
from tollgauge.core.score.policy import Cap
from tollgauge.core.score.score import Score

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
"""Recommendations not to pay."""
PAYABLE: Final = frozenset({"proceed", "caution"})
"""Recommendations that allow payment. An endpoint with another one is not an alternative, and its
texts do not explain how to pay it."""
LEADING: Final = frozenset({"proceed"})
"""The recommendation of every row of the leaderboard."""
_TEMPLATE_FLAGS: Final = frozenset({"down-now", "never-compliant"})
"""Error flags that a URL gets only because of its placeholder."""
_WEAK: Final = {
    "uptime": "it was up for only part of the time that was checked",
    "compliance": "its 402 often does not follow the protocol",
    "latency": "it answers slowly",
    "age": "it has not been known for long",
    "stability": "its price or payTo changed",
}
"""Why a component is low. Activity is omitted: without it a perfect endpoint has grade A."""
_NOT_PAYABLE: Final = frozenset({"dead", "not-payable-soon", "never-compliant"})
"""Caps of endpoints that cannot be paid, even if they are up."""
_REFUSES: Final = "It refuses the checks, so nothing was measured yet."
_NEVER_UP: Final = "it was never up when it was checked"

FLAWLESS: Final = "flawless"
FAILED: Final = "failed every check"
UNPROBED: Final = "Not probed yet: it waits for its first check."
_CLASSES: Final = ((995, "near-perfect"), (950, "occasional misses"), (800, "frequent outages"))
_LOWEST: Final = "unreliable"
_PRAISE: Final = frozenset({FLAWLESS, "near-perfect", "occasional misses"})
"""Verdicts that do not contradict a recommendation to pay."""
_WINDOW_DAYS: Final = WINDOW_MS // DAY_MS


class Advice(NamedTuple):
    """A recommendation, and the reason in one sentence."""

    recommendation: str
    reason: str


class Judgement(NamedTuple):
    """The input of advice.

    Attributes:
        flags: The raised flags by code.
        errors: The codes of flags that are errors.
        grade: None before anything was measured.
        subscores: The exact subscores by component.
        uncapped: Their weighted sum before the caps.
    """

    facts: Facts
    flags: Mapping[str, Fired]
    errors: Collection[str]
    caps: tuple[Cap, ...]
    grade: str | None
    subscores: dict[str, Ratio]
    uncapped: Ratio

    def message(self, code: str) -> str:
        """Return the message of a flag; empty if it was not raised."""
        return self.flags[code].message if code in self.flags else ""

    @property
    def is_only_template(self) -> bool:
        """Whether the URL is a template and there are no other errors."""
        return self.facts.evidence.templated and all(
            code in _TEMPLATE_FLAGS or is_lint(code) for code in self.errors
        )


def advise(judgement: Judgement) -> Advice:
    """Return the recommendation with its reason; the first that applies:

    1. `unverified`: there is no score. If no offer can be evaluated, `avoid` while the last scored
       probe is a failure;
    2. `not-payable`: the latest envelope lists no way to pay;
    3. `parameterize`: the URL is a template and no other error was found: fill in the placeholder
       and ask again;
    4. `avoid`: grade D or F, or stale (no recent scored probe) with a failure as the last scored
       probe;
    5. `unverified`: stale;
    6. `caution`: grade C; the last scored probe was not payable; the price jumped; the payTo
       changed unannounced in the last 30 days; or scored probes cover less than 12 hours;
    7. `proceed`.
    """
    grade, facts = judgement.grade, judgement.facts
    if grade is None:
        return _advise_without_score(judgement)
    if message := judgement.message("not-payable"):
        return Advice("not-payable", message)
    if judgement.is_only_template:
        return Advice("parameterize", judgement.message("unresolved-template"))
    stale = judgement.message("stale")
    if stale and not facts.is_payable:
        return Advice("avoid", f"{judgement.message('down-now')} {stale}")
    if grade in ("D", "F"):
        return Advice("avoid", _why_low(judgement))
    if stale:
        return Advice("unverified", stale)
    if reason := _why_careful(judgement):
        return Advice("caution", reason)
    reason = "It could be paid when it was last checked."
    if judgement.facts.evidence.pay_to_varies:
        varies = judgement.flags["payto-varies"]
        reason = f"{reason} {varies.message} {varies.to_pay}"
    return Advice("proceed", reason)


def _advise_without_score(judgement: Judgement) -> Advice:
    """Return the advice for an endpoint without a score."""
    if message := judgement.message(NOT_EVALUATED):
        if judgement.facts.is_payable:
            return Advice("unverified", message)
        return Advice("avoid", judgement.message("down-now") or message)
    if message := judgement.message("unprobeable") or judgement.message("refuses-probes"):
        return Advice("unverified", message)
    refuses = judgement.facts.evidence.state is not None
    return Advice("unverified", _REFUSES if refuses else "Nothing was measured yet.")


def _why_careful(judgement: Judgement) -> str | None:
    """Return the first reason for caution; None without one."""
    facts = judgement.facts
    payto = facts.latest(PAYTO_CHANGED)
    if message := judgement.message("down-now") or judgement.message("price-jumped"):
        return message
    if payto is not None and facts.evidence.as_of - payto <= facts.policy.payto_caution_ms:
        return "The address that receives the money changed in the last 30 days."
    hours = facts.covered_ms // HOUR_MS
    if facts.covered_ms < facts.policy.hours_min * HOUR_MS:
        covered = (
            f"only {hours} {'hour' if hours == 1 else 'hours'}" if hours else "less than an hour"
        )
        return f"Checks cover {covered} so far."
    return _why_low(judgement) if judgement.grade == "C" else None


def _why_low(judgement: Judgement) -> str:
    """Return the main cause of a low score: the lowest cap, otherwise the component that costs
    most. Missing activity is not a cause: it costs 15 points, which still allows grade A.
    """
    caps = judgement.caps
    if caps and not is_below(judgement.uncapped, (10 * caps[0].limit_tenths, 1)):
        return _why_capped(judgement, caps[0])
    worst = _costliest(judgement)
    never_up = worst == "uptime" and not judgement.subscores[worst][0]
    return f"The score is low, most of all because {_NEVER_UP if never_up else _WEAK[worst]}."


def _why_capped(judgement: Judgement, cap: Cap) -> str:
    """Return the reason of a cap. If the endpoint is up without being payable, its answer is added,
    because its uptime would seem to contradict the cap.
    """
    if cap.code == "down-now":
        return judgement.message("down-now")
    if cap.code in _NOT_PAYABLE and judgement.facts.is_up and not judgement.facts.is_payable:
        answer = judgement.message("validates-before-402") or judgement.message("down-now")
        return f"{cap.reason} {answer}"
    return cap.reason


def _costliest(judgement: Judgement) -> str:
    """Return the component that costs most points, the first of several."""
    name, most = "", (-1, 1)
    for row in judgement.facts.policy.rows:
        if row.name not in _WEAK:
            continue
        points, whole = judgement.subscores[row.name]
        lost = row.weight * (100 * whole - points), whole
        if is_below(most, lost):
            name, most = row.name, lost
    return name


def verdict(up: int, scored: int) -> str | None:
    """Return the uptime as text: flawless at 100%, near-perfect from 99.5, occasional misses from
    95, frequent outages from 80, unreliable above 0, failed every check at 0. With a single miss it
    is never flawless, with a single answer never failed every check. None without a check.
    """
    if not scored:
        return None
    if up == scored:
        return FLAWLESS
    if not up:
        return FAILED
    tenths = half_up((up, scored), 1_000)
    for least, word in _CLASSES:
        if tenths >= least:
            return word
    return _LOWEST


def summary(score: Score) -> str:
    """Return a summary of an endpoint for people and agents: its outage if it is down, the reason
    of the recommendation, recommendation and grade, and the observed figures. The verdict about the
    uptime appears only if it does not contradict the recommendation.
    """
    if score.down is not None:
        return f"{score.down.text} {_without_outage(score)}"
    return _without_outage(score)


def _without_outage(score: Score) -> str:
    stats = score.stats
    advice = score.recommendation.capitalize()
    if stats.uptime_tenths is None or score.score_tenths is None:
        unmeasured = score.recommendation == "unverified" and stats.uptime_tenths is None
        reason = _missing_measure_text(score) if unmeasured else score.reason
        return f"{reason} {advice}.".lstrip()
    points = f"{score.score_tenths // 10}.{score.score_tenths % 10}"
    uptime = f"{stats.uptime_tenths // 10}.{stats.uptime_tenths % 10}% up"
    if score.recommendation in PAYABLE and score.is_payable and stats.verdict in _PRAISE:
        uptime = f"{str(stats.verdict).capitalize()}: {uptime}"
    speed = "" if stats.avg_latency_ms is None else f", {stats.avg_latency_ms:,} ms on average"
    checks = "check" if stats.scored == 1 else "checks"
    return (
        f"{score.reason} {advice}: grade {score.grade} ({points} of 100). "
        f"{uptime} {_span(stats.observed_days)} ({stats.scored:,} {checks}){speed}."
    ).lstrip()


def _missing_measure_text(score: Score) -> str:
    if score.stats.probes:
        return "None of its checks in the last 30 days could be scored."
    return UNPROBED if score.stats.last_probed is None else "Not probed in the last 30 days."


def _span(observed_days: int) -> str:
    """Return the period of the checks: not longer than the endpoint has been known."""
    if observed_days >= _WINDOW_DAYS:
        return f"in {_WINDOW_DAYS} days"
    if observed_days == 0:
        return "since it was first seen, less than a day ago"
    days = "day" if observed_days == 1 else f"{observed_days} days"
    return f"in the {days} since it was first seen"
