"""Looks: what a paid route tells those who come by GET.

Directories and linters ask with GET first, and only 402 tells them that something is sold here.
They get the route's terms, whose `bazaar` extension names the method that buys. Nothing is sold by
GET: a payment that comes with it is refused with 405 and stays unused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.catalogue import Call, Product
from tollgauge.web.paid.payment_terms import payment_required
from tollgauge.web.wire import openapi

REASON: Final = "This is sold by POST: send the request as JSON, with PAYMENT-SIGNATURE"


class _NotByGetProblem(Problem):
    """405: a payment, where nothing is sold."""

    def __init__(self) -> None:
        super().__init__(
            405,
            "method-not-allowed",
            "This is sold by POST. Nothing was charged; send the payment with a POST request.",
        )

    def headers(self) -> dict[str, str]:
        """With the method that RFC 9110 wants named."""
        return super().headers() | {"Allow": "POST"}


def router(offers: Iterable[tuple[Product, Any]]) -> APIRouter:
    """A GET of every paid route: each product with an example of its terms."""
    routes = APIRouter(default_response_class=Response, tags=["paid"])
    for product, terms in offers:
        _add(routes, product, terms)
    return routes


def _add(routes: APIRouter, product: Product, terms: Any) -> None:
    async def look(request: Request) -> Response:
        if "payment-signature" in request.headers:
            raise _NotByGetProblem
        call = Call(path=request.url.path, parameters=request.path_params)
        return payment_required(product.sale(call), REASON)

    routes.add_api_route(
        product.route,
        look,
        methods=["GET"],
        status_code=402,
        summary="What the same path asks by POST",
        operation_id=f"look_{product.route.rsplit('/', 1)[-1].replace('-', '_')}",
        responses=openapi.look(terms | {"error": REASON}),
        openapi_extra={"parameters": product.path_parameters()},
    )
