"""A request to a paid route: its handlers, how it is read, and how it is described.

POST buys through the gate. GET shows the terms: directories and linters ask with GET first, and
only 402 tells them that something is sold here. Nothing is sold by GET: a payment that comes with
it is refused with 405 and stays unused.

The payment header and the body are read strictly: what two parsers could take for two things is
refused, because a payment is bound to the bytes of its request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core import strictjson
from tollgauge.core.payment import HEADER_MAX, Offer, Payment, PaymentHeaderError, decode
from tollgauge.observe import PAID_REQUESTS, log
from tollgauge.web.edge.compress import compressed
from tollgauge.web.edge.limits import BODY_MAX
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import catalogue
from tollgauge.web.paid.catalogue import Call, Product
from tollgauge.web.paid.payment_terms import Sale, payment_required
from tollgauge.web.wire import examples, openapi

Handler = Callable[[Request], Awaitable[Response]]

SOLD_BY_POST: Final = "This is sold by POST: send the request as JSON, with PAYMENT-SIGNATURE"
_WHOLE_ANSWERS: Final = {catalogue.TRUST: examples.trust_report()}
"""Whole answers as examples; a product's own example is the start of one."""
_PAYMENT_HEADER: Final = {
    "name": "PAYMENT-SIGNATURE",
    "in": "header",
    "required": False,
    "description": "The signed x402 v2 payment, base64 of its JSON, at most 16 KB",
    "schema": {"type": "string"},
}
PAYMENT_REQUIRED: Final = "PAYMENT-SIGNATURE header is required"
"""The reason of a 402 to a request without a payment."""


class _NotByGetProblem(Problem):
    """405: a payment came where nothing is sold."""

    def __init__(self) -> None:
        super().__init__(
            405,
            "method-not-allowed",
            "This is sold by POST. Nothing was charged; send the payment with a POST request.",
        )

    def headers(self) -> dict[str, str]:
        """With the method that is allowed (RFC 9110 section 15.5.6)."""
        return super().headers() | {"Allow": "POST"}


def buy(product: Product, serve: Callable[[Request, Sale], Awaitable[Response]]) -> Handler:
    """The handler of POST: what the gate serves, counted and logged under the route's path."""

    async def handler(request: Request) -> Response:
        status = 500
        try:
            response = await serve(request, product.sale(_call(request)))
            status = response.status_code
            response = await compressed(request, response)
        except Problem as problem:
            status = problem.status
            raise
        finally:
            PAID_REQUESTS.labels(product.route, str(status)).inc()
            log().info("paid.request", route=product.route, status=status)
        return response

    return handler


def show_terms(product: Product) -> Handler:
    """The handler of GET: 402 with the route's terms."""

    async def handler(request: Request) -> Response:
        if "payment-signature" in request.headers:
            raise _NotByGetProblem
        return payment_required(product.sale(_call(request)), SOLD_BY_POST)

    return handler


def read_payment(header: str, offer: Offer) -> Payment:
    """The payment in a header, for a route with one offer. Raises Problem 431 or 400."""
    if len(header) > HEADER_MAX:
        raise Problem(431, "payment-header-too-large", f"Keep it under {HEADER_MAX} bytes.")
    try:
        return decode(header, (offer,))
    except PaymentHeaderError as error:
        raise Problem(400, "payment-header-invalid", str(error)) from error


async def read_body(request: Request, *, bodyless: bool = False) -> object:
    """The request's JSON document. Where it may be `bodyless`, no body is an empty object. Raises
    Problem 413 or 400.
    """
    body = await request.body()
    if not body and bodyless:
        return {}
    if not body:
        raise Problem(400, "json-invalid", "The body is empty: send a JSON object.")
    if len(body) > BODY_MAX:
        raise Problem(413, "body-too-large", f"Keep the body under {BODY_MAX} bytes.")
    try:
        return strictjson.loads(body)
    except strictjson.StrictJsonError as error:
        raise Problem(400, "json-invalid", str(error)) from error


def unpaid_reason(request: Request) -> str:
    """Why a request without `PAYMENT-SIGNATURE` is not paid, in words that a v1 client needs."""
    if "x-payment" in request.headers:
        return "This service takes x402 version 2: sign again and send PAYMENT-SIGNATURE."
    return PAYMENT_REQUIRED


def operation_suffix(product: Product) -> str:
    """The last part of a paid route's path, as operation ids have it."""
    return product.route.rsplit("/", 1)[-1].replace("-", "_")


def buy_answers(product: Product) -> openapi.Answers:
    """The answers to POST, for the interface description."""
    return openapi.paid(
        product.shape,
        _WHOLE_ANSWERS.get(product.route, product.answer),
        _payment_required_example(product),
        product.refusals,
    )


def terms_answers(product: Product) -> openapi.Answers:
    """The answers to GET, for the interface description."""
    return openapi.payment_preview(_payment_required_example(product) | {"error": SOLD_BY_POST})


def buy_description(product: Product) -> dict[str, Any]:
    """The request, its headers and its price, for the interface description."""
    settings = product.dependencies.settings
    return {
        **(_payment_info(settings.price(product.route)) if settings.pay_to else {}),
        "requestBody": product.request.body(product.example, required=not product.bodyless),
        "parameters": [_PAYMENT_HEADER, *product.path_parameters()],
    }


def _call(request: Request) -> Call:
    return Call(path=request.url.path, parameters=request.path_params)


def _payment_info(price: str) -> dict[str, Any]:
    """What directories read as "this is sold", hence left out while nothing is."""
    return {
        "x-payment-info": {
            "price": {"mode": "fixed", "currency": "USD", "amount": price},
            "protocols": [{"x402": {}}],
        }
    }


def _payment_required_example(product: Product) -> Any:
    """The body of 402 as JSON value, also where nothing is for sale yet."""
    dependencies = product.dependencies
    settings = replace(
        dependencies.settings, pay_to=dependencies.settings.pay_to or examples.PAY_TO
    )
    sale = replace(product, dependencies=replace(dependencies, settings=settings)).sale()
    return orjson.loads(bytes(payment_required(sale, PAYMENT_REQUIRED).body))
