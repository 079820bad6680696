"""Reads a paid request: its payment header and its JSON body.

Both are read strictly: what two parsers could take for two things is refused, because a payment is
bound to the bytes of its request.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from tollgauge.core import strictjson
from tollgauge.core.payment import HEADER_MAX, Offer, Payment, PaymentHeaderError, decode
from tollgauge.web.edge.limits import BODY_MAX
from tollgauge.web.edge.problem import Problem

PAYMENT_REQUIRED: Final = "PAYMENT-SIGNATURE header is required"
"""The reason of a 402 to a request without a payment."""


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
