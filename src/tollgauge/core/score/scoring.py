"""Scoring: the score of an evidence.

Rules (docs/methodology.md):
- deterministic and exact: ratios of integers until the end, then half up to what is published; no
  floats;
- the weighted sum of the subscores, then the lowest cap of a flag that fired, then the grade of
  the score as it is published, so that score and grade never contradict each other;
- without a scored probe, or an offer that can be evaluated, there is no score: absence is declared,
  never renormalised;
- the range takes uptime and compliance at their Wilson bounds, and activity at the ends of the
  organic interval. Caps hold for all three, and low <= score <= high.

What each figure means is core/score/signals' work, the numbers are core/score/policy's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Final

from tollgauge.core.base.rounding import Ratio, bounds, bounds_of, half_up, smaller
from tollgauge.core.base.units import DAY_MS, WINDOW_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.endpoint.finding import is_lint
from tollgauge.core.endpoint.terms import form_text
from tollgauge.core.score import evidence as evidence_form
from tollgauge.core.score.advice import PAYABLE, Judgement, advise
from tollgauge.core.score.evidence import Evidence, EvidenceError
from tollgauge.core.score.forecast import NOW_MS, forecast
from tollgauge.core.score.policy import POLICY, Cap, Policy, weighted_sum
from tollgauge.core.score.score import Activity, Component, Score, ScoreError, Settlement, Stats
from tollgauge.core.score.signals import changed_terms as terms
from tollgauge.core.score.signals import envelope, known, reach, settlements
from tollgauge.core.score.signals.components import SUBSCORES
from tollgauge.core.score.signals.facts import Facts, facts_of
from tollgauge.core.score.signals.flag import Fired, flag, grouped, raised_by
from tollgauge.core.score.verdict import verdict

FLAG_RULES: Final = (
    *reach.FLAGS,
    *envelope.FLAGS,
    *terms.FLAGS,
    *settlements.FLAGS,
    *known.FLAGS,
)
"""The rules of all flags; lint findings add one `lint:<rule>` each."""
_GROUPS: Final = grouped(FLAG_RULES)
FIXES: Final[Mapping[str, str]] = {rule.code: rule.fix for rule in FLAG_RULES if rule.fix}
"""What a seller can do about a flag, by its slug. The message of a `lint:` flag says it itself."""

Forecasts = tuple[Ratio, Ratio]
"""The chances of being payable in half an hour and in 24 hours."""


def score(evidence: Evidence, policy: Policy = POLICY) -> Score:
    """The score of an evidence: pure, exact, independent of the order of its parts."""
    facts = facts_of(evidence, policy)
    raised = sorted(raised_by(_GROUPS, facts) + envelope.lint_flags(facts))
    flags = {code: fired for _, code, fired in raised}
    errors = {code for rank, code, _ in raised if not rank}
    exact = {name: subscore(facts) for name, subscore in SUBSCORES.items()}
    measured = evidence.state is not None and facts.is_evaluated
    forecasts = _forecasts(facts, payable=facts.is_payable)
    caps = _caps(facts, flags, errors, forecasts) if measured else ()
    uncapped = weighted_sum(policy, exact)
    limit = caps[0].limit_tenths if caps else 1_000
    low, high = _range(facts, exact, limit) if measured else (None, None)
    point = _points(uncapped, limit) if measured else None
    grade = None if point is None else policy.grade(point)
    advice = advise(
        Judgement(
            facts=facts,
            flags=flags,
            errors=errors,
            caps=caps,
            grade=grade,
            subscores=exact,
            uncapped=uncapped,
        )
    )
    payable = advice.recommendation in PAYABLE and facts.is_payable
    indexed_ms = evidence.chain.indexed_ms if evidence.chain else 0
    chances = _chances(facts, forecasts)
    return Score(
        policy_version=policy.version,
        as_of=evidence.as_of,
        score_tenths=point,
        grade=grade,
        low_tenths=low,
        high_tenths=high,
        recommendation=advice.recommendation,
        confidence_hundredths=half_up(facts.confidence, 100),
        economic_hundredths=half_up((min(indexed_ms, WINDOW_MS), WINDOW_MS), 100),
        components=_components(policy, exact) if measured else (),
        flags=tuple([flag(one, payable=payable) for one in raised]),
        caps=caps,
        stats=_stats(facts),
        settlement=_settlement(facts),
        reason=advice.reason,
        payable_now_permille=chances[0],
        payable_24h_permille=chances[1],
        activity=_activity(facts),
        down=reach.down_of(facts),
    )


def recompute(document: bytes) -> Score:
    """The score of an evidence document, or of a trust report that carries one at
    `evidence.document`. What the report claims plays no part; web/wire/claims compares it.

    Raises EvidenceError for anything else, and ScoreError for a report of another policy.
    """
    content = evidence_form.parse(document)
    if not isinstance(content, dict) or not content.keys() & {"evidence", "score"}:
        return score(evidence_form.from_json(content))
    report = content.get("evidence")
    if not isinstance(report, dict) or "document" not in report:
        raise EvidenceError("evidence.document", "The report does not carry its evidence.")
    evidence = evidence_form.from_json(report["document"])
    if report.get("policyVersion", POLICY.version) != POLICY.version:
        raise ScoreError(
            f"The report names another policy than {POLICY.version}, the one of this program.",
            hint="Score the evidence with the version of tollgauge that made the report.",
        )
    return score(evidence)


def uptime_bounds(evidence: Evidence, policy: Policy) -> tuple[Ratio, Ratio] | None:
    """The ends that the score range takes the uptime at, as shares from 0 to 1; None while nothing
    was measured.
    """
    facts = facts_of(evidence, policy)
    if not facts.spoken:
        return None
    percent, of = SUBSCORES["uptime"](facts)
    return bounds((percent, 100 * of), _observations(facts), z=policy.z)


def _components(policy: Policy, exact: Mapping[str, Ratio]) -> tuple[Component, ...]:
    return tuple(
        [_component(row.name, row.weight, half_up(exact[row.name], 10)) for row in policy.rows]
    )


@cache
def _component(name: str, weight: int, tenths: int) -> Component:
    """One object for those that say the same: there are 1,001 of each row."""
    return Component(name=name, weight=weight, tenths=tenths)


def _caps(
    facts: Facts, flags: Mapping[str, Fired], errors: Collection[str], forecasts: Forecasts
) -> tuple[Cap, ...]:
    policy = facts.policy
    caps = [cap for cap in policy.caps if cap.code in flags]
    if errors and any(map(is_lint, errors)):
        caps += [cap for cap in policy.caps if cap.code == "lint-error"]
    # Until a first failure is confirmed, the forecast that limits is the one from before it.
    (now, of_now), (day, of_day) = (
        _forecasts(facts, payable=True) if facts.is_unconfirmed else forecasts
    )
    # A limit is a whole number, so a chance is below it if it is when rounded down.
    now_permille, day_permille = 1_000 * now // of_now, 1_000 * day // of_day
    caps += [
        rule.cap
        for rule in policy.forecast_caps
        if now_permille < rule.now and day_permille < rule.day
    ]
    if (median := facts.evidence.site_median_tenths) is not None:
        reason = "A new path is not taken for better than its site for 7 days."
        caps.append(Cap(code="new-path-of-known-site", limit_tenths=median, reason=reason))
    caps.sort(key=lambda cap: (cap.limit_tenths, cap.code))
    return tuple(caps)


def _forecasts(facts: Facts, *, payable: bool) -> Forecasts:
    """The chances if the latest probe that speaks was `payable` or not."""
    spans = facts.totals.spans
    now = forecast(spans, payable=payable, ahead_ms=NOW_MS)
    return now, forecast(spans, payable=payable, ahead_ms=DAY_MS)


def _chances(facts: Facts, forecasts: Forecasts) -> tuple[int | None, int | None]:
    """The forecasts in thousandths, None where nothing was measured."""
    if facts.evidence.state is None:
        return None, None
    now, day = forecasts
    return half_up(now, 1_000), half_up(day, 1_000)


def _activity(facts: Facts) -> Activity | None:
    chain = facts.evidence.chain
    if chain is None or chain.sums is None:
        return None
    low, high = facts.activity_ends
    return Activity(
        low_tenths=half_up(low, 10),
        high_tenths=half_up(high, 10),
        clusters=chain.sums.clusters,
        not_measured=tuple(map(form_text, facts.unread_forms)),
    )


def _range(facts: Facts, exact: Mapping[str, Ratio], limit: int) -> tuple[int, int]:
    """The low and the high end of the score in tenths."""
    policy = facts.policy
    least, most = facts.activity_ends
    least = smaller(least, exact["activity"])
    shares = exact["uptime"], exact["compliance"]
    uptime, compliance = bounds_of(shares, _observations(facts), z=policy.z, of=100)
    low = {**exact, "uptime": uptime[0], "compliance": compliance[0], "activity": least}
    high = {**exact, "uptime": uptime[1], "compliance": compliance[1], "activity": most}
    return _points(weighted_sum(policy, low), limit), _points(weighted_sum(policy, high), limit)


def _points(uncapped: Ratio, limit: int) -> int:
    """A weighted sum in tenths of a point, at most `limit`."""
    part, whole = uncapped
    return min(half_up((part, 10 * whole)), limit)


def _observations(facts: Facts) -> Ratio:
    """How many independent observations the shares of uptime and compliance rest on. Failures come
    in clusters, so the more of them there were, the less the past says of the week to come
    (docs/calibration.md has how this was chosen).
    """
    policy, spans = facts.policy, facts.totals.spans
    changes = spans.failures + spans.repairs
    spoken = policy.observations_a_day * (spans.up + spans.down)
    whole = DAY_MS * (1 + changes)
    return whole + policy.autocorrelation * spoken, policy.autocorrelation * whole


def _stats(facts: Facts) -> Stats:
    sums, evidence, (median, high) = facts.totals, facts.evidence, facts.latencies_ms
    scored, answers, spans = sums.scored, sums.latencies, sums.spans
    up, payable, whole = spans.up, spans.payable, spans.up + spans.down
    return Stats(
        probes=sums.probes,
        scored=scored,
        up=sums.up,
        compliant=sums.compliant,
        payable=sums.payable,
        slots=sums.slots,
        excluded=sums.excluded,
        uptime_tenths=half_up((up, whole), 1_000) if whole else None,
        compliant_tenths=half_up((sums.compliant, scored), 1_000) if scored else None,
        payable_tenths=half_up((payable, whole), 1_000) if whole else None,
        avg_latency_ms=half_up((sums.latency_sum, answers)) if answers else None,
        p50_latency_ms=median,
        p95_latency_ms=high,
        price_changes=facts.changed(PRICE_CHANGED),
        payto_changes=facts.changed(PAYTO_CHANGED),
        first_seen=evidence.first_seen,
        last_probed=None if evidence.last is None else evidence.last.at,
        observed_days=max(evidence.as_of - evidence.first_seen, 0) // DAY_MS,
        verdict=verdict(up, whole),
    )


def _settlement(facts: Facts) -> Settlement | None:
    chain, volume = facts.evidence.chain, facts.volume
    if chain is None:
        return None
    sums, shared_hosts = volume
    raw, organic = sums.raw, sums.organic
    top = half_up((organic.top, organic.volume), 1_000) if organic.volume else None
    return Settlement(
        network=chain.network,
        pay_to=chain.pay_to,
        volume=raw.volume,
        organic=organic.volume,
        transfers=sums.transfers,
        distinct_payers=organic.payers,
        effective_hundredths=half_up(volume.wallet_effective, 100),
        top_permille=top,
        shared_hosts=shared_hosts,
        indexed_to_block=chain.indexed_to_block,
        indexed_to=chain.indexed_to,
        level="wallet" if shared_hosts > 1 else "endpoint",
    )
