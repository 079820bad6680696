"""A trust report as JSON, and the preview's three."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from pydantic import WithJsonSchema

from tollgauge.core.terms import Quote
from tollgauge.core.units import SECOND_MS
from tollgauge.core.vantage import VantageState
from tollgauge.monitor.reports import Sample, TrustReport
from tollgauge.monitor.reports.pace import Pace
from tollgauge.web.wire.figures import iso, micro_usd
from tollgauge.web.wire.scores import (
    ActivityShape,
    Breakdown,
    ConfidenceDetail,
    DetailedFlag,
    FlagShape,
    PolicyScoreShape,
    PolicyShape,
    ScoreRange,
    SettlementShape,
    StatsShape,
    judgement,
    previous_policy,
)
from tollgauge.web.wire.shape import (
    Chance,
    Grade,
    OneOf,
    Percent,
    Recommendation,
    Severity,
    Shape,
    absent_if_null,
)


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
    envelope: Annotated[str, OneOf(("v1", "v2"))] | None
    attribution: Annotated[str, OneOf(("theirs", "ours", "unknown"))]
    findings: list[FindingShape]


class VantageShape(Shape):
    """What was seen last from one place on the network; the primary one's probes are scored."""

    name: str
    primary: bool
    at: str
    outcome: str
    attribution: Annotated[str, OneOf(("theirs", "ours", "unknown"))]
    up: bool
    payable: bool
    latency_ms: int | None


class PaceShape(Shape):
    """How often the endpoint is probed, where its host cannot be asked as often as usual."""

    every_seconds: int
    reason: str


class AdvertisedBy(Shape):
    """The provider's own words: untrusted, unverified."""

    service_name: str
    description: str


class EvidenceShape(Shape):
    """What the score was computed from; `tollgauge score` recomputes it from `document`."""

    policy_version: int
    as_of: str
    digest: str
    # The canonical text as it is stored: its digest covers every byte, and it is never parsed here.
    document: Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": True})]


class TrustReportShape(Shape):
    """A trust report. `simulated` is present, and true, where part of the history that it rests on
    was made up by the demo. `previousPolicy` is what the policy before makes of the same evidence.
    `vantages` and `partlyReachable` are present where several watch endpoints; the latter says that
    some of them reached this one in the last two hours and others did not. `pace` is present where
    many paths share what the host can be asked.
    """

    resource: str
    simulated: bool | None = absent_if_null()
    score: Percent | None
    grade: Grade | None
    confidence: float
    recommendation: Recommendation
    reason: str
    payable_now: Chance | None
    payable24h: Chance | None
    score_range: ScoreRange
    breakdown: Breakdown
    policy: PolicyShape
    previous_policy: PolicyScoreShape | None
    flags: dict[str, FlagShape]
    flags_detailed: list[DetailedFlag]
    confidence_detail: ConfidenceDetail
    advertised: Advertised | None = absent_if_null()
    activity: ActivityShape | None
    settlement: SettlementShape | None = absent_if_null()
    stats: StatsShape
    live_probe: LiveProbeShape | None = absent_if_null()
    partly_reachable: bool | None = absent_if_null()
    vantages: list[VantageShape] | None = absent_if_null()
    pace: PaceShape | None = absent_if_null()
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


def trust_report(report: TrustReport) -> TrustReportShape:
    """A trust report as JSON shape."""
    endpoint = report.endpoint
    return TrustReportShape(
        resource=endpoint.resource,
        simulated=endpoint.simulated or None,
        advertised=_advertised(endpoint.quote, endpoint.quote_at),
        live_probe=_live_probe(report),
        partly_reachable=report.partly_reachable if report.vantages else None,
        vantages=[_vantage(state) for state in report.vantages] or None,
        pace=_pace(report.pace),
        advertised_by=AdvertisedBy(
            service_name=endpoint.service_name, description=endpoint.description
        ),
        evidence=_evidence(report),
        previous_policy=previous_policy(report.score.previous),
        **judgement(report.score),
    )


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
            FindingShape(
                rule=finding.rule, severity=finding.severity.value, message=finding.message
            )
            for finding in probe.findings
        ],
    )


def _vantage(state: VantageState) -> VantageShape:
    return VantageShape(
        name=state.vantage,
        primary=state.primary,
        at=iso(state.at),
        outcome=state.outcome.value,
        attribution=state.attribution.value,
        up=state.up,
        payable=state.payable,
        latency_ms=state.latency_ms,
    )


def _pace(pace: Pace | None) -> PaceShape | None:
    if pace is None:
        return None
    return PaceShape(every_seconds=pace.every_ms // SECOND_MS, reason=pace.reason)


def _evidence(report: TrustReport) -> EvidenceShape:
    return EvidenceShape(
        policy_version=report.score.policy_version,
        as_of=iso(report.row.as_of),
        digest=report.row.digest,
        document=orjson.Fragment(report.row.evidence),
    )
