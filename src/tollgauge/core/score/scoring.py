"""Scoring: the score of an evidence.

Rules (docs/methodology.md):
- scores are deterministic and exact: ratios of integers, rounded half up only in published figures;
  no floats;
- the score is the weighted sum of the subscores, limited by the lowest cap. Its grade is that of
  the published figure, so score and grade never contradict each other;
- without a scored probe, or without an offer that can be evaluated, there is no score;
- the range uses the Wilson bounds of uptime and compliance, and activity at 0 and as scored. Caps
  apply to all three, and low <= score <= high.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tollgauge.core.base.rounding import Ratio, bounds, half_up
from tollgauge.core.base.units import DAY_MS, WINDOW_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.endpoint.terms import FormReading, form_text
from tollgauge.core.probe.rollup import count_latencies
from tollgauge.core.score import evidence_document, listing_flags, probe_flags
from tollgauge.core.score.advice import PAYABLE, Judgement, advise, verdict
from tollgauge.core.score.evidence import ChainEvidence, DemandEvidence, Evidence, LatestState
from tollgauge.core.score.evidence_document import EvidenceError
from tollgauge.core.score.facts import SUBSCORES, Facts, facts_of
from tollgauge.core.score.flag import RANKS, Fired, FlagRule, flag
from tollgauge.core.score.forecast import Forecasts, PresentState, forecast
from tollgauge.core.score.policy import POLICY, Cap, Policy, weighted_sum
from tollgauge.core.score.score import (
    AddressSettlements,
    Component,
    Score,
    ScoreError,
    Settlement,
    ShownDemand,
    Stats,
)

MAX_VOLUME: Final = 2**63 - 1
"""Larger volumes are published as this (atomic USDC, nine trillion dollars)."""
FLAG_RULES: Final = tuple(
    member
    for module in (probe_flags, listing_flags)
    for member in vars(module).values()
    if isinstance(member, FlagRule)
)
"""The rules of all flags; lint findings add one `lint:<rule>` each."""
_CHECKS: Final = tuple((RANKS[rule.severity], rule.code, rule.check) for rule in FLAG_RULES)
FIXES: Final[Mapping[str, str]] = {rule.code: rule.fix for rule in FLAG_RULES if rule.fix}
"""The seller's remedy for a flag, by its code. The message of a `lint:` flag states its fix."""


def score(evidence: Evidence, policy: Policy = POLICY) -> Score:
    """Return the score of an evidence. It does not depend on the order of the evidence's parts."""
    facts = facts_of(evidence, policy)
    raised = [
        (rank, code, fired) for rank, code, check in _CHECKS if (fired := check(facts)) is not None
    ]
    raised = sorted(raised + probe_flags.lint_flags(facts))
    flags = {code: fired for _, code, fired in raised}
    errors = {code for rank, code, _ in raised if not rank}
    exact = {name: subscore(facts) for name, subscore in SUBSCORES.items()}
    measured = facts.is_measured
    forecasts = None if evidence.state is None else _forecasts(facts, evidence.state)
    caps = _caps(facts, flags, forecasts) if measured and forecasts else ()
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
    now, day = forecasts or (None, None)
    return Score(
        policy_version=policy.version,
        as_of=evidence.as_of,
        score_tenths=point,
        grade=grade,
        low_tenths=low,
        high_tenths=high,
        recommendation=advice.recommendation,
        confidence_hundredths=half_up(facts.confidence, 100),
        economic_hundredths=half_up((min(facts.indexed_ms, WINDOW_MS), WINDOW_MS), 100),
        components=tuple(
            Component(name=row.name, weight=row.weight, tenths=half_up(exact[row.name], 10))
            for row in policy.rows
        )
        if measured
        else (),
        flags=tuple([flag(one, payable=payable) for one in raised]),
        caps=caps,
        stats=_stats(facts),
        settlement=_settlement(facts),
        reason=advice.reason,
        payable_now_permille=None if now is None else half_up(now, 1_000),
        payable_24h_permille=None if day is None else half_up(day, 1_000),
        demand=_demand(facts),
        down=probe_flags.down_of(facts),
        coverage=_coverage(facts),
    )


def recompute(document: bytes) -> Score:
    """Return the score of an evidence document, or of the one in a trust report
    (`evidence.document`). The figures of the report are ignored; web/wire/claims compares them.

    Raises EvidenceError for any other document, and ScoreError for a report of another policy.
    """
    content = evidence_document.parse(document)
    if not isinstance(content, dict) or not content.keys() & {"evidence", "score"}:
        return score(evidence_document.from_json(content))
    report = content.get("evidence")
    if not isinstance(report, dict) or "document" not in report:
        raise EvidenceError("evidence.document", "The report does not contain its evidence.")
    evidence = evidence_document.from_json(report["document"])
    if report.get("policyVersion", POLICY.version) != POLICY.version:
        raise ScoreError(
            f"The report names another policy than {POLICY.version}, the one of this program.",
            hint="Score the evidence with the version of tollgauge that made the report.",
        )
    return score(evidence)


def _caps(facts: Facts, flags: Mapping[str, Fired], forecasts: Forecasts) -> tuple[Cap, ...]:
    policy, state = facts.policy, facts.evidence.state
    caps = [cap for cap in policy.caps if cap.code in flags]
    if state is not None and state.unconfirmed:
        # Until a first failure is confirmed, caps use the state before it.
        caps = [cap for cap in caps if cap.code != "down-now"]
        since = state.at if state.payable_since is None else state.payable_since
        before = PresentState(payable=True, since=since, was_payable=True)
        forecasts = forecast(facts.days, before, as_of=facts.evidence.as_of)
    # A limit is a whole number, so a chance is below it if it is when rounded down.
    now, day = (1_000 * part // whole for part, whole in forecasts)
    caps += [rule.cap for rule in policy.forecast_caps if now < rule.now and day < rule.day]
    if (median := facts.evidence.site_median_tenths) is not None:
        reason = "A new path is limited for 7 days by the scores of its site's other paths."
        least = policy.new_path_tenths if day >= policy.new_path_permille else 0
        limit = max(median, least)
        caps.append(Cap(code="new-path-of-known-site", limit_tenths=limit, reason=reason))
    caps.sort(key=lambda cap: (cap.limit_tenths, cap.code))
    return tuple(caps)


def _forecasts(facts: Facts, state: LatestState) -> Forecasts:
    """Return the chances from the present state."""
    began = state.payable_since if state.payable else state.since
    present = PresentState(
        payable=state.payable,
        since=state.at if began is None else began,
        was_payable=state.payable or state.payable_since is not None,
    )
    return forecast(facts.days, present, as_of=facts.evidence.as_of)


def _demand(facts: Facts) -> ShownDemand | None:
    demand = facts.demand
    if demand is None:
        return None
    return ShownDemand(
        payers=demand.payers,
        volume=min(demand.volume, MAX_VOLUME),
        proven_payers=demand.proven_payers,
        proven_volume=min(demand.proven_volume, MAX_VOLUME),
        measured=facts.is_demand_measured,
    )


def _range(facts: Facts, exact: Mapping[str, Ratio], limit: int) -> tuple[int, int]:
    """Return the low and the high end of the score in tenths."""
    policy = facts.policy
    uptime, compliance = (
        bounds(exact[name], count_observations(facts), z=policy.z, of=100)
        for name in ("uptime", "compliance")
    )
    low = {**exact, "uptime": uptime[0], "compliance": compliance[0], "activity": (0, 1)}
    high = {**exact, "uptime": uptime[1], "compliance": compliance[1]}
    return _points(weighted_sum(policy, low), limit), _points(weighted_sum(policy, high), limit)


def _points(uncapped: Ratio, limit: int) -> int:
    """Return a weighted sum in tenths of a point, at most `limit`."""
    part, whole = uncapped
    return min(half_up((part, 10 * whole)), limit)


def count_observations(facts: Facts) -> Ratio:
    """Return the number of independent observations behind the shares of uptime and compliance.

    Failures come in clusters: the more there were, the less the past predicts (docs/calibration.md
    explains the choice of the formula).
    """
    policy, spans = facts.policy, facts.totals.spans
    changes = spans.failures + spans.repairs
    spoken = policy.observations_a_day * (spans.up + spans.down)
    whole = DAY_MS * (1 + changes)
    return whole + policy.autocorrelation * spoken, policy.autocorrelation * whole


def _stats(facts: Facts) -> Stats:
    sums, evidence, (median, high) = facts.totals, facts.evidence, facts.latencies_ms
    scored, answers, spans = sums.scored, count_latencies(sums.histogram), sums.spans
    up, payable, whole = spans.up, spans.payable, spans.up + spans.down
    return Stats(
        probes=sums.probes,
        scored=scored,
        up=sums.up,
        compliant=sums.compliant,
        payable=sums.payable,
        excluded=sums.excluded,
        uptime_tenths=half_up((up, whole), 1_000) if whole else None,
        compliant_tenths=half_up((sums.compliant, scored), 1_000) if scored else None,
        payable_tenths=half_up((payable, whole), 1_000) if whole else None,
        avg_latency_ms=half_up((sums.latency_sum, answers)) if answers else None,
        p50_latency_ms=median,
        p95_latency_ms=high,
        price_changes=facts.count_changes(PRICE_CHANGED),
        payto_changes=facts.count_changes(PAYTO_CHANGED),
        first_seen=evidence.first_seen,
        last_probed=None if evidence.last is None else evidence.last.at,
        observed_days=max(evidence.as_of - evidence.first_seen, 0) // DAY_MS,
        verdict=verdict(up, whole),
    )


def _settlement(facts: Facts) -> Settlement | None:
    if not facts.chains:
        return None
    first, *others = map(_figures, facts.chains)
    unread = [
        form_text(form)
        for form, reading in facts.coverage.items()
        if reading is FormReading.NOT_READ
    ]
    return Settlement(
        **first,
        others=tuple(AddressSettlements(**other) for other in others),
        not_measured=tuple(unread),
    )


def _figures(chain: ChainEvidence) -> dict[str, Any]:
    """Return the fields of AddressSettlements."""
    demand = chain.demand or DemandEvidence()
    return {
        "network": chain.network,
        "pay_to": chain.pay_to,
        "volume": min(demand.volume + demand.own, MAX_VOLUME),
        "transfers": demand.transfers,
        "distinct_payers": demand.payers,
        "shared_hosts": chain.shared_hosts,
        "indexed_to_block": chain.indexed_to_block,
        "indexed_to": chain.indexed_to,
    }


def _coverage(facts: Facts) -> dict[str, dict[str, FormReading]]:
    """Return the coverage by network and form."""
    by_network: dict[str, dict[str, FormReading]] = {}
    for form, reading in facts.coverage.items():
        network, _, name = form.rpartition(" ")
        by_network.setdefault(network, {})[name] = reading
    return by_network
