"""Incoming: the payment, the document and the query of a request, read by strict rules."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from tollgauge.core import strictjson
from tollgauge.core.payment import HEADER_MAX, Offer, Payment, PaymentHeaderError, decode
from tollgauge.core.text import clean_text
from tollgauge.web.edge.problem import Invalid, Problem

BODY_MAX: Final = 65_536
_NAME_MAX: Final = 64


def read_payment(header: str, offer: Offer) -> Payment:
    """The payment of a header to a route with one offer, or Problem 431 or 400."""
    if len(header) > HEADER_MAX:
        raise Problem(431, "payment-header-too-large", f"Keep it under {HEADER_MAX} bytes.")
    try:
        return decode(header, (offer,))
    except PaymentHeaderError as error:
        raise Problem(400, "payment-header-invalid", str(error)) from error


async def read_body(request: Request, *, bodyless: bool = False) -> object:
    """The request's JSON document, or Problem 413 or 400. Where it may be `bodyless`, no body is
    an empty object.
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


def check_query(request: Request) -> None:
    """Refuse a query parameter that the route does not take: it was meant for something, and the
    answer would be another than the one that was asked for. A dependency of routers (FastAPI).
    Raises Problem 422.
    """
    known = [each.alias for each in request.scope["route"].dependant.query_params]
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is None:
        return
    shown = clean_text(unknown, limit=_NAME_MAX)
    takes = "This route takes no parameters."
    if known:
        takes = f"This route takes {', '.join(known)}; in a value write & as %26."
    message = f"There is no parameter {shown}. {takes}"
    raise Problem(422, "unknown-parameter", message, errors=(Invalid(path=shown, message=message),))


def unpaid_reason(request: Request) -> str:
    """Why a request without `PAYMENT-SIGNATURE` is not paid, in words that a v1 client needs."""
    if "x-payment" in request.headers:
        return "This service takes x402 version 2: sign again and send PAYMENT-SIGNATURE."
    return "PAYMENT-SIGNATURE header is required"
