"""JSON of scores and improvements, shared by all reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

from tollgauge.core.lists.rated_endpoint import ScoreFigures
from tollgauge.core.score.improvement import Improvement
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import Down, Score, Settlement, ShownDemand
from tollgauge.core.score.scoring import FIXES
from tollgauge.web.wire.response_model import (
    Chance,
    Grade,
    OneOf,
    Percent,
    Recommendation,
    ResponseModel,
    Severity,
    absent_if_null,
    iso,
    micro_usd,
    permille,
    tenths,
)

VANTAGE: Final = (
    "single EU vantage point; includes network distance; only lightly weighted in the score"
)


class Breakdown(ResponseModel):
    """Subscores of the six components, 0 to 100; all null without measurements."""

    uptime: Percent | None
    compliance: Percent | None
    latency: Percent | None
    age: Percent | None
    activity: Percent | None
    stability: Percent | None


class CapResponse(ResponseModel):
    """A limit on the score, with its reason."""

    code: str
    limit: float
    reason: str


class PolicyResponse(ResponseModel):
    """The policy of the score."""

    version: int
    weights: dict[str, int]
    grade_thresholds: dict[str, int]
    caps: list[CapResponse]


class FlagResponse(ResponseModel):
    """An issue, by its slug. `fix` is an instruction to the seller; `page` explains the rule of a
    `lint:` flag. Short reports may omit texts and pages.
    """

    severity: Severity
    message: str | None = absent_if_null()
    fix: str | None = absent_if_null()
    page: str | None = absent_if_null()
    since: str | None = absent_if_null()


class DetailedFlag(ResponseModel):
    """An issue as a list item."""

    code: str
    severity: Severity
    message: str | None = absent_if_null()


class ScoreRange(ResponseModel):
    """The uncertainty of the score, given the number of observations."""

    low: Percent | None
    point: Percent | None
    high: Percent | None


class ConfidenceDetail(ResponseModel):
    """Confidence by kind: density of probes, and share of the window indexed on chain."""

    observation: float
    economic: float


class DemandResponse(ResponseModel):
    """Payments to the seller in the last 30 days: the number of `payers` and their volume, and the
    number of payers that also buy from established sellers (`provenPayers`) with their net spending
    here. `text` summarizes the figures.
    """

    payers: int
    volume_usd: float
    proven_payers: int
    proven_volume_usd: float
    text: str


class DownResponse(ResponseModel):
    """An ongoing outage: the time of its first failure, and the result of the last check.
    `confirmed` is false for a few minutes while the first failure is being confirmed.
    """

    since: str
    reason: str
    confirmed: bool


class RatedResponse(ResponseModel):
    """Figures of an endpoint in lists, search results, snapshots and the leaderboard. `down` is
    null unless the endpoint is down; `payable24h` is the probability that it is payable in 24
    hours; `demand` is null if settlements are not known.
    """

    down: DownResponse | None
    recommendation: Recommendation
    grade: Grade | None
    score: Percent | None
    payable24h: Chance | None
    confidence: float
    uptime30d: Percent | None
    avg_latency_ms: int | None


class SettlementResponse(ResponseModel):
    """Settlements to the payTo in the last 30 days. `notMeasured` is present if settlements of some
    offered payment methods are not read, and names them.
    """

    pay_to: str
    network: str
    volume_usd30d: float
    transfers30d: int
    distinct_payers30d: int
    shared_with: int
    indexed_to_block: int | None
    indexed_to_ts: int | None
    level: Annotated[str, OneOf(("endpoint", "wallet"))]
    not_measured: list[str] | None = absent_if_null()


class StatsResponse(ResponseModel):
    """Raw figures of the last 30 days."""

    probes30d: int
    scored_probes30d: int
    excluded30d: dict[str, int]
    uptime30d: Percent | None
    compliant30d: Percent | None
    payable30d: Percent | None
    avg_latency_ms: int | None
    p50_latency_ms: int | None
    p95_latency_ms: int | None
    latency_vantage: str
    first_seen: str
    last_probed: str | None
    observed_days: int
    price_changes30d: int
    pay_to_changes30d: int
    settled_volume_usd30d: float


class ScoreResponse(ResponseModel):
    """A score with its parts, as in a trust report. `down` is null unless the endpoint is down;
    `payableNow` and `payable24h` are the probabilities that it is payable in half an hour and in 24
    hours.
    """

    down: DownResponse | None
    score: Percent | None
    grade: Grade | None
    confidence: float
    recommendation: Recommendation
    reason: str
    payable_now: Chance | None
    payable24h: Chance | None
    score_range: ScoreRange
    breakdown: Breakdown
    policy: PolicyResponse
    flags: dict[str, FlagResponse]
    flags_detailed: list[DetailedFlag]
    confidence_detail: ConfidenceDetail
    demand: DemandResponse | None
    settlement: SettlementResponse | None = absent_if_null()
    stats: StatsResponse


def rated_fields(figures: ScoreFigures) -> dict[str, Any]:
    """Return the fields of RatedResponse."""
    return {
        "down": down(figures.down),
        "recommendation": figures.recommendation,
        "grade": figures.grade,
        "score": tenths(figures.score_tenths),
        "payable24h": permille(figures.payable_24h_permille),
        "confidence": figures.confidence_hundredths / 100,
        "uptime30d": tenths(figures.uptime_tenths),
        "avg_latency_ms": figures.latency_ms,
    }


def score_alone(score: Score) -> ScoreResponse:
    """Build the JSON of a recomputed score."""
    return ScoreResponse(**judgement(score))


def judgement(score: Score) -> dict[str, Any]:
    """Return the report fields that depend only on the score."""
    return {
        "down": down(score.down),
        "score": tenths(score.score_tenths),
        "grade": score.grade,
        "confidence": score.confidence_hundredths / 100,
        "recommendation": score.recommendation,
        "reason": score.reason,
        "payable_now": permille(score.payable_now_permille),
        "payable24h": permille(score.payable_24h_permille),
        "score_range": ScoreRange(
            low=tenths(score.low_tenths),
            point=tenths(score.score_tenths),
            high=tenths(score.high_tenths),
        ),
        "breakdown": _breakdown(score),
        "policy": _policy(score),
        "flags": {
            flag.code: FlagResponse(
                severity=flag.severity.value,
                message=flag.message,
                fix=FIXES.get(flag.code),
                since=iso(flag.since),
            )
            for flag in score.flags
        },
        "flags_detailed": [
            DetailedFlag(code=flag.code, severity=flag.severity.value, message=flag.message)
            for flag in score.flags
        ],
        "confidence_detail": ConfidenceDetail(
            observation=score.confidence_hundredths / 100,
            economic=score.economic_hundredths / 100,
        ),
        "demand": demand(score.demand),
        "settlement": _settlement(score.settlement),
        "stats": _stats(score),
    }


def down(outage: Down | None) -> DownResponse | None:
    """Build the JSON of an outage."""
    if outage is None:
        return None
    return DownResponse(since=iso(outage.since), reason=outage.reason, confirmed=outage.confirmed)


def demand(shown: ShownDemand | None) -> DemandResponse | None:
    """Demand as JSON, None where settlements are not known."""
    if shown is None:
        return None
    return DemandResponse(
        payers=shown.payers,
        volume_usd=micro_usd(shown.volume),
        proven_payers=shown.proven_payers,
        proven_volume_usd=micro_usd(shown.proven_volume),
        text=shown.text,
    )


def _breakdown(score: Score) -> Breakdown:
    subscores = {row.name: tenths(row.tenths) for row in score.components}
    return Breakdown(**{name: subscores.get(name) for name in Breakdown.model_fields})


def _policy(score: Score) -> PolicyResponse:
    return PolicyResponse(
        version=score.policy_version,
        weights=POLICY.weights,
        grade_thresholds=dict(POLICY.grades),
        caps=[
            CapResponse(code=cap.code, limit=cap.limit_tenths / 10, reason=cap.reason)
            for cap in score.caps
        ],
    )


def _settlement(settlement: Settlement | None) -> SettlementResponse | None:
    if settlement is None:
        return None
    return SettlementResponse(
        pay_to=settlement.pay_to,
        network=settlement.network,
        volume_usd30d=micro_usd(settlement.volume),
        transfers30d=settlement.transfers,
        distinct_payers30d=settlement.distinct_payers,
        shared_with=settlement.shared_hosts - 1,
        indexed_to_block=settlement.indexed_to_block,
        indexed_to_ts=None if settlement.indexed_to is None else settlement.indexed_to // 1000,
        level=settlement.level,
        not_measured=list(settlement.not_measured) or None,
    )


def _stats(score: Score) -> StatsResponse:
    stats = score.stats
    return StatsResponse(
        probes30d=stats.probes,
        scored_probes30d=stats.scored,
        excluded30d=dict(stats.excluded),
        uptime30d=tenths(stats.uptime_tenths),
        compliant30d=tenths(stats.compliant_tenths),
        payable30d=tenths(stats.payable_tenths),
        avg_latency_ms=stats.avg_latency_ms,
        p50_latency_ms=stats.p50_latency_ms,
        p95_latency_ms=stats.p95_latency_ms,
        latency_vantage=VANTAGE,
        first_seen=iso(stats.first_seen),
        last_probed=iso(stats.last_probed),
        observed_days=stats.observed_days,
        price_changes30d=stats.price_changes,
        pay_to_changes30d=stats.payto_changes,
        settled_volume_usd30d=micro_usd(score.settlement.volume if score.settlement else 0),
    )


class ImprovementResponse(ResponseModel):
    """A change that would raise the score: the slug of a flag, or the name of a component. With
    otherwise unchanged evidence it adds `points`, which gives `score` and `grade`, within `inDays`
    days (0: with the next probe).
    """

    code: str
    points: Percent
    score: Percent
    grade: Grade
    fix: str
    in_days: int


def improvement_responses(rows: Iterable[Improvement]) -> list[ImprovementResponse]:
    """Build the JSON of improvements."""
    return [
        ImprovementResponse(
            code=row.code,
            points=tenths(row.points_tenths),
            score=tenths(row.score_tenths),
            grade=row.grade,
            fix=row.fix,
            in_days=row.in_days,
        )
        for row in rows
    ]
