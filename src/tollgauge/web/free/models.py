"""`GET /v1/models`: the decoders that a payment trace can name, cheapest first."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.responses import Response

from tollgauge.core.trace import DECODERS, NETWORKS, Model
from tollgauge.web import wire
from tollgauge.web.paid.request import check_query
from tollgauge.web.wire import openapi

MODELS: Final = "/v1/models"


class ModelShape(wire.Shape):
    """A decoder: the node's methods that it needs, what it gives, and its price in dollars, which
    comes on top of the route's.
    """

    id: Annotated[str, Field(json_schema_extra={"enum": [model.value for model in Model]})]
    needs: list[str]
    gives: str
    price_usd: float


class ModelsShape(wire.Shape):
    """The catalogue, cheapest first, and the networks that requests can name."""

    models: list[ModelShape]
    networks: list[str]


def catalogue() -> ModelsShape:
    """The catalogue as JSON shape."""
    return ModelsShape(
        models=[
            ModelShape(
                id=decoder.model.value,
                needs=list(decoder.needs),
                gives=decoder.gives,
                price_usd=decoder.price_usd,
            )
            for decoder in DECODERS
        ],
        networks=list(NETWORKS),
    )


def router() -> APIRouter:
    """The route with its description."""
    routes = APIRouter(
        default_response_class=Response, dependencies=[Depends(check_query)], tags=["free"]
    )
    body = wire.dump(catalogue())

    async def models() -> Response:
        return Response(body, media_type="application/json")

    routes.add_api_route(
        MODELS,
        models,
        methods=["GET"],
        summary="The decoders that a payment trace can name",
        operation_id="get_models",
        responses=openapi.cached(
            openapi.free(
                ModelsShape, catalogue().model_dump(mode="json", by_alias=True), openapi.QUERY
            )
        ),
    )
    return routes
