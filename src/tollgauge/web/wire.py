"""The wire: what a report looks like as JSON, and the schema that the interface description shows.

Models here are shapes only: every figure arrives as the integer that reports.py and core/score
publish, and becomes a decimal, a dollar or an ISO time in one of the small functions at the end.
Field names are contract.md's.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tollgauge.core.evidence import Evidence
from tollgauge.core.policy import POLICIES
from tollgauge.core.score import Score, Settlement
from tollgauge.core.terms import Quote
from tollgauge.reports import Ecosystem, Leaderboard, Sample, Snapshot, TrustReport

VANTAGE: Final = "single vantage point; includes network distance; lightly weighted"

Grade = Annotated[str, Field(json_schema_extra={"enum": ["A", "B", "C", "D", "F"]})]
Recommendation = Annotated[
    str,
    Field(
        json_schema_extra={
            "enum": [
                "proceed",
                "caution",
                "avoid",
                "unverified",
                "not-payable",
                "parameterize",
            ]
        }
    ),
]
Severity = Annotated[str, Field(json_schema_extra={"enum": ["error", "warn", "info"]})]
Percent = Annotated[float, Field(ge=0, le=100)]


def camel(name: str) -> str:
    """A field's name on the wire: camelCase, with the windows' `30d` kept small."""
    return re.sub(r"30D\b", "30d", to_camel(name))


class Shape(BaseModel):
    """A JSON object with camelCase names and no others."""

    model_config = ConfigDict(
        alias_generator=camel, populate_by_name=True, extra="forbid", frozen=True
    )


class Breakdown(Shape):
    """Subscores of the six components, 0 to 100; all null while nothing was measured."""

    uptime: Percent | None
    compliance: Percent | None
    latency: Percent | None
    age: Percent | None
    activity: Percent | None
    stability: Percent | None


class CapShape(Shape):
    """A limit on the score and why it applies."""

    code: str
    limit: int
    reason: str


class PolicyShape(Shape):
    """The policy that the score was computed under."""

    version: int
    weights: dict[str, int]
    grade_thresholds: dict[str, int]
    caps: list[CapShape]


class FlagShape(Shape):
    """One issue under its slug."""

    severity: Severity
    message: str
    since: str | None = None


class DetailedFlag(Shape):
    """One issue as a row."""

    code: str
    severity: Severity
    message: str


class ScoreRange(Shape):
    """Where the score may lie, given how little was observed."""

    low: Percent | None
    point: Percent | None
    high: Percent | None


class ConfidenceDetail(Shape):
    """Confidence by kind: density of probes, share of the window indexed on chain."""

    observation: float
    economic: float


class Advertised(Shape):
    """The advertised price; absent when none is advertised."""

    amount: str
    amount_usd: float | None
    asset: str
    symbol: str | None
    network: str
    decimals: int | None
    pay_to: str
    observed_at_ts: int | None


class SettlementShape(Shape):
    """Settlements to the payTo in the window."""

    pay_to: str
    network: str
    volume_usd30d: float
    organic_volume_usd30d: float
    transfers30d: int
    distinct_payers30d: int
    effective_payers30d: float
    top_payer_share: float | None
    shared_with: int
    indexed_to_block: int | None
    indexed_to_ts: int | None
    level: Annotated[str, Field(json_schema_extra={"enum": ["endpoint", "wallet"]})]


class StatsShape(Shape):
    """The raw 30-day figures."""

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


class LatencyShape(Shape):
    """Milliseconds by phase; null for a phase that was not reached."""

    dns: int | None
    connect: int | None
    tls: int | None
    ttfb: int | None
    total: int


class FindingShape(Shape):
    """What a lint rule says."""

    rule: str
    severity: Severity
    message: str


class LiveProbeShape(Shape):
    """The probe that this report rests on."""

    at: str
    outcome: str
    status: int | None
    latency_ms: LatencyShape
    envelope: Annotated[str, Field(json_schema_extra={"enum": ["v1", "v2"]})] | None
    attribution: Annotated[str, Field(json_schema_extra={"enum": ["theirs", "ours", "unknown"]})]
    findings: list[FindingShape]


class AdvertisedBy(Shape):
    """The provider's own words: untrusted, unverified."""

    service_name: str
    description: str


class EvidenceShape(Shape):
    """What the score was computed from; `tollgauge score` recomputes it from `document`."""

    policy_version: int
    as_of: str
    digest: str
    document: dict[str, Any]


class ScoreShape(Shape):
    """A score alone, in the words of a trust report."""

    score: Percent | None
    grade: Grade | None
    confidence: float
    recommendation: Recommendation
    score_range: ScoreRange
    breakdown: Breakdown
    policy: PolicyShape
    flags: dict[str, FlagShape]
    flags_detailed: list[DetailedFlag]
    confidence_detail: ConfidenceDetail
    settlement: SettlementShape | None = None
    stats: StatsShape


class TrustReportShape(Shape):
    """A trust report."""

    resource: str
    score: Percent | None
    grade: Grade | None
    confidence: float
    recommendation: Recommendation
    score_range: ScoreRange
    breakdown: Breakdown
    policy: PolicyShape
    flags: dict[str, FlagShape]
    flags_detailed: list[DetailedFlag]
    confidence_detail: ConfidenceDetail
    advertised: Advertised | None = None
    settlement: SettlementShape | None = None
    stats: StatsShape
    live_probe: LiveProbeShape | None = None
    advertised_by: AdvertisedBy
    evidence: EvidenceShape


class SampleShape(Shape):
    """One sample report and where it stands in the population (1 is the best)."""

    role: Literal["best", "median", "worst"]
    population_rank: int
    report: TrustReportShape


class PreviewShape(Shape):
    """Three sample reports; fewer while fewer endpoints are scored."""

    samples: list[SampleShape]


class LeaderRow(Shape):
    """One row of the leaderboard."""

    rank: int
    resource: str
    host: str
    score: Percent
    grade: Grade | None
    recommendation: Recommendation
    confidence: float
    uptime30d: Percent | None
    avg_latency_ms: int | None
    amount_usd: float | None
    network: str | None
    endpoint_page: str


class LeaderboardShape(Shape):
    """The best 25 listed endpoints."""

    as_of: str
    policy_version: int
    simulated: bool
    endpoints: list[LeaderRow]


class SnapshotShape(Shape):
    """The free, cached view of one endpoint."""

    id: str
    resource: str
    recommendation: Recommendation
    grade: Grade | None
    score: Percent | None
    confidence: float
    uptime30d: Percent | None
    avg_latency_ms: int | None
    probes30d: int
    advertised_price_usd: float | Literal["not advertised"]
    price_stability: str
    network: str | None
    first_seen: str
    last_probed: str | None
    status: Annotated[str, Field(json_schema_extra={"enum": ["listed", "delisted"]})]
    snapshot_computed: str
    age_hours: int
    advertised_description: str
    better_alternatives: int | None
    summary: str
    verdict: str | None
    sources: list[str]
    endpoint_page: str
    simulated: bool


class EcosystemShape(Shape):
    """Counts over everything that is known, and 30 days of settlements to known payTo addresses
    (null while no chain is indexed; `indexedShare` says how much of those days is).
    """

    as_of: str
    listed: int
    delisted: int
    active: int
    reachable_share: float | None
    compliant_share: float | None
    grades: dict[str, int]
    simulated: bool
    volume_usd30d: float | None
    organic_volume_usd30d: float | None
    receivers30d: int | None
    payers30d: int | None
    indexed_share: float | None


def trust_report(report: TrustReport) -> TrustReportShape:
    """A trust report as JSON shape."""
    evidence = report.evidence
    return TrustReportShape(
        resource=evidence.resource,
        advertised=_advertised(evidence.quote, report.quote_at),
        live_probe=_live_probe(report),
        advertised_by=AdvertisedBy(
            service_name=report.service_name, description=report.description
        ),
        evidence=_evidence(evidence, report),
        **_judgement(report.score),
    )


def score_alone(score: Score) -> ScoreShape:
    """A score that was computed again, as JSON shape."""
    return ScoreShape(**_judgement(score))


def _judgement(score: Score) -> dict[str, Any]:
    """The fields that follow from the score alone."""
    return {
        "score": tenths(score.score_tenths),
        "grade": score.grade,
        "confidence": score.confidence_hundredths / 100,
        "recommendation": score.recommendation,
        "score_range": ScoreRange(
            low=tenths(score.low_tenths),
            point=tenths(score.score_tenths),
            high=tenths(score.high_tenths),
        ),
        "breakdown": _breakdown(score),
        "policy": _policy(score),
        "flags": {
            flag.code: FlagShape(
                severity=flag.severity.value, message=flag.message, since=iso(flag.since)
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
        "settlement": _settlement(score.settlement),
        "stats": _stats(score),
    }


def preview(samples: tuple[Sample, ...]) -> PreviewShape:
    """The preview as JSON shape."""
    return PreviewShape(
        samples=[
            SampleShape(
                role=sample.role,
                population_rank=sample.rank,
                report=trust_report(sample.report),
            )
            for sample in samples
        ]
    )


def leaderboard(board: Leaderboard, *, base_url: str) -> LeaderboardShape:
    """The leaderboard as JSON shape."""
    return LeaderboardShape(
        as_of=iso(board.as_of),
        policy_version=board.policy_version,
        simulated=any(row.simulated for row in board.rows),
        endpoints=[
            LeaderRow(
                rank=rank,
                resource=row.resource,
                host=row.host,
                score=tenths(row.score_tenths),
                grade=row.grade,
                recommendation=row.recommendation,
                confidence=row.confidence_hundredths / 100,
                uptime30d=tenths(row.uptime_tenths),
                avg_latency_ms=row.latency_ms,
                amount_usd=micro_usd(row.price_micro_usd),
                network=row.network,
                endpoint_page=f"{base_url}/endpoint/{row.id}",
            )
            for rank, row in enumerate(board.rows, 1)
        ],
    )


def snapshot(found: Snapshot, *, now: int, base_url: str) -> SnapshotShape:
    """A snapshot as JSON shape; its age counts whole hours."""
    changes = found.price_changes
    return SnapshotShape(
        id=found.id,
        resource=found.resource,
        recommendation=found.recommendation,
        grade=found.grade,
        score=tenths(found.score_tenths),
        confidence=found.confidence_hundredths / 100,
        uptime30d=tenths(found.uptime_tenths),
        avg_latency_ms=found.latency_ms,
        probes30d=found.probes,
        advertised_price_usd=micro_usd(found.price_micro_usd)
        if found.price_micro_usd is not None
        else "not advertised",
        price_stability=f"{changes} change(s)" if changes else "stable",
        network=found.network,
        first_seen=day(found.first_seen),
        last_probed=day(found.last_probed) if found.last_probed is not None else None,
        status=found.status,
        snapshot_computed=minute(found.computed_at),
        age_hours=max(0, now - found.computed_at) // 3_600_000,
        advertised_description=found.advertised_description,
        better_alternatives=found.better_alternatives,
        summary=found.summary,
        verdict=found.verdict or None,
        sources=list(found.sources),
        endpoint_page=f"{base_url}/endpoint/{found.id}",
        simulated=found.simulated,
    )


def ecosystem(stats: Ecosystem) -> EcosystemShape:
    """The counts as JSON shape."""
    return EcosystemShape(
        as_of=iso(stats.as_of),
        listed=stats.listed,
        delisted=stats.delisted,
        active=stats.monitored,
        reachable_share=permille(stats.reachable_permille),
        compliant_share=permille(stats.compliant_permille),
        grades=dict(stats.grades),
        simulated=stats.simulated,
        volume_usd30d=micro_usd(stats.volume_micro_usd),
        organic_volume_usd30d=micro_usd(stats.organic_micro_usd),
        receivers30d=stats.receivers,
        payers30d=stats.payers,
        indexed_share=permille(stats.indexed_permille),
    )


def dump(shape: Shape) -> bytes:
    """A shape as JSON bytes; fields whose absence means something are left out when null."""
    document = shape.model_dump(mode="json", by_alias=True)
    return _bytes(_without_absent(document))


_ABSENT: Final = frozenset({"advertised", "settlement", "liveProbe", "since"})


def _without_absent(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_absent(item)
            for key, item in value.items()
            if not (item is None and key in _ABSENT)
        }
    if isinstance(value, list):
        return [_without_absent(item) for item in value]
    return value


def _breakdown(score: Score) -> Breakdown:
    found = {row.name: tenths(row.tenths) for row in score.components}
    return Breakdown(**{name: found.get(name) for name in Breakdown.model_fields})


def _policy(score: Score) -> PolicyShape:
    policy = POLICIES[score.policy_version]
    return PolicyShape(
        version=policy.version,
        weights=policy.weights,
        grade_thresholds=dict(policy.grades),
        caps=[CapShape(code=cap.code, limit=cap.limit, reason=cap.reason) for cap in score.caps],
    )


def _advertised(quote: Quote | None, at: int | None) -> Advertised | None:
    if quote is None:
        return None
    return Advertised(
        amount=str(quote.amount),
        amount_usd=micro_usd(quote.micro_usd),
        asset=quote.asset,
        symbol=quote.symbol,
        network=quote.network,
        decimals=quote.decimals,
        pay_to=quote.pay_to,
        observed_at_ts=None if at is None else at // 1000,
    )


def _settlement(found: Settlement | None) -> SettlementShape | None:
    if found is None:
        return None
    return SettlementShape(
        pay_to=found.pay_to,
        network=found.network,
        volume_usd30d=micro_usd(found.volume),
        organic_volume_usd30d=micro_usd(found.organic),
        transfers30d=found.transfers,
        distinct_payers30d=found.distinct_payers,
        effective_payers30d=found.effective_hundredths / 100,
        top_payer_share=permille(found.top_permille),
        shared_with=found.shared_hosts - 1,
        indexed_to_block=found.indexed_to_block,
        indexed_to_ts=None if found.indexed_to is None else found.indexed_to // 1000,
        level=found.level,
    )


def _stats(score: Score) -> StatsShape:
    stats = score.stats
    return StatsShape(
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


def _live_probe(report: TrustReport) -> LiveProbeShape | None:
    probe = report.probe
    if probe is None:
        return None
    times = probe.timings
    return LiveProbeShape(
        at=iso(probe.at),
        outcome=probe.outcome.value,
        status=probe.status,
        latency_ms=LatencyShape(
            dns=times.dns,
            connect=times.connect,
            tls=times.tls,
            ttfb=times.ttfb,
            total=times.total,
        ),
        envelope=None if probe.version is None else f"v{probe.version}",
        attribution=probe.attribution.value,
        findings=[
            FindingShape(rule=found.rule, severity=found.severity.value, message=found.message)
            for found in probe.findings
        ],
    )


def _evidence(evidence: Evidence, report: TrustReport) -> EvidenceShape:
    return EvidenceShape(
        policy_version=report.score.policy_version,
        as_of=iso(evidence.as_of),
        digest=report.digest,
        document=report.document,
    )


def tenths(value: int | None) -> Any:
    """Tenths of a point or percent as a number with one decimal."""
    return None if value is None else value / 10


def permille(value: int | None) -> float | None:
    """Thousandths as a share from 0 to 1."""
    return None if value is None else value / 1000


def micro_usd(value: int | None) -> Any:
    """Millionths of a dollar as dollars with six decimals."""
    return None if value is None else value / 1_000_000


def iso(at: int | None) -> Any:
    """An instant as ISO 8601 UTC with `Z`, in whole seconds unless it has milliseconds."""
    if at is None:
        return None
    text = datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{at % 1000:03d}Z" if at % 1000 else f"{text}Z"


def day(at: int) -> str:
    """An instant as its UTC date."""
    return datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%d")


def minute(at: int) -> str:
    """An instant as service.md writes a snapshot's."""
    return datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _bytes(document: Any) -> bytes:
    return orjson.dumps(document)
