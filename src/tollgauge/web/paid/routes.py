"""The rows of what is sold: a POST for each product, and a GET that shows its terms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from tollgauge.web.dependencies import Dependencies
from tollgauge.web.paid import request
from tollgauge.web.paid.catalogue import Product
from tollgauge.web.paid.prices import BULK
from tollgauge.web.route import Route


def paid_routes(dependencies: Dependencies, sold: tuple[Product, ...]) -> Iterable[Route]:
    """What is sold: a POST for each product, and a GET that shows its terms."""
    for product in sold:
        yield Route(
            "POST",
            product.route,
            product.summary,
            request.buy(product, dependencies.gate.serve),
            f"post_{request.operation_suffix(product)}",
            request.buy_answers(product),
            tag="paid",
            request=request.buy_description(product),
            micro_usd=dependencies.settings.micro_usd(product.route),
            example=orjson.dumps(product.example).decode(),
            **_tool_of(product),
        )
    for product in sold:
        yield Route(
            "GET",
            product.route,
            "What the same path asks by POST",
            request.show_terms(product),
            f"get_{request.operation_suffix(product)}",
            request.terms_answers(product),
            tag="paid",
            request={"parameters": product.path_parameters()},
        )


def _tool_of(product: Product) -> dict[str, Any]:
    """The tool that sells a product, and an example of its arguments."""
    tiers = {route: {"tier": tier} for tier, route in BULK.items()}
    arguments = {**(product.tool.example or product.example), **tiers.get(product.route, {})}
    return {"tool": product.tool.name, "tool_example": orjson.dumps(arguments).decode()}
