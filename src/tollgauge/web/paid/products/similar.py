"""`POST /v1/similar`: better-scored alternatives to an endpoint, ranked.

Ranking and what is left out: tollgauge/alternatives (docs/similarity.md). An endpoint that is
down, or that nothing is better than, is a normal answer; one that nobody knows is 404 and costs
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from math import ceil
from typing import Annotated, Any, Final

from pydantic import Field

from tollgauge.core.endpoint import Resource
from tollgauge.monitor.alternatives import Alternative, Found, IndexBuilding
from tollgauge.web import wire
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import catalogue
from tollgauge.web.paid.catalogue import PaidDependencies, Product
from tollgauge.web.paid.claim import HeldClaim

LIMIT_MAX: Final = 25
LIMIT: Final = 5
DELTA_MAX: Final = 100
DELTA: Final = 5
BODY: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["resource"],
    "properties": {
        "resource": catalogue.resource_field(),
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": LIMIT_MAX,
            "default": LIMIT,
            "description": "How many alternatives at most",
        },
        "minScoreDelta": {
            "type": "number",
            "minimum": 0,
            "maximum": DELTA_MAX,
            "default": DELTA,
            "description": "How many points better an alternative must score",
        },
    },
}
EXAMPLE: Final = {"resource": "https://api.example.com/weather", "limit": 5, "minScoreDelta": 5}
ANSWER: Final = {
    "resource": "https://api.example.com/weather",
    "score": 61.4,
    "alternatives": [
        {
            "resource": "https://weather.example.net/v1/current",
            "score": 84.2,
            "grade": "A",
            "recommendation": "proceed",
            "confidence": 0.97,
            "similarity": 0.46,
            "amountUsd": 0.004,
            "cheaper": True,
            "network": "eip155:8453",
            "endpointPage": "https://tollgauge.example/endpoint/4f1c1e1d9a3b2c10",
        }
    ],
}


class AlternativeShape(wire.Shape):
    """One alternative. `similarity` is 0 to 1 in steps of a hundredth."""

    resource: str
    score: wire.Percent
    grade: wire.Grade | None
    recommendation: wire.Recommendation
    confidence: Annotated[float, Field(ge=0, le=1)]
    similarity: Annotated[float, Field(ge=0, le=1)]
    amount_usd: float | None
    cheaper: bool
    network: str | None
    endpoint_page: str


class SimilarShape(wire.Shape):
    """Better-scored alternatives, best first; `score` is null while nothing was measured."""

    resource: str
    score: wire.Percent | None
    alternatives: list[AlternativeShape]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked: at least `delta_tenths` better, at most `limit` of them."""

    resource: Resource
    limit: int
    delta_tenths: int


def product(dependencies: PaidDependencies) -> Product:
    """The ranked alternatives to one endpoint."""
    return Product(
        dependencies=dependencies,
        route=catalogue.SIMILAR,
        summary="Better-scored alternatives to an endpoint, ranked",
        description="Better-scored alternatives to a pay-per-call (x402) endpoint with a similar "
        "purpose: exact scores, prices and similarity, most similar first.",
        body=BODY,
        example=dict(EXAMPLE),
        answer=dict(ANSWER),
        shape=SimilarShape,
        validate=partial(_order, dependencies),
        compute=partial(_answer, dependencies),
        refusals={404: "Nothing is known of this resource; nothing was charged"},
    )


def _order(dependencies: PaidDependencies, document: object) -> Order:
    fields = catalogue.json_object(document)
    resource = catalogue.resource_of(fields.get("resource"), dependencies.perimeter)
    limit = _number(fields, "limit", 1, LIMIT_MAX, LIMIT)
    if limit != int(limit):
        raise catalogue.invalid("limit", "limit must be a whole number.")
    delta = _number(fields, "minScoreDelta", 0, DELTA_MAX, DELTA)
    # Scores have one decimal: a delta of more decimals is met by the next tenth.
    tenths = ceil(Decimal(str(delta)) * 10)
    return Order(resource=resource, limit=int(limit), delta_tenths=tenths)


def _number(
    document: dict[Any, Any], name: str, least: int, most: int, default: int
) -> float | int:
    value = document.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise catalogue.invalid(name, f"{name} must be a number.")
    if not least <= value <= most:
        raise catalogue.invalid(name, f"{name} must be from {least} to {most}.")
    return value


async def _answer(dependencies: PaidDependencies, order: Order, _claim: HeldClaim) -> bytes:
    try:
        result = await dependencies.alternatives.find(
            dependencies.store,
            order.resource.id,
            limit=order.limit,
            delta_tenths=order.delta_tenths,
        )
    except IndexBuilding as error:
        raise Problem(
            503,
            "index-building",
            "The index of similar endpoints is being built. Nothing was charged; try again.",
            retry_after=10,
        ) from error
    if result is None:
        raise Problem(
            404, "unknown-resource", "Nothing is known of this resource. Nothing was charged."
        )
    return wire.dump(_shape(result, base_url=dependencies.base_url))


def _shape(result: Found, *, base_url: str) -> SimilarShape:
    return SimilarShape(
        resource=result.target.endpoint.resource,
        score=wire.tenths(result.target.score_tenths),
        alternatives=[_row(row, base_url=base_url) for row in result.alternatives],
    )


def _row(row: Alternative, *, base_url: str) -> AlternativeShape:
    scored, quote = row.scored, row.scored.endpoint.quote
    return AlternativeShape(
        resource=scored.endpoint.resource,
        score=wire.tenths(scored.score_tenths),
        grade=scored.grade,
        recommendation=scored.recommendation,
        confidence=scored.confidence_hundredths / 100,
        similarity=row.percent / 100,
        amount_usd=wire.micro_usd(quote.micro_usd if quote else None),
        cheaper=row.cheaper,
        network=quote.network if quote else None,
        endpoint_page=f"{base_url}/endpoint/{scored.endpoint.id}",
    )
