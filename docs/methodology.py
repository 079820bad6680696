"""docs/methodology.md: the page that explains the policy, generated from its table and its rules.

Numbers come from core/score/policy; the texts about components and flags are docstrings in
core/score. tests/docs/test_methodology.py checks that the page is current.
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
- The previous state is kept for one day: the first probe after a complete UTC day without probes
  begins neither a failure nor a repair.
- If the target requested a pause, its failure is not probed again early and counts as confirmed.
- Only changes of price and payTo that probes detected count: anyone can list an endpoint in a
  directory with other terms.
- A lint finding is an error only if official clients could not pay the last envelope; error
  findings of a payable envelope are warnings. Lint errors have no separate cap: the caps of the
  forecast and of `down-now` apply to an endpoint that is not payable.
- An endpoint counts as previously payable if any probe has found it payable.
- For an endpoint that was never payable, time of refusals is neither up nor down. Without other
  time, it has no score.
- The last 7 days of `unprobeable` are the current UTC day and the six days before it.
- HTTP 511 is excluded only if no reference site responds at that time. A 511 of a reference site
  is not a response.
- The usual price counts the time in which probes observed the price. With less than 24 hours, the
  lowest usual price of the endpoint's other offers in the same unit is used; if there is none, the
  price of the available time; otherwise the previous price. A change to a token that cannot be
  compared is an increase.
- The first price, for counted changes, is the price before the first change of the window.
- B of the forecast is the time not payable before the current outage; F includes its failure. For
  an endpoint that was never payable, 72 hours are added to a. The probability in half an hour is
  limited to 1/1000 ... 999/1000.
- A seller is a site (registrable domain) with the payTo addresses that it advertised first. Demand
  is measured separately on each chain. An anchor's addresses belong to its owner.
- A payer is proven if it has net spending at an anchor of another owner than the seller, and net
  spending of at least one cent at the seller.
- Weights are rounded down to millionths for each payer and anchor.
- A seller that is an anchor is one of the sellers among which the weights of its payers are
  divided.
- Alternatives are `proceed` or `caution`; the leaderboard contains only `proceed`.
- A leaderboard counts omitted endpoints of a site up to 1,000.
- Alternatives with a probability of at least 85% of being payable in 24 hours are listed first.
  Within both groups, the order is by similarity, that probability, score and price. Ordered only
  by probability, a dissimilar service could be first because of a difference of 0.1%.
- A badge shows whole points, rounded down, if the advice allows payment; while the endpoint is
  down it shows only the outage.
- Flags recommend a check before payment only if the advice allows payment.
- `down` is an outage that had not ended at the last check: its first failure (`since`), the result
  of the last check (`reason`), and whether a second check confirmed it (`confirmed`). For an
  endpoint that was ever payable, every probe that finds it not payable is a failure. For others,
  refusals and responses without a request for payment are not failures. Pages, badges, summaries
  and lists show `down` first. An endpoint with a confirmed outage is not on the leaderboard, not
  an alternative and never the best of a comparison, and `tollgauge buy` exits with 1.
"""
"""Decisions about cases that the specification does not define."""


def methodology(policy: Policy = POLICY) -> str:
    """Return the page of the policy in Markdown."""
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
        f"## Details that the specification leaves open\n\n{_DECISIONS.rstrip()}",
    )
    return "\n\n".join(sections) + "\n"


def _head(policy: Policy) -> str:
    return (
        f"# How the score is computed: policy {policy.version}\n\n"
        "<!-- Generated by docs/generate.py from core/score/policy and "
        "core/score/facts; do not edit. -->\n\n"
        "The score is a number from 0 to 100 that is computed only from evidence, with exact "
        "integer arithmetic, without a language model or manual decisions. The same evidence gives "
        "the same score on any machine, and `tollgauge score EVIDENCE.json` recomputes it.\n\n"
        "This page is long because it contains every rule and number of the policy; sellers can "
        "start with [Sell and get a good score](how-to/sell.md).\n\n"
        "Every probe has an attribution. Only results that the target caused (`theirs`) are "
        "scored. Faults of this service and results with an unknown cause are excluded, counted "
        "and shown. A fault of this service never lowers a score. Every score states the version "
        "of its policy."
    )


def _components(policy: Policy) -> str:
    rows = [(row.name, row.weight, row.measures, row.absent) for row in policy.rows]
    parts = ["## Components", table(("component", "weight", "subscore 0 to 100", "absence"), rows)]
    parts += [f"**{row.name}.** {_docstring(SUBSCORES[row.name])}" for row in policy.rows]
    return "\n\n".join(parts)


def _tables(policy: Policy) -> str:
    return "\n\n".join(
        (
            "## Tables",
            "Interpolation is linear and exact between the points, constant outside.",
            f"Latency (median, milliseconds): {_points(policy.latency)}.",
            f"Age (days): {_points(policy.age)}.",
            f"P (sum of the payers' weights): {_points(policy.payers)}.",
        )
    )


def _demand() -> str:
    return (
        "## Demand: why the number of wallets proves nothing\n\n"
        "Wallets are free. One owner can pay itself from a thousand wallets, in circles of shops "
        "or through a hub that returns the money, for the network's fees. Payers that are known "
        "only from payments to one seller therefore prove nothing, independently of their number. "
        "A payer is proven by money spent at sellers that cannot return it to this seller.\n\n"
        + (inspect.getdoc(measure_demand) or "").partition("\nArgs:")[0].rstrip()
        + "\n\nIf the anchors have fewer than two owners, the component is 0 for all sellers. The "
        "list, its dates and its digest are part of the evidence and of the page `/methodology`. "
        "Volume is shown but not scored. A payTo belongs to the first site that advertised it; "
        "other sites get no demand from it. With only their own wallets, sellers need anchor "
        "spending of $44 in a window for 3 points and $333 for 10 points, for each seller, at each "
        "of at least two anchors. Nearly all honest sellers stay within a point of 85 until their "
        "customers also buy elsewhere."
    )


def _prices(policy: Policy) -> str:
    return (
        "## Usual price\n\n"
        "Each price change permanently stores two values for the same network and asset over the "
        "31 days before it: the lower time-weighted median of the price (the usual price) and the "
        "upper quartile. Known stablecoins are compared in dollars.\n\n"
        f"{inspect.getdoc(count_steps)}\n\n"
        f"An increase deducts {policy.price_increase} points from stability and any other counted "
        f"change {policy.price_change}, at most {policy.price_max} together."
    )


def _observations(policy: Policy) -> str:
    """Describe the number of independent observations on which the range is based."""
    return (
        f"1/{policy.autocorrelation} + {policy.observations_a_day} x days / (1 + changes) "
        "independent observations; `days` is the time that scored probes cover, and `changes` the "
        "number of times that the endpoint became payable or stopped being payable: failures occur "
        "in clusters, so more changes make the history less informative about the next week"
    )


def _time(policy: Policy) -> str:
    weights = ", ".join(f"{weight:,}" for weight in policy.day_weights)
    return (
        "## Time, not counts\n\n"
        "A scored probe applies from its time until the next scored probe of the endpoint: at most "
        f"{HOLDS_MIN_MS // HOUR_MS} hours if it was payable, otherwise at most one and a half "
        f"times the interval to the next due time (at least {HOLDS_MIN_MS // HOUR_MS} and at most "
        f"{HOLDS_MAX_MS // HOUR_MS} hours). A target that returns 503 with a Retry-After of six "
        "hours is therefore down for these hours, while a stop of this service counts neither as "
        "up nor as down. Refusals (401, 403, 429 and bot walls) are not up, from the first one; "
        "local and unknown results do not count.\n\n"
        "Each UTC day stores the milliseconds up, payable and down, compliance x time, and the "
        "numbers of failures and repairs that began. Spans are split at midnight, so a closed day "
        f"never changes. The window is the current UTC day and the {len(policy.day_weights) - 1} "
        "days before it. The day k days ago has the weight round(1000 x 2^(-k/7)), from k = 0: "
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
        "`payableNow` is the probability that the endpoint is payable in half an hour, "
        "`payable24h` in 24 hours. Both are published with three decimals.\n\n"
        + (inspect.getdoc(forecast) or "")
        + "\n\nThe forecast limits the score. The lowest cap applies:\n\n"
        + table(("payableNow", "payable24h", "cap", "code", "reason"), rows)
    )


def _confirmation() -> str:
    return (
        "## Confirmation\n\n"
        "After the first failure of an endpoint that was payable, two more probes follow at random "
        "times: after 40 to 80 seconds and after 3 to 7 minutes. These probes contribute time but "
        "are not counted as probes. Until one of them has a result, the caps use the state before "
        "the failure and the advice is `caution`. A success limits the failure to a span of about "
        "a minute; a second failure confirms it."
    )


def _silence(policy: Policy) -> str:
    hours = policy.refusing_ms // HOUR_MS
    return (
        "## Endpoints without results\n\n"
        f"An endpoint that has refused probes for {hours} hours has the flag `refuses-probes`. An "
        "endpoint that was never payable and is behind a bot wall is `unprobeable` and has no "
        "score. "
        f"Without a scored probe for {policy.stale_ms // HOUR_MS} hours or "
        f"{policy.stale_intervals} intervals, whichever is longer, an endpoint is `stale`: its "
        "advice is `unverified`, or `avoid` if the last scored probe was a failure. Pauses that a "
        "target requests are respected for at most 6 hours; the host's other endpoints wait at "
        "most 10 minutes."
    )


def _below(permille: int) -> str:
    return "any" if permille == 1_000 else f"below {permille // 10}%"


def _grades(policy: Policy) -> str:
    grades = ", ".join(f"{letter} from {least}" for letter, least in policy.grades)
    caps = [(f"`{cap.code}`", f"{cap.limit_tenths / 10:g}", cap.reason) for cap in policy.caps]
    return "\n\n".join(
        (
            "## Grades and caps",
            f"{grades}, otherwise F. The grade is that of the published score with one decimal.",
            (
                "Lists order endpoints with equal scores by the lower end of the score range, then "
                "proven payers, then days since first seen, highest first, and finally by a hash "
                "of the URL and the day (UTC) of the score."
            ),
            "A cap limits the score after the weighted sum. The lowest cap applies.",
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
    text = _docstring(lint_flags)
    rows.append(("`lint:<rule>`", "the rule's", text, limits.get("lint-error", "")))
    return "\n\n".join(("## Flags", table(("flag", "severity", "fires when", "cap"), rows)))


def _recommendation() -> str:
    return "## Recommendation\n\n" + (inspect.getdoc(advise) or "")


def _range(policy: Policy) -> str:
    return (
        "## Confidence and range\n\n"
        "Confidence is the number of hours that scored probes cover, divided by "
        f"{policy.hours_full}, at most 1.00. The range shows the uncertainty of the score. Its "
        f"lower end uses the Wilson lower bounds of uptime and compliance (z = {_decimal(policy.z)}"
        f", {_observations(policy)}) and an activity of 0; its upper end uses the upper bounds and "
        "the scored activity. Caps apply to both ends.\n\n" + _docstring(verdict)
    )


def _arithmetic() -> str:
    return (
        "## Arithmetic\n\n"
        "The window is the current UTC day and the 30 before it (changes: "
        "`asOf - 30 d < at <= asOf`). Times are integer milliseconds UTC. "
        "All values are exact fractions until the end; score, subscores and range are then rounded "
        "half up to one decimal, confidence to two. Latency is computed from a histogram of "
        "integer milliseconds: one bucket per millisecond below 128 ms, and 64 equal buckets per "
        "octave above. The value of a bucket is its lower bound; the p-th percentile is the bucket "
        "of the ceil(p * n / 100)-th smallest value. A change that several sources report counts "
        "once: the largest count of a single source is used. The evidence is a JSON document "
        "([schema](evidence.schema.json)). A report contains the SHA-256 digest of its RFC 8785 "
        "form."
    )


def _points(table: Table) -> str:
    return ", ".join(f"{x:,} → {y}" for x, y in table)


def _decimal(value: Fraction) -> str:
    hundredths = half_up(value.as_integer_ratio(), 100)
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def _docstring(function: Callable[..., object]) -> str:
    return " ".join((inspect.getdoc(function) or "").split())
