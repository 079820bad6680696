"""JSON of trust reports and the preview."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import orjson
from pydantic import BeforeValidator, WithJsonSchema

from tollgauge.core.base.text import shorten
from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.probe.exchange import Severity as FindingSeverity
from tollgauge.core.probe.exchange import is_lint
from tollgauge.core.probe.outcome import Attribution
from tollgauge.web.wire.lint_answers import ExtensionSupport, PayableBy, rule_page
from tollgauge.web.wire.response_model import (
    NULL_IF_EMPTY,
    Amount,
    Dollars,
    OneOf,
    Recommendation,
    ResponseModel,
    Severity,
    Time,
    UnixSeconds,
    absent_if_null,
    dump,
    from_attribute,
)
from tollgauge.web.wire.scores import (
    BuyersReportsResponse,
    DownResponse,
    FlagResponse,
    ScoreResponse,
    score_parts,
)

if TYPE_CHECKING:  # heavy: commands that only judge a report need no database
    from tollgauge.monitor.reports.trust_reports import Sample, TrustReport


class Advertised(ResponseModel):
    """The advertised price; absent if no price is advertised."""

    amount: Amount
    amount_usd: Dollars | None = from_attribute("micro_usd")
    asset: str
    symbol: str | None
    network: str
    decimals: int | None
    pay_to: str
    observed_at_ts: UnixSeconds | None


class LatencyResponse(ResponseModel):
    """Milliseconds per phase; null if the phase was not reached."""

    dns: int | None
    connect: int | None
    tls: int | None
    ttfb: int | None
    total: int


class FindingResponse(ResponseModel):
    """A violated lint rule; in a short report the message may only be in the `lint:` flag."""

    rule: str
    severity: Severity
    message: str | None = absent_if_null()


_Version = Annotated[str, OneOf(("v1", "v2")), BeforeValidator(lambda version: f"v{version}")]


class LiveProbeResponse(ResponseModel):
    """The live probe of this report. `payableBy`: the official clients that can pay its offers."""

    at: Time
    outcome: str
    status: int | None
    latency_ms: LatencyResponse = from_attribute("timings")
    envelope: _Version | None = from_attribute("version")
    payable_by: PayableBy
    attribution: Annotated[str, OneOf(Attribution)]
    findings: list[FindingResponse]
    more_findings: int | None = absent_if_null()


class VantageResponse(ResponseModel):
    """The last probe from one vantage point; probes of the primary one are scored."""

    name: str = from_attribute("vantage")
    primary: bool
    at: Time
    outcome: str
    attribution: Annotated[str, OneOf(Attribution)]
    up: bool
    payable: bool
    latency_ms: int | None


class PaceResponse(ResponseModel):
    """The probe interval, if it is longer than usual because of a limit of the host."""

    every_seconds: Annotated[int, BeforeValidator(lambda ms: ms // SECOND_MS)] = from_attribute(
        "every_ms"
    )
    reason: str


class AdvertisedBy(ResponseModel):
    """Text of the provider: untrusted and unverified."""

    service_name: str
    description: str


class VerdictResponse(ResponseModel):
    """The recommendation, with its reason in one sentence."""

    recommendation: Recommendation
    reason: str


class EvidenceResponse(ResponseModel):
    """The evidence of the score, from which `tollgauge score` recomputes it. The document is
    available at `url` for 90 days, and is included in the report on request.
    """

    digest: str
    url: str
    policy_version: int
    as_of: Time
    # The stored canonical text, never parsed here: the digest covers every byte.
    document: Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": True})] = (
        absent_if_null()
    )


class SharedPayToResponse(ResponseModel):
    """Payments to the payTo, which several endpoints name: of the newest `payments` (at most 1,000
    of the last 30 days), `certain` can only be for this endpoint, by amount or builder code
    (ERC-8021), and `possible` may be for it or for others.
    """

    endpoints: int
    payments: int
    certain: int
    possible: int
    text: str


class ReportHead(ResponseModel):
    """The first fields of a trust report. `simulated` is present, and true, if the demo generated
    part of the history.
    """

    down: DownResponse | None
    verdict: VerdictResponse
    resource: str
    simulated: bool | None = absent_if_null()


class TrustReportResponse(ScoreResponse, ReportHead):
    """A trust report, by default at most 4 KB. To fit, the least severe flags and their texts are
    omitted; `moreFlags` counts omitted flags. `"evidence": "full"` in the request returns the
    complete report with its evidence. `simulated` is present, and true, if the demo generated part
    of the history. `vantages` and `partlyReachable` are present if several vantage points probe;
    the latter is true if only some of them reached the endpoint in the last two hours. `pace` is
    present if the paths of a host share its request limit, and `buyersReports` if payers reported
    whether the endpoint delivered. `sharedPayTo` is present if other endpoints name the same payTo.
    `extensions`: those of the last 402, and whether the linter
    evaluates them.
    """

    more_flags: int | None = absent_if_null()
    advertised: Advertised | None = absent_if_null()
    live_probe: LiveProbeResponse | None = absent_if_null("probe")
    partly_reachable: bool | None = absent_if_null()
    vantages: Annotated[list[VantageResponse] | None, NULL_IF_EMPTY] = absent_if_null()
    pace: PaceResponse | None = absent_if_null()
    buyers_reports: BuyersReportsResponse | None = absent_if_null()
    shared_pay_to: SharedPayToResponse | None = absent_if_null()
    extensions: ExtensionSupport = absent_if_null()
    advertised_by: AdvertisedBy
    evidence: EvidenceResponse


class SampleResponse(ResponseModel):
    """A sample report with its rank among all scored endpoints (1 is the best)."""

    role: Literal["best", "median", "worst"]
    population_rank: int = from_attribute("rank")
    report: TrustReportResponse


class PreviewResponse(ResponseModel):
    """Three sample reports; fewer while fewer endpoints are scored."""

    samples: list[SampleResponse]


def trust_report(report: TrustReport, *, base_url: str) -> TrustReportResponse:
    """Build the JSON of a complete trust report with its evidence."""
    score, row, endpoint = report.score, report.row, report.endpoint
    quote = endpoint.quote
    parts = score_parts(score)
    return TrustReportResponse.build(
        score,
        report,
        resource=endpoint.resource,
        verdict=VerdictResponse.build(score),
        simulated=endpoint.simulated or None,
        advertised=quote and Advertised.build(quote, observed_at_ts=endpoint.quote_at),
        partly_reachable=report.partly_reachable if report.vantages else None,
        extensions=(report.probe and report.probe.extensions) or endpoint.extensions,
        advertised_by=AdvertisedBy.build(endpoint),
        evidence=EvidenceResponse.build(
            row,
            url=f"{base_url}/evidence/{row.digest}",
            policy_version=score.policy_version,
            document=orjson.Fragment(row.evidence),
        ),
        **parts | {"flags": _link_rules(parts["flags"], base_url)},
    )


def _link_rules(flags: dict[str, FlagResponse], base_url: str) -> dict[str, FlagResponse]:
    """Add the pages of the rules to the linter's flags."""
    return {
        code: flag.model_copy(update={"page": rule_page(code, base_url)}) if is_lint(code) else flag
        for code, flag in flags.items()
    }


def preview(samples: tuple[Sample, ...], *, base_url: str) -> PreviewResponse:
    """Build the JSON of the preview, with short reports."""
    return PreviewResponse(
        samples=[
            SampleResponse.build(
                sample, report=short(trust_report(sample.report, base_url=base_url))
            )
            for sample in samples
        ]
    )


_OUTLINE: Final[Any] = {
    "resource": True,
    "down": True,
    "verdict": True,
    "score": True,
    "grade": True,
    "confidence": True,
    "score_range": True,
    "payable24h": True,
    "breakdown": True,
    "flags": {"__all__": {"severity"}},
    "advertised": {"amount_usd", "symbol", "network", "pay_to"},
    "demand": {"payers", "volume_usd", "proven_payers", "proven_volume_usd"},
    "settlement": {"level"},
    "stats": {"uptime30d", "p50_latency_ms", "price_changes30d", "pay_to_changes30d"},
    "evidence": {"url"},
}
"""Report fields in the MCP preview, which contains three reports twice in less than 8 KB."""


def outline(samples: PreviewResponse) -> bytes:
    """Encode the preview with only the fields that decide whether to pay."""
    of_sample = {"role": True, "population_rank": True, "report": _OUTLINE}
    document = samples.model_dump(by_alias=True, include={"samples": {"__all__": of_sample}})
    return orjson.dumps(document)


SHORT_BYTES: Final = 4_096
"""Maximum size of a short report, except for resources with very long URLs."""
_FLAGS: Final = 12
_FINDINGS: Final = 6
_DESCRIPTION: Final = 160


def short(report: TrustReportResponse) -> TrustReportResponse:
    """Shorten a report to SHORT_BYTES, without its evidence.

    Texts are dropped until it fits: duplicates first, then those of the least severe flags.
    """
    rows = report.flags_detailed[:_FLAGS]
    flags = {row.code: report.flags[row.code] for row in rows}
    probe = report.live_probe
    findings = sorted(probe.findings, key=_severity) if probe else []
    shown = findings[:_FINDINGS]
    provider = report.advertised_by
    result = report.model_copy(
        update={
            "flags": flags,
            "flags_detailed": rows,
            "more_flags": len(report.flags_detailed) - len(rows) or None,
            "live_probe": probe
            and probe.model_copy(
                update={
                    "findings": shown,
                    "more_findings": len(findings) - len(shown) or None,
                }
            ),
            "advertised_by": provider.model_copy(
                update={"description": shorten(provider.description, _DESCRIPTION)}
            ),
            "evidence": report.evidence.model_copy(update={"document": None}),
            "settlement": report.settlement
            and report.settlement.model_copy(update={"not_measured": None}),  # in `coverage`
        }
    )
    excess = len(dump(result)) - SHORT_BYTES
    excess = _drop(flags, flags, "page", excess)
    excess = _drop(shown, range(len(shown)), "message", excess)
    for name in ("message", "fix"):
        excess = _drop(flags, flags, name, excess)
    _drop(rows, range(len(rows)), "message", excess)
    return result


def _drop(models: Any, keys: Iterable[Any], name: str, excess: int) -> int:
    """Drop a text from the last models until `excess` bytes are saved; return the remainder."""
    for key in reversed(list(keys)):
        text = getattr(models[key], name)
        if excess > 0 and text is not None:
            models[key] = models[key].model_copy(update={name: None})
            excess -= len(orjson.dumps(text)) + len(f'"{name}":,')
    return excess


def _severity(finding: FindingResponse) -> int:
    return FindingSeverity(finding.severity).rank
