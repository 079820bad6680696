"""JSON of scores and improvements, shared by all reports."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from tollgauge.core.endpoint.terms import FormReading
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import FIXES
from tollgauge.web.wire.response_model import (
    NULL_IF_EMPTY,
    Chance,
    Dollars,
    Grade,
    Millionths,
    OneOf,
    Percent,
    Recommendation,
    ResponseModel,
    Severity,
    Share,
    Time,
    UnixSeconds,
    absent_if_null,
    from_attribute,
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
    limit: Percent = from_attribute("limit_tenths")
    reason: str


class PolicyResponse(ResponseModel):
    """The policy of the score."""

    version: int = from_attribute("policy_version")
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
    since: Time | None = absent_if_null()


class DetailedFlag(ResponseModel):
    """An issue as a list item."""

    code: str
    severity: Severity
    message: str | None = absent_if_null()


class ScoreRange(ResponseModel):
    """The uncertainty of the score, given the number of observations."""

    low: Percent | None = from_attribute("low_tenths")
    point: Percent | None = from_attribute("score_tenths")
    high: Percent | None = from_attribute("high_tenths")


class ConfidenceDetail(ResponseModel):
    """Confidence by kind: density of probes, and share of the window indexed on chain.
    `activityPartial` is true if the settlements of some offered form of payment are not read, so
    that activity may be too low.
    """

    observation: Share = from_attribute("confidence_hundredths")
    economic: Share = from_attribute("economic_hundredths")
    activity_partial: bool = from_attribute("is_activity_partial")


Coverage = Annotated[
    dict[str, dict[str, Annotated[str, OneOf(FormReading)]]],
    Field(
        description="Whether the settlements of each offered form of payment are read, by network "
        "and form. Forms: `eip3009`, `permit2`, `upto`, `batch-settlement`, `auth-capture`, "
        "`exact` and others. An `experimental` reader may miss payments."
    ),
]
"""The coverage of settlements in reports and snapshots."""


class DemandResponse(ResponseModel):
    """Payments to the seller in the last 30 days: the number of `payers` and their volume, and the
    number of payers that also buy from established sellers (`provenPayers`) with their net spending
    here. `text` summarizes the figures.
    """

    payers: int
    volume_usd: Dollars = from_attribute("volume")
    proven_payers: int
    proven_volume_usd: Dollars = from_attribute("proven_volume")
    text: str


class BuyersReportsResponse(ResponseModel):
    """Signed statements of payers about delivery: each payer counts once per payTo address, with
    its latest statement. `deliveredWeight` and `notDeliveredWeight` count each payer with its
    weight of proven demand (0 to 1), which is measured daily. Statements do not change the score.
    """

    payers: int
    delivered: int
    not_delivered: int
    delivered_weight: Millionths
    not_delivered_weight: Millionths


class DownResponse(ResponseModel):
    """An ongoing outage: the time of its first failure, and the result of the last check.
    `confirmed` is false for a few minutes while the first failure is being confirmed.
    """

    since: Time
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
    score: Percent | None = from_attribute("score_tenths")
    payable24h: Chance | None = from_attribute("payable_24h_permille")
    confidence: Share = from_attribute("confidence_hundredths")
    uptime30d: Percent | None = from_attribute("uptime_tenths")
    avg_latency_ms: int | None = from_attribute("latency_ms")


class AddressSettlementsResponse(ResponseModel):
    """Settlements to a payTo on a network in the last 30 days."""

    pay_to: str
    network: str
    volume_usd30d: Dollars = from_attribute("volume")
    transfers30d: int = from_attribute("transfers")
    distinct_payers30d: int = from_attribute("distinct_payers")
    shared_with: Annotated[int, BeforeValidator(lambda hosts: hosts - 1)] = from_attribute(
        "shared_hosts"
    )
    indexed_to_block: int | None
    indexed_to_ts: UnixSeconds | None = from_attribute("indexed_to")
    level: Annotated[str, OneOf(("endpoint", "wallet"))]


class SettlementResponse(AddressSettlementsResponse):
    """Settlements to the payTo in the last 30 days. `others` is present if the endpoint offers
    other addresses on indexed networks; `demand` is the sum over all. `notMeasured` is present if
    settlements of some offered payment methods are not read, and names them.
    """

    others: Annotated[list[AddressSettlementsResponse] | None, NULL_IF_EMPTY] = absent_if_null()
    not_measured: Annotated[list[str] | None, NULL_IF_EMPTY] = absent_if_null()


class StatsResponse(ResponseModel):
    """Raw figures of the last 30 days."""

    probes30d: int = from_attribute("probes")
    scored_probes30d: int = from_attribute("scored")
    excluded30d: Annotated[dict[str, int], BeforeValidator(dict)] = from_attribute("excluded")
    uptime30d: Percent | None = from_attribute("uptime_tenths")
    compliant30d: Percent | None = from_attribute("compliant_tenths")
    payable30d: Percent | None = from_attribute("payable_tenths")
    avg_latency_ms: int | None
    p50_latency_ms: int | None
    p95_latency_ms: int | None
    latency_vantage: str
    first_seen: Time
    last_probed: Time | None
    observed_days: int
    price_changes30d: int = from_attribute("price_changes")
    pay_to_changes30d: int = from_attribute("payto_changes")
    settled_volume_usd30d: Dollars


class ScoreResponse(ResponseModel):
    """A score with its parts, as in a trust report. `down` is null unless the endpoint is down;
    `payableNow` and `payable24h` are the probabilities that it is payable in half an hour and in 24
    hours.
    """

    down: DownResponse | None
    score: Percent | None = from_attribute("score_tenths")
    grade: Grade | None
    confidence: Share = from_attribute("confidence_hundredths")
    recommendation: Recommendation
    reason: str
    payable_now: Chance | None = from_attribute("payable_now_permille")
    payable24h: Chance | None = from_attribute("payable_24h_permille")
    score_range: ScoreRange
    breakdown: Breakdown
    policy: PolicyResponse
    flags: dict[str, FlagResponse]
    flags_detailed: list[DetailedFlag]
    confidence_detail: ConfidenceDetail
    demand: DemandResponse | None
    coverage: Coverage
    settlement: SettlementResponse | None = absent_if_null()
    stats: StatsResponse


def score_alone(score: Score) -> ScoreResponse:
    """Build the JSON of a recomputed score."""
    return ScoreResponse.build(score, **score_parts(score))


def score_parts(score: Score) -> dict[str, Any]:
    """Build the fields of ScoreResponse that combine several figures of a score."""
    subscores = {row.name: row.tenths for row in score.components}
    return {
        "score_range": ScoreRange.build(score),
        "breakdown": Breakdown(**{name: subscores.get(name) for name in Breakdown.model_fields}),
        "policy": PolicyResponse.build(
            score, weights=POLICY.weights, grade_thresholds=dict(POLICY.grades)
        ),
        "flags": flag_responses(score),
        "flags_detailed": score.flags,
        "confidence_detail": ConfidenceDetail.build(score),
        "stats": StatsResponse.build(
            score.stats,
            latency_vantage=VANTAGE,
            settled_volume_usd30d=score.settled_volume,
        ),
    }


def flag_responses(score: Score) -> dict[str, FlagResponse]:
    """Build the JSON of a score's flags, by slug."""
    return {flag.code: FlagResponse.build(flag, fix=FIXES.get(flag.code)) for flag in score.flags}


class ImprovementResponse(ResponseModel):
    """A change that would raise the score: the slug of a flag, or the name of a component. With
    otherwise unchanged evidence it adds `points`, which gives `score` and `grade`, within `inDays`
    days (0: with the next probe).
    """

    code: str
    points: Percent = from_attribute("points_tenths")
    score: Percent = from_attribute("score_tenths")
    grade: Grade
    fix: str
    in_days: int
