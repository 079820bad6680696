"""`POST /v1/similar`: better-scored alternatives to an endpoint, ranked.

Ranking and exclusions: monitor/alternatives (docs/similarity.md). An endpoint that is unknown, or
has no better alternatives, is 404 and is not charged.
"""

from __future__ import annotations

from decimal import Decimal
from math import ceil
from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, Field

from tollgauge.core.endpoint.identity import page_url
from tollgauge.monitor.alternatives import IndexBuilding, RankedAlternatives
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.product import PaidDependencies, Product, ToolSpec
from tollgauge.web.paid.sale import HeldClaim
from tollgauge.web.wire.examples import read_example
from tollgauge.web.wire.request_model import RequestedResource, RequestModel, without_fraction
from tollgauge.web.wire.response_model import (
    Chance,
    Dollars,
    Grade,
    Percent,
    Recommendation,
    ResponseModel,
    Share,
    camel,
    dump,
    from_attribute,
    tenths,
)

EXAMPLE: Final = {"resource": "https://api.example.com/weather", "limit": 5, "minScoreDelta": 5}


class AlternativeResponse(ResponseModel):
    """One alternative. `similarity` is 0 to 1 in steps of 0.01, `payable24h` the probability that
    it is payable in 24 hours.
    """

    resource: str
    score: Percent = from_attribute("score_tenths")
    grade: Grade | None
    recommendation: Recommendation
    payable24h: Chance | None = from_attribute("payable_24h_permille")
    confidence: Share = from_attribute("confidence_hundredths")
    similarity: Share = from_attribute("percent")
    amount_usd: Dollars | None = from_attribute("price_micro_usd")
    cheaper: bool
    network: str | None
    endpoint_page: str


class SimilarResponse(ResponseModel):
    """Better-scored alternatives. Endpoints that are expected to be payable in 24 hours come first,
    then the most similar. `score` is null without measurements.
    """

    resource: str
    score: Percent | None = from_attribute("score_tenths")
    alternatives: list[AlternativeResponse]


class SimilarRequest(RequestModel):
    """The endpoint to replace, and the number and minimum score of alternatives."""

    model_config = ConfigDict(alias_generator=camel)

    resource: RequestedResource
    limit: Annotated[int, Field(ge=1, le=25), BeforeValidator(without_fraction)] = Field(
        5, description="How many alternatives at most"
    )
    min_score_delta: Annotated[float, Field(ge=0, le=100)] = Field(
        5, description="How many points better an alternative must score"
    )


async def _answer(
    dependencies: PaidDependencies, request: SimilarRequest, _claim: HeldClaim
) -> bytes:
    # Scores have one decimal: a delta of more decimals is met by the next tenth.
    delta_tenths = ceil(Decimal(str(request.min_score_delta)) * 10)
    try:
        ranking = await dependencies.alternatives.find(
            dependencies.store,
            request.resource.id,
            limit=request.limit,
            delta_tenths=delta_tenths,
        )
    except IndexBuilding as error:
        raise Problem(
            503,
            "index-building",
            "The index of similar endpoints is being built. Nothing was charged; try again.",
            retry_after=10,
        ) from error
    if ranking is None:
        raise Problem(
            404, "unknown-resource", "This resource is not monitored. Nothing was charged."
        )
    if not ranking.alternatives:
        raise _no_alternatives(ranking, request)
    return dump(_response(ranking, base_url=dependencies.base_url))


def _no_alternatives(ranking: RankedAlternatives, request: SimilarRequest) -> Problem:
    """Return Problem 404 with the reason; an empty list would be charged as an answer."""
    reason = "none-better" if ranking.has_similar else "nothing-similar"
    why = {
        "none-better": "There are similar endpoints, but none that is recommended for payment "
        f"scores {request.min_score_delta:g} points better. Try a smaller minScoreDelta.",
        "nothing-similar": "No similar endpoint of another host and payTo is listed and "
        "recommended for payment. Search with other keywords: GET /trust/search.",
    }[reason]
    return Problem(
        404,
        "no-alternatives",
        f"{why} Nothing was charged.",
        extra={
            "resource": ranking.endpoint.resource,
            "score": tenths(ranking.endpoint.score_tenths),
            "alternatives": [],
            "reason": reason,
        },
    )


def _response(ranking: RankedAlternatives, *, base_url: str) -> SimilarResponse:
    return SimilarResponse.build(
        ranking.endpoint,
        alternatives=[
            AlternativeResponse.build(
                row.endpoint, row, endpoint_page=page_url(base_url, row.endpoint.id)
            )
            for row in ranking.alternatives
        ],
    )


PRODUCT: Final = Product(
    path="/v1/similar",
    position=50,
    price="0.005000",
    summary="Better-scored alternatives to an endpoint, ranked",
    description="Better-scored alternatives to a pay-per-call (x402) endpoint with a similar "
    "purpose: exact scores, prices and similarity. Endpoints that are expected to be payable come "
    "first.",
    request=SimilarRequest,
    example=dict(EXAMPLE),
    answer=read_example("similar"),
    response=SimilarResponse,
    compute=_answer,
    tool=ToolSpec(
        name="x402_find_alternatives",
        title="Better alternatives to a pay-per-call endpoint",
        description=(
            "Find pay-per-call (x402) endpoints that serve the same purpose as the given one and "
            "score better, with score, grade, recommendation, similarity and price. Those that are "
            "expected to be payable come first. An empty result is not charged, and `reason` "
            "explains it."
        ),
    ),
    refusals={
        404: "The resource is not monitored (`unknown-resource`) or has no better alternatives "
        "(`no-alternatives`; `reason` is `nothing-similar` or `none-better`); nothing was "
        "charged"
    },
)
PRODUCTS: Final = (PRODUCT,)
