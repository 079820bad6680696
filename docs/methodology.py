"""docs/methodology.md: the page that explains the policy, generated from its table and its rules.

Nothing here is written twice: numbers come from core/score/policy, questions and flag rules from
the docstrings in core/score. A test says when the page is out of
date.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from docs.markdown import table
from docs.whose_fault import whose_fault
from tollgauge.core.base.rounding import half_up
from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.probe.probe import HOLDS_MAX_MS, HOLDS_MIN_MS
from tollgauge.core.score.advice import advise, verdict
from tollgauge.core.score.demand import measure_demand
from tollgauge.core.score.facts import SUBSCORES
from tollgauge.core.score.forecast import forecast
from tollgauge.core.score.policy import POLICY, Policy, Table
from tollgauge.core.score.prices import count_steps
from tollgauge.core.score.probe_flags import lint_flags
from tollgauge.core.score.scoring import FLAG_RULES

_DECISIONS: Final = """\
- The state before is remembered for one day: the first probe after a whole UTC day without any
  begins neither a failure nor a repair.
- A failure whose target asked for a pause is not probed again early, and counts as confirmed.
- Only changes of price and payTo that probes saw count: anyone can list an endpoint in a directory
  with other terms.
- A lint finding is an error only if a stock client could not pay by the last envelope; error
  findings of an envelope that could be paid are warnings. It has no cap of its own: an endpoint
  that cannot be paid has the caps of its forecast and of `down-now`.
- An endpoint counts as payable before if any probe ever found it payable.
- Time of refusals of an endpoint that was never payable is neither up nor down; without other time
  it has no score.
- The last 7 days of `unprobeable` are the current UTC day and the six before it.
- HTTP 511 is excused only if none of the reference sites answers at that moment, 511 not counted.
- The usual price counts time for which probes showed the price. With less than 24 hours of it, the
  lowest usual price of the endpoint's other offers in the same unit is used, otherwise what little
  there is, otherwise the price before. A change to a token that cannot be compared is an increase.
- The first price, for counted changes, is the one before the first change of the window.
- B of the forecast is the time not payable before the present outage; F includes its failure. For
  an endpoint that was never payable, 72 hours are added to a. The chance in half an hour is limited
  to 1/1000 ... 999/1000.
- A seller is a site (registrable domain): the payTo addresses that it was first seen to advertise.
  Demand is measured on each chain for itself. An anchor's addresses belong to its owner.
- A payer is proven if it has net spending at any anchor that is not the seller's own, and net
  spending of a cent or more at the seller.
- Weights are rounded down to millionths for each payer and anchor.
- A seller that is an anchor is added to the sellers that its payers are divided among.
- Among alternatives are `proceed` and `caution`; the leaderboard has `proceed` only.
- A leaderboard counts what it leaves out of a site up to 1,000.
- Alternatives whose chance of being payable in 24 hours is 85 % or more come before all others,
  then similarity, that chance, score and price decide. The chance alone would put what is barely
  alike first for a thousandth.
- A badge shows whole points, rounded down, and only with advice that allows payment; while the
  endpoint is down it shows only the outage.
- Flags state what to check when paying only if the advice allows payment.
- `down` is an outage that had not ended at the last check: its first failure (`since`), what the
  last check met (`reason`), and whether a second check confirmed it (`confirmed`). For an endpoint
  that was ever payable every probe that finds it not payable is a failure; for others, a refusal
  and an answer without a request for payment are not. Pages, badges, summaries and lists state it
  first. An endpoint with a confirmed outage is not on the leaderboard, not among alternatives and
  the best in no comparison, and `tollgauge buy` exits with 1.
"""
"""What was decided where the specification left room; the list grows."""


def methodology(policy: Policy = POLICY) -> str:
    """The page of the policy, in Markdown."""
    sections = (
        _head(policy),
        whose_fault(),
        _components(policy),
        _tables(policy),
        _demand(),
        _prices(policy),
        _time(policy),
        _forecast(policy),
        _confirmation(),
        _silence(policy),
        _grades(policy),
        _flags(policy),
        _recommendation(),
        _range(policy),
        _arithmetic(),
        f"## Decided where the specification left room\n\n{_DECISIONS.rstrip()}",
    )
    return "\n\n".join(sections) + "\n"


def _head(policy: Policy) -> str:
    return (
        f"# How the score is made: policy {policy.version}\n\n"
        "<!-- Generated by docs/generate.py from core/score/policy and "
        "core/score/facts; do not edit. -->\n\n"
        "The score is a number from 0 to 100 computed from evidence alone: exact integer "
        "arithmetic, no language model, no judgement by hand. The same evidence gives the same "
        "score on any machine, and `tollgauge score EVIDENCE.json` recomputes it.\n\n"
        "Every probe has an attribution. Only what a target did itself (`theirs`) is scored; our "
        "own faults and what cannot be told apart are excluded, counted and shown. "
        "Our fault never lowers a score. Every score names the version of its policy."
    )


def _components(policy: Policy) -> str:
    rows = [(row.name, row.weight, row.measures, row.absent) for row in policy.rows]
    parts = ["## Components", table(("component", "weight", "subscore 0 to 100", "absence"), rows)]
    parts += [f"**{row.name}.** {_words(SUBSCORES[row.name])}" for row in policy.rows]
    return "\n\n".join(parts)


def _tables(policy: Policy) -> str:
    return "\n\n".join(
        (
            "## Tables",
            "Linear and exact between the points, flat outside.",
            f"Latency (median, milliseconds): {_points(policy.latency)}.",
            f"Age (days): {_points(policy.age)}.",
            f"P (sum of the payers' weights): {_points(policy.payers)}.",
        )
    )


def _demand() -> str:
    return (
        "## Demand: why wallets prove nothing\n\n"
        "Wallets cost nothing. One owner can pay itself from a thousand of them, in circles of "
        "shops or through a hub that returns the money, for no more than the network's fees. So "
        "payers that are known only from payments to one seller prove nothing, however many there "
        "are: only money that is spent where the seller cannot get it back proves a payer.\n\n"
        + (inspect.getdoc(measure_demand) or "").partition("\nArgs:")[0].rstrip()
        + "\n\nWith anchors of fewer than two owners the component is 0 for everyone. The list, "
        "its dates and its digest are part of the evidence and of the page `/methodology`. Volume "
        "is shown and not scored. A payTo belongs to the site first seen to advertise it; other "
        "sites get none of its demand. With own wallets only, 3 points need anchor spending of $44 "
        "in a window and 10 points $333, for each seller, at each of two or more anchors. Nearly "
        "all honest sellers stay within a point of 85 until their customers buy elsewhere too."
    )


def _prices(policy: Policy) -> str:
    return (
        "## Usual price\n\n"
        "Each price change keeps, at its time and for good, the lower time-weighted median of the "
        "price of the same network and asset over the 31 days before it (the usual price) and the "
        "upper quartile. Known stablecoins are compared in dollars.\n\n"
        f"{inspect.getdoc(count_steps)}\n\n"
        f"An increase takes {policy.price_increase} points off stability, another counted change "
        f"{policy.price_change}, together at most {policy.price_max}."
    )


def _observations(policy: Policy) -> str:
    """How many independent observations the range rests on, in words."""
    return (
        f"1/{policy.autocorrelation} + {policy.observations_a_day} x days / (1 + changes) "
        "independent observations, where `days` is the time that probes speak for and `changes` "
        "how often it became payable or ceased to be: failures come in clusters, so the more of "
        "them there were, the less the past says of the week to come"
    )


def _time(policy: Policy) -> str:
    weights = ", ".join(f"{weight:,}" for weight in policy.day_weights)
    return (
        "## Time, not counts\n\n"
        "A scored probe holds from its time until the next scored probe of the endpoint, at most "
        f"{HOLDS_MIN_MS // HOUR_MS} hours if it was payable, otherwise until one and a half times "
        f"the interval to the next due time (at least {HOLDS_MIN_MS // HOUR_MS} and at most "
        f"{HOLDS_MAX_MS // HOUR_MS} hours). So a target that answers 503 and asks for six hours of "
        "silence is down for those hours, and a standstill of this service counts neither way. "
        "Refusals (401, 403, 429 and bot walls) are not up from the first one; local and unknown "
        "results do not count.\n\n"
        "Each UTC day keeps its milliseconds up, payable and down, compliance x time, and how many "
        "failures and repairs began; spans are split at midnight, so a closed day never changes. "
        f"The window is the current UTC day and the {len(policy.day_weights) - 1} before it. Day k "
        "days ago weighs round(1000 x 2^(-k/7)), k = 0 first: "
        f"{weights}."
    )


def _forecast(policy: Policy) -> str:
    rows = [
        (
            _below(rule.now),
            _below(rule.day),
            f"{rule.cap.limit_tenths / 10:g}",
            f"`{rule.cap.code}`",
            rule.cap.reason,
        )
        for rule in policy.forecast_caps
    ]
    return (
        "## Forecast\n\n"
        "`payableNow` is the chance that it can be paid in half an hour, `payable24h` in 24 hours; "
        "both are published to three decimals.\n\n"
        + (inspect.getdoc(forecast) or "")
        + "\n\nThe forecast limits the score; the lowest cap wins:\n\n"
        + table(("payableNow", "payable24h", "cap", "code", "reason"), rows)
    )


def _confirmation() -> str:
    return (
        "## Confirmation\n\n"
        "The first failure of an endpoint that was payable is probed again after 40 to 80 seconds "
        "and after 3 to 7 minutes, drawn at random. These probes count as time and are in no "
        "count. Until one of them has a result, the caps use the state before the failure and the "
        "advice is `caution`: a success makes the failure a span of a minute, a second failure "
        "confirms it."
    )


def _silence(policy: Policy) -> str:
    hours = policy.refusing_ms // HOUR_MS
    return (
        "## Silence is not health\n\n"
        f"An endpoint that has refused checks for {hours} hours is flagged `refuses-probes`. One "
        "that was never payable and is behind a bot wall is `unprobeable` and has no score. "
        f"Without a scored probe for {policy.stale_ms // HOUR_MS} hours or "
        f"{policy.stale_intervals} intervals, whichever is longer, an endpoint is `stale`: its "
        "advice is `unverified`, or `avoid` if the last scored probe was a failure. A pause that a "
        "target asks "
        "for is kept, for at most 6 hours, and its host's other endpoints wait at most 10 minutes."
    )


def _below(permille: int) -> str:
    return "any" if permille == 1_000 else f"below {permille // 10} %"


def _grades(policy: Policy) -> str:
    grades = ", ".join(f"{letter} from {least}" for letter, least in policy.grades)
    caps = [(f"`{cap.code}`", f"{cap.limit_tenths / 10:g}", cap.reason) for cap in policy.caps]
    return "\n\n".join(
        (
            "## Grades and caps",
            f"{grades}, else F: the grade of the score as published, with one decimal.",
            "A cap limits the score after the weighted sum; the lowest wins.",
            table(("flag", "cap", "reason"), caps),
        )
    )


def _flags(policy: Policy) -> str:
    limits = {cap.code: f"{cap.limit_tenths / 10:g}" for cap in policy.caps}
    rows = [
        (f"`{rule.code}`", rule.severity.value, rule.words, limits.get(rule.code, ""))
        for severity in Severity
        for rule in sorted(FLAG_RULES, key=lambda rule: rule.code)
        if rule.severity is severity
    ]
    rows.append(("`lint:<rule>`", "the rule's", _words(lint_flags), limits.get("lint-error", "")))
    return "\n\n".join(("## Flags", table(("flag", "severity", "fires when", "cap"), rows)))


def _recommendation() -> str:
    return "## Recommendation\n\n" + (inspect.getdoc(advise) or "")


def _range(policy: Policy) -> str:
    return (
        "## Confidence and range\n\n"
        "Confidence is the number of hours that scored probes cover / "
        f"{policy.hours_full}, at most 1.00. The range shows how far the score may be off: its low "
        f"end takes uptime and compliance at the Wilson lower bound (z = {_decimal(policy.z)}, "
        f"{_observations(policy)}), its high end at the upper bound; activity is at 0 and as "
        "scored. Caps hold for both ends.\n\n" + _words(verdict)
    )


def _arithmetic() -> str:
    return (
        "## Arithmetic\n\n"
        "The window is the current UTC day and the 30 before it (changes: "
        "`asOf - 30 d < at <= asOf`), instants are integer milliseconds UTC. "
        "Everything is an exact fraction until the end; score, subscores and range are then "
        "rounded half up to one decimal, confidence to two. Latency comes from a histogram of "
        "whole milliseconds: below 128 ms one bucket a millisecond, above it 64 equal buckets an "
        "octave; a bucket stands for its lower bound, the p-th percentile is the bucket of the "
        "ceil(p * n / 100)-th smallest. A change that several sources report counts once: the "
        "largest count of any one source stands. The evidence is a JSON document "
        "([schema](evidence.schema.json)); its RFC 8785 form has the SHA-256 digest that a report "
        "names."
    )


def _points(table: Table) -> str:
    return ", ".join(f"{x:,} → {y}" for x, y in table)


def _decimal(value: Fraction) -> str:
    hundredths = half_up(value.as_integer_ratio(), 100)
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def _words(function: Callable[..., object]) -> str:
    return " ".join((inspect.getdoc(function) or "").split())
