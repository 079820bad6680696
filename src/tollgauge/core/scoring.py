"""Scoring: the score of an evidence under a policy.

Rules (docs/methodology.md):
- deterministic and exact: fractions until the end, then half up to what is published; no floats;
- the weighted sum of the subscores, then the lowest cap of a flag that fired, then the grade of
  the score as it is published, so that score and grade never contradict each other;
- without a scored probe there is no score: absence is declared, never renormalised;
- the range takes uptime and compliance at their Wilson bounds; its high end also takes the raw
  activity. Caps hold for all three, and low <= score <= high.

What each figure means is core/signals' work, the numbers are core/policy's.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from tollgauge.core import evidence as evidence_form
from tollgauge.core.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.evidence import Evidence, EvidenceError
from tollgauge.core.finding import Severity
from tollgauge.core.latency import percentile
from tollgauge.core.policy import CURRENT, POLICIES, POLICY_1, Cap, Policy
from tollgauge.core.rounding import half_up
from tollgauge.core.score import Component, Score, ScoreError, Settlement, Stats
from tollgauge.core.signals import envelope, known, reach, settlements, terms
from tollgauge.core.signals.components import SUBSCORES, raw_activity
from tollgauge.core.signals.facts import Facts, facts_of
from tollgauge.core.signals.flag import Flag, FlagRule
from tollgauge.core.units import DAY_MS, WINDOW_MS
from tollgauge.core.verdict import verdict
from tollgauge.core.wilson import bounds

FLAG_RULES: Final[tuple[FlagRule, ...]] = (
    *reach.FLAGS,
    *envelope.FLAGS,
    *terms.FLAGS,
    *settlements.FLAGS,
    *known.FLAGS,
)
"""Every flag with a rule of its own; lint findings add one `lint:<rule>` each."""

_SEVERITIES: Final = tuple(Severity)
_TEMPLATE_SHADOWS: Final = frozenset({"down-now", "never-compliant"})
"""Error flags that an unfilled placeholder causes by itself."""


def score(evidence: Evidence, policy: Policy = CURRENT) -> Score:
    """The score of an evidence: pure, exact, independent of the order of its parts."""
    facts = facts_of(evidence, policy)
    flags = _flags(facts)
    caps = _caps(flags, policy)
    exact = {row.name: SUBSCORES[row.name](facts) for row in policy.rows}
    scored = facts.totals.scored > 0
    low, point, high = _range(exact, facts, caps) if scored else (None, None, None)
    grade = None if point is None else policy.grade(point)
    indexed_ms = evidence.chain.indexed_ms if evidence.chain else 0
    return Score(
        policy_version=policy.version,
        as_of=evidence.as_of,
        score_tenths=point,
        grade=grade,
        low_tenths=low,
        high_tenths=high,
        recommendation=recommend(facts, grade=grade, flags=flags),
        confidence_hundredths=half_up(facts.confidence, 100),
        economic_hundredths=half_up(min(Fraction(indexed_ms, WINDOW_MS), Fraction(1)), 100),
        components=tuple(
            Component(name=row.name, weight=row.weight, tenths=half_up(exact[row.name], 10))
            for row in (policy.rows if scored else ())
        ),
        flags=flags,
        caps=caps,
        stats=_stats(facts),
        settlement=_settlement(facts),
    )


def recompute(document: bytes) -> Score:
    """The score of an evidence document, or of a trust report that carries one at
    `evidence.document`: under the policy that the report names, else under policy 1. What the
    report claims plays no part; web/wire/claims compares it.

    Raises EvidenceError for anything else, and ScoreError for a policy that this version does not
    know.
    """
    content = evidence_form.parse(document)
    if not isinstance(content, dict) or not content.keys() & {"evidence", "score"}:
        return score(evidence_form.from_json(content), POLICY_1)
    report = content.get("evidence")
    if not isinstance(report, dict) or "document" not in report:
        raise EvidenceError("evidence.document", "The report does not carry its evidence.")
    evidence = evidence_form.from_json(report["document"])
    return score(evidence, _policy(report.get("policyVersion", POLICY_1.version)))


def recommend(facts: Facts, *, grade: str | None, flags: tuple[Flag, ...]) -> str:
    """What to do, the most useful answer first:

    1. `not-payable`: nobody can pay, whatever else is true;
    2. `parameterize`: the URL is a template, whatever it answers as it stands, and no error
       speaks against the host itself: fill the placeholder in and ask again;
    3. `avoid`: an error flag, or grade D or F;
    4. `unverified`: nothing was measured;
    5. `caution`: grade C, or confidence below 0.20;
    6. `proceed`.
    """
    errors = {flag.code for flag in flags if flag.severity is Severity.ERROR}
    if "not-payable" in errors:
        return "not-payable"
    own = {code for code in errors if not code.startswith("lint:")} - _TEMPLATE_SHADOWS
    if facts.evidence.templated and not own:
        return "parameterize"
    if errors or grade in ("D", "F"):
        return "avoid"
    if grade is None:
        return "unverified"
    unsure = grade == "C" or facts.confidence < facts.policy.low_confidence
    return "caution" if unsure else "proceed"


def _policy(version: object) -> Policy:
    policy = POLICIES.get(version) if type(version) is int else None
    if policy is None:
        raise ScoreError(
            "The report names a policy that this version does not know.",
            hint="Update tollgauge, then score the evidence again.",
        )
    return policy


def _flags(facts: Facts) -> tuple[Flag, ...]:
    flags = [flag for rule in FLAG_RULES if (flag := rule.apply(facts)) is not None]
    flags += envelope.lint_flags(facts)
    return tuple(sorted(flags, key=lambda flag: (_SEVERITIES.index(flag.severity), flag.code)))


def _caps(flags: tuple[Flag, ...], policy: Policy) -> tuple[Cap, ...]:
    codes = {flag.code for flag in flags}
    caps = (cap for cap in policy.caps if cap.code in codes)
    return tuple(sorted(caps, key=lambda cap: (cap.limit, cap.code)))


def _range(exact: dict[str, Fraction], facts: Facts, caps: tuple[Cap, ...]) -> tuple[int, int, int]:
    """Low, score and high in tenths: weighted sums under the lowest cap."""
    policy = facts.policy
    low, high = dict(exact), dict(exact)
    for name in ("uptime", "compliance"):
        share = exact[name] / 100
        ends = bounds(
            share, facts.totals.scored, z=policy.z, autocorrelation=policy.autocorrelation
        )
        low[name], high[name] = 100 * ends[0], 100 * ends[1]
    high["activity"] = raw_activity(facts)
    limit = min((cap.limit for cap in caps), default=100)

    def points(subscores: dict[str, Fraction]) -> int:
        total = sum((row.weight * subscores[row.name] for row in policy.rows), Fraction(0))
        return half_up(min(total / 100, Fraction(limit)), 10)

    return points(low), points(exact), points(high)


def _stats(facts: Facts) -> Stats:
    sums, evidence = facts.totals, facts.evidence
    mean = Fraction(sums.latency_sum, sums.latency_count) if sums.latency_count else None
    return Stats(
        probes=sums.probes,
        scored=sums.scored,
        up=sums.up,
        compliant=sums.compliant,
        payable=sums.payable,
        slots=sums.slots,
        excluded=sums.excluded,
        uptime_tenths=_share(sums.up, sums.scored),
        compliant_tenths=_share(sums.compliant, sums.scored),
        payable_tenths=_share(sums.payable, sums.scored),
        avg_latency_ms=None if mean is None else half_up(mean),
        p50_latency_ms=percentile(sums.latency, 50),
        p95_latency_ms=percentile(sums.latency, 95),
        price_changes=facts.changed(PRICE_CHANGED),
        payto_changes=facts.changed(PAYTO_CHANGED),
        first_seen=evidence.first_seen,
        last_probed=None if evidence.last is None else evidence.last.at,
        observed_days=max(evidence.as_of - evidence.first_seen, 0) // DAY_MS,
        verdict=verdict(sums.up, sums.scored),
    )


def _share(part: int, whole: int) -> int | None:
    """Tenths of a percent."""
    return half_up(Fraction(part, whole), 1_000) if whole else None


def _settlement(facts: Facts) -> Settlement | None:
    chain, volume = facts.evidence.chain, facts.volume
    if chain is None:
        return None
    top = half_up(Fraction(volume.top, volume.organic), 1_000) if volume.organic else None
    return Settlement(
        network=chain.network,
        pay_to=chain.pay_to,
        volume=volume.raw,
        organic=volume.organic,
        transfers=volume.transfers,
        distinct_payers=volume.payers,
        effective_hundredths=half_up(volume.wallet_effective, 100),
        top_permille=top,
        shared_hosts=volume.shared_hosts,
        indexed_to_block=chain.indexed_to_block,
        indexed_to=chain.indexed_to,
        level="wallet" if volume.shared_hosts > 1 else "endpoint",
    )
