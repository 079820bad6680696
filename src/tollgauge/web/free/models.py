"""`GET /v1/models`: the decoders that a payment trace can name, cheapest first."""

from __future__ import annotations

from typing import Annotated, Final

from starlette.responses import Response

from tollgauge.core.chain.trace.result import DECODERS, NETWORKS, Model
from tollgauge.web.free.api import json_response
from tollgauge.web.wire.response_model import OneOf, ResponseModel


class ModelResponse(ResponseModel):
    """A decoder: the node's methods that it needs, what it gives, and its price in dollars, which
    comes on top of the route's.
    """

    id: Annotated[str, OneOf(Model)]
    needs: list[str]
    gives: str
    price_usd: float


class ModelsResponse(ResponseModel):
    """The catalogue, cheapest first, and the networks that requests can name."""

    models: list[ModelResponse]
    networks: list[str]


CATALOGUE: Final = ModelsResponse(
    models=[
        ModelResponse(
            id=decoder.model.value,
            needs=list(decoder.needs),
            gives=decoder.gives,
            price_usd=decoder.price_usd,
        )
        for decoder in DECODERS
    ],
    networks=list(NETWORKS),
)


async def models() -> Response:
    """Each decoder with what it needs of a node, and its price."""
    return json_response(CATALOGUE)
