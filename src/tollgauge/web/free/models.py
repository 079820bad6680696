"""`GET /v1/models`: the decoders that a payment trace can name, cheapest first."""

from __future__ import annotations

from typing import Annotated, Any, Final

from starlette.responses import Response

from tollgauge.core.trace.catalogue import DECODERS, NETWORKS, Model
from tollgauge.web import wire


class ModelShape(wire.Shape):
    """A decoder: the node's methods that it needs, what it gives, and its price in dollars, which
    comes on top of the route's.
    """

    id: Annotated[str, wire.OneOf(Model)]
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


async def models() -> Response:
    """Each decoder with what it needs of a node, and its price."""
    return Response(_BODY, media_type="application/json")


def example() -> dict[str, Any]:
    """The whole answer as JSON value, for the interface description."""
    return catalogue().model_dump(mode="json", by_alias=True)


_BODY: Final = wire.dump(catalogue())
