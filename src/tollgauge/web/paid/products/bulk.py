"""`POST /v1/x402-trust-bulk-{10,50,100,200,500}`: scores of many endpoints, one route per tier.

Rules:
- one row per distinct resource (host and path), in the order of the request;
- no probes are sent. Scores older than 15 minutes are recomputed from stored evidence, at most
  `RECOMPUTE_MAX` and for `RECOMPUTE_MS` per call: first endpoints without a score, then the oldest.
  The others keep their last score, and the answer states it;
- an unknown resource is a row with `found: false`, and is charged;
- endpoints that are not public are included, as in their history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, PlainValidator, ValidationInfo, computed_field, create_model

from tollgauge.core.base.units import MINUTE_MS, SECOND_MS, Clock
from tollgauge.core.endpoint.identity import Perimeter, Resource
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.score.advice import summary
from tollgauge.core.score.evidence_document import EvidenceError
from tollgauge.core.score.score import ScoreError
from tollgauge.db.engine import ReadOnlyStore
from tollgauge.monitor.reports.trust_reports import Scored, load_scored, rescore
from tollgauge.observe import log
from tollgauge.store.scores import scores
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.product import Brief, PaidDependencies, Product, ToolSpec
from tollgauge.web.paid.sale import HeldClaim
from tollgauge.web.wire.examples import read_example
from tollgauge.web.wire.request_model import (
    RequestedResource,
    RequestModel,
    invalid,
    read_resource,
    refuse,
)
from tollgauge.web.wire.response_model import (
    Chance,
    Dollars,
    Grade,
    OneOf,
    Percent,
    Recommendation,
    ResponseModel,
    Share,
    Time,
    absent_if_null,
    camel,
    dump,
    from_attribute,
)
from tollgauge.web.wire.scores import FlagResponse, ScoreRange, flag_responses

Request = TypeVar("Request", bound="BulkRequest")

TIERS: Final = {10: "0.045000", 50: "0.200000", 100: "0.325000", 200: "0.400000", 500: "0.500000"}
"""The prices of the tiers, by the largest number of resources, smallest first."""
FRESH_MS: Final = 15 * MINUTE_MS
"""Older scores are recomputed."""
RECOMPUTE_MAX: Final = 50
RECOMPUTE_MS: Final = 8 * SECOND_MS
ERRORS_MAX: Final = 20
"""Number of invalid resources listed in a refusal."""
EXAMPLE: Final = {
    "resources": ["https://api.example.com/weather", "https://api.example.net/v1/translate"]
}
_UNKNOWN: Final = "This resource is not monitored."
_NOT_SCORED: Final = "Not scored yet: retry in a few minutes, or buy a live report."


def _snake(name: str, kind: Any) -> Any:
    """Return a field again, under the name that published clients read."""
    description = f"The same as `{camel(name)}`"
    return computed_field(return_type=kind, alias=name, description=description)(
        property(attrgetter(name))
    )


class BulkRow(ResponseModel):
    """The score of one resource. Figures are null if it is not `found` or not scored yet. `reason`
    explains the recommendation and summarizes the observations. `payableNow` and `payable24h` are
    the probabilities that it is payable in half an hour and in 24 hours. `probedAt` is the time of
    the last probe in the score; `recomputed` is true if the score was computed for this answer.
    """

    resource: str
    found: bool
    simulated: bool | None = absent_if_null()
    score: Percent | None = from_attribute("score_tenths")
    grade: Grade | None
    recommendation: Recommendation
    reason: str
    payable_now: Chance | None = from_attribute("payable_now_permille")
    payable24h: Chance | None = from_attribute("payable_24h_permille")
    confidence: Share = from_attribute("confidence_hundredths")
    probed_at: Time | None
    computed_at: Time | None = from_attribute("as_of")
    recomputed: bool
    score_range: ScoreRange
    amount_usd: Dollars | None
    pay_to: str | None
    flags: dict[str, FlagResponse]

    snake_probed_at = _snake("probed_at", str | None)
    snake_computed_at = _snake("computed_at", str | None)


class BulkResponse(ResponseModel):
    """One row per distinct resource, in the order of the request. `recomputeLimit` is the maximum
    number of recomputed scores per call; `recomputeLimitHit` is true if old scores remain.
    """

    recompute_limit: int
    recompute_limit_hit: bool
    results: list[BulkRow]

    snake_limit = _snake("recompute_limit", int)
    snake_limit_hit = _snake("recompute_limit_hit", bool)


def _distinct(most: int, value: object, info: ValidationInfo[Perimeter]) -> tuple[Resource, ...]:
    """Return the distinct resources of a list; a refusal lists the invalid ones."""
    if not isinstance(value, list) or not value:
        refuse(invalid("", "resources must be a list of at least one URL."))
    resources: dict[str, Resource] = {}
    texts: set[str] = set()
    refused: list[Problem] = []
    for index, text in enumerate(value):
        if isinstance(text, str) and text in texts:
            continue
        try:
            resource = read_resource(text, info.context, path=f"[{index}]")
        except Problem as problem:
            refused.append(problem)
            if len(refused) == ERRORS_MAX:
                break
            continue
        texts.add(text)
        resources.setdefault(resource.id, resource)
        if len(resources) > most:
            refuse(_too_many(most))
    if refused:
        errors = tuple(error for problem in refused for error in problem.errors)
        detail = f"resources{errors[0].path}: {refused[0]}"
        refuse(Problem(422, refused[0].code, detail, errors=errors))
    return tuple(resources.values())


def _too_many(most: int, *, path: str = "") -> Problem:
    return invalid(path, f"resources takes at most {most} different URLs here.")


class BulkRequest(RequestModel):
    """Distinct resources, in the order in which they are named."""

    resources: tuple[Resource, ...]


class ToolRequest(BulkRequest):
    """The arguments of the tool, which sells all tiers."""

    tier: Annotated[int | None, OneOf(TIERS)] = Field(
        None, description="The size to pay for; left out, the smallest that fits `resources`"
    )


def _limit_request(model: type[Request], most: int) -> type[Request]:
    """Return the model of a request with up to `most` resources. Its schema sets no `maxItems`,
    because duplicates count once.
    """
    listed = PlainValidator(
        partial(_distinct, most),
        json_schema_input_type=Annotated[list[RequestedResource], Field(min_length=1)],
    )
    description = (
        f"Up to {most} endpoint URLs, in a body of at most 64 KB; URLs with the same host and path "
        "count once"
    )
    resources: Any = Annotated[tuple[Resource, ...], listed, Field(description=description)]
    return create_model(model.__name__, __base__=model, resources=resources)


_REQUESTS: Final = {tier: _limit_request(BulkRequest, tier) for tier in TIERS}
_ARGUMENTS: Final = _limit_request(ToolRequest, max(TIERS))
_COLUMNS: Final = ("resource", "recommendation", "score", "grade", "payable24h", "amountUsd")


def _head(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the first page about all rows."""
    counts = Counter(row["recommendation"] for row in answer["results"])
    return {
        "recommendations": dict(counts),
        "notFound": sum(not row["found"] for row in answer["results"]),
        "recomputeLimitHit": answer["recomputeLimitHit"],
    }


def _brief_rows(answer: Mapping[str, Any]) -> list[list[Any]]:
    return [[row[name] for name in _COLUMNS] for row in answer["results"]]


def _choose_tier(arguments: Mapping[str, Any], perimeter: Perimeter) -> int:
    """Return the tier that a call of the tool names, or the smallest that its resources fit.

    Raises Problem 422 for arguments that fit no tier.
    """
    request = _ARGUMENTS.read(arguments, perimeter)
    count = len(request.resources)
    if request.tier is not None and count > request.tier:
        raise _too_many(request.tier, path="resources")
    return request.tier or min(tier for tier in TIERS if count <= tier)


async def recompute(
    store: ReadOnlyStore, stale: Iterable[Scored], *, cadence: Cadence, clock: Clock
) -> list[Scored]:
    """Rescore endpoints from their stored evidence, in this order, for at most `RECOMPUTE_MS`.

    An endpoint that cannot be scored is returned unchanged.
    """
    until = clock() + RECOMPUTE_MS
    done: list[Scored] = []
    for old in stale:
        now = clock()
        if now >= until:
            break
        try:
            done.append(await store.reading(rescore, old.endpoint, cadence=cadence, now=now))
        except (EvidenceError, ScoreError) as error:
            log().error("score.fail", endpoint=old.endpoint.id, error=str(error))
            done.append(old)
    return done


async def _answer(dependencies: PaidDependencies, request: BulkRequest, claim: HeldClaim) -> bytes:
    ids = [resource.id for resource in request.resources]
    known = await dependencies.store.reading(load_scored, ids)
    stale = _stale((known[id_] for id_ in ids if id_ in known), now=dependencies.clock())
    again = await recompute(
        dependencies.store,
        stale[:RECOMPUTE_MAX],
        cadence=dependencies.live.prober.cadence,
        clock=dependencies.clock,
    )
    rows = [one.row for one in again if one.row is not None]
    if rows:
        await claim.writing(scores.save_many, rows)
    now_known = known | {one.endpoint.id: one for one in again}
    return dump(
        BulkResponse(
            recompute_limit=RECOMPUTE_MAX,
            recompute_limit_hit=len(again) < len(stale),
            results=[_row(resource, now_known.get(resource.id)) for resource in request.resources],
        )
    )


def _stale(known: Iterable[Scored], *, now: int) -> list[Scored]:
    """Endpoints whose score is too old, those without one first, then the oldest."""
    aged = [(one.score.as_of if one.score else 0, one) for one in known]
    old = [(as_of, one) for as_of, one in aged if as_of < now - FRESH_MS]
    return [one for _, one in sorted(old, key=lambda pair: pair[0])]


def _row(resource: Resource, known: Scored | None) -> BulkRow:
    endpoint = known.endpoint if known else None
    quote = endpoint.quote if endpoint else None
    score = known.score if known else None
    figures: dict[str, Any]
    if score is None:
        unknown = ("score", "grade", "payable_now", "payable24h", "probed_at", "computed_at")
        figures = dict.fromkeys(unknown) | {
            "recommendation": "unverified",
            "reason": _NOT_SCORED if known else _UNKNOWN,
            "confidence": 0,
            "score_range": ScoreRange(low=None, point=None, high=None),
            "flags": {},
        }
    else:
        figures = {
            "reason": summary(score),
            "probed_at": score.stats.last_probed,
            "score_range": ScoreRange.build(score),
            "flags": flag_responses(score),
        }
    return BulkRow.build(
        score,
        resource=resource.url,
        found=known is not None,
        simulated=(endpoint.simulated if endpoint else False) or None,
        recomputed=known is not None and known.row is not None,
        amount_usd=quote.micro_usd if quote else None,
        pay_to=quote.pay_to if quote else None,
        **figures,
    )


_TOOL: Final = ToolSpec(
    name="x402_trust_bulk",
    title="Trust scores of many pay-per-call endpoints",
    description=(
        "Score up to 500 pay-per-call (x402) endpoints in one call. Returns a table in the order "
        "of the request, up to 8 KB of rows: recommendation, score from 0 to 100, grade, "
        "probability that the endpoint is payable in 24 hours, and price. `answerId` with `offset` "
        "returns the next rows; add `details: results` for complete rows with reason, confidence, "
        "flags and payTo. Both are free for 30 days. No probes are sent: scores older than 15 "
        "minutes are recomputed from stored evidence, a limited number per call "
        "(`recomputeLimitHit`). Unknown endpoints are `unverified` and are charged; use "
        "x402_trust_score to probe one now. Charges `tier`, or the smallest tier that fits. Pay "
        "only if `recommendation` is `proceed` or `caution`."
    ),
    request=_ARGUMENTS,
    brief=Brief(lists=("results",), columns=_COLUMNS, head=_head, rows=_brief_rows),
    choose_tier=_choose_tier,
)
PRODUCTS: Final = tuple(
    Product(
        path=f"/v1/x402-trust-bulk-{tier}",
        position=20,
        price=price,
        summary=f"The scores of up to {tier} endpoints",
        description=f"Trust scores of up to {tier} pay-per-call (x402) endpoints in one call: "
        "score, grade, recommendation with its reason, confidence, flags, price and payTo of each, "
        "from stored observations; scores older than 15 minutes are recomputed.",
        request=_REQUESTS[tier],
        example=dict(EXAMPLE),
        answer=read_example("bulk"),
        response=BulkResponse,
        compute=_answer,
        tool=_TOOL,
        tier=tier,
    )
    for tier, price in TIERS.items()
)
