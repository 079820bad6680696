"""A paid route in HTTP: its handlers, how a request is read and answered, and how both are
described.

POST buys through the gate. GET shows the terms: directories and linters ask with GET first, and
only a 402 shows them that something is sold here. Nothing is sold by GET: a payment in a GET
request is refused with 405 and stays unused.

The payment header and the body are parsed strictly, because a payment is bound to the bytes of its
request: input that two parsers could read differently is refused.

The answer to a payment follows from the state of its row in the ledger (docs/payments.md). 402
means that the payment took nothing, because it makes clients sign and pay again; 503 means that the
outcome is not known yet.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from x402.schemas import PaymentRequired, PaymentRequirements, ResourceInfo, SettleResponse

from tollgauge.core.sale.payment import (
    EXTENSION,
    HEADER_MAX,
    SETTLED_UNKNOWN,
    Offer,
    Payment,
    PaymentHeaderError,
    decode,
)
from tollgauge.core.sale.payment_state import NEVER_PAID, State
from tollgauge.observe import PAID_REQUESTS, log
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.web.edge.messages import compress_response, payment_header_too_large
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.admission import pause_s
from tollgauge.web.paid.product import Call, PaidDependencies, Product
from tollgauge.web.paid.sale import Sale, SaleSettings
from tollgauge.web.wire import examples, openapi

Handler = Callable[[Request], Awaitable[Response]]

SOLD_BY_POST: Final = "This is sold by POST: send the request as JSON, with PAYMENT-SIGNATURE"
_PAYMENT_HEADER: Final = {
    "name": "PAYMENT-SIGNATURE",
    "in": "header",
    "required": False,
    "description": "The signed x402 v2 payment, base64 of its JSON, at most 16 KB",
    "schema": {"type": "string"},
}
PAYMENT_REQUIRED: Final = "PAYMENT-SIGNATURE header is required"
"""The reason of a 402 to a request without a payment."""


def buy(
    product: Product,
    dependencies: PaidDependencies,
    serve: Callable[[Request, Sale], Awaitable[Response]],
) -> Handler:
    """Return the handler of POST. It counts and logs the gate's responses by the route's path."""

    async def handler(request: Request) -> Response:
        status = 500
        try:
            response = await serve(request, product.sale(dependencies, _call(request)))
            status = response.status_code
            response = await compress_response(request, response)
        except Problem as problem:
            status = problem.status
            raise
        finally:
            PAID_REQUESTS.labels(product.path, str(status)).inc()
            log().info("paid.request", route=product.path, status=status)
        return response

    return handler


def show_terms(product: Product, dependencies: PaidDependencies) -> Handler:
    """Return the handler of GET: 402 with the route's terms."""

    async def handler(request: Request) -> Response:
        if "payment-signature" in request.headers:
            raise Problem(
                405,
                "method-not-allowed",
                "This is sold by POST. Nothing was charged; send the payment with a POST request.",
                headers={"Allow": "POST"},
            )
        return payment_required(product.sale(dependencies, _call(request)), SOLD_BY_POST)

    return handler


def read_payment(header: str, offer: Offer) -> Payment:
    """The payment in a header, for a route with one offer. Raises Problem 431 or 400."""
    if len(header) > HEADER_MAX:
        raise payment_header_too_large()
    try:
        return decode(header, (offer,))
    except PaymentHeaderError as error:
        raise Problem(400, "payment-header-invalid", str(error)) from error


def unpaid_reason(request: Request) -> str:
    """Return the reason of a 402 to a request without `PAYMENT-SIGNATURE`; v1 clients get help."""
    if "x-payment" in request.headers:
        return "This service takes x402 version 2: sign again and send PAYMENT-SIGNATURE."
    return PAYMENT_REQUIRED


def _ticket() -> dict[str, object]:
    """A random text that clients repeat in their payment (x402 v2, extensions). A signed payment is
    public once it has settled; the stored answer is only sent to clients that know the ticket.
    """
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"ticket": text}, "required": ["ticket"]}
    return {"info": {"ticket": secrets.token_urlsafe(16)}, "schema": schema}


def payment_required(sale: Sale, reason: str) -> Response:
    """402: the terms in `PAYMENT-REQUIRED` and in the body, with the reason and a new ticket."""
    extensions: dict[str, object] = {EXTENSION: _ticket()}
    if sale.bazaar:
        extensions["bazaar"] = sale.bazaar
    document = PaymentRequired(
        error=reason,
        resource=ResourceInfo(
            url=sale.offer.resource,
            description=sale.description,
            mime_type="application/json",
            service_name="tollgauge",
            tags=["x402", "trust", "reliability"],
        ),
        accepts=[PaymentRequirements.model_validate(sale.offer.requirements)],
        extensions=extensions,
    ).model_dump(by_alias=True, exclude_none=True)
    body = orjson.dumps(document)
    return Response(
        body,
        status_code=402,
        media_type="application/json",
        headers={
            "PAYMENT-REQUIRED": base64.b64encode(body).decode(),
            "Cache-Control": "no-store",
        },
    )


def response_for(sale: Sale, row: LedgerRow) -> Response:
    """Return the answer that a row's state allows, or a 402 if the payment took nothing. Raises
    Problem 503 while the outcome is unknown, and 410 if the stored answer has been deleted.
    """
    if row.state is State.SETTLED:
        return _stored_answer(sale, row)
    if row.state in NEVER_PAID:
        return payment_required(sale, f"payment_{row.state.value}")
    if row.state is State.REJECTED:
        raise Problem(
            503,
            "payment-released",
            "Another request with this payment just failed. Nothing was charged; send the same "
            "request again.",
            retry_after=1,
        )
    raise payment_pending(row.id, row.transaction)


def _stored_answer(sale: Sale, row: LedgerRow) -> Response:
    """A paid answer with its receipt (x402 v2, `PAYMENT-RESPONSE`) and the sale's own headers."""
    if row.answer is None:
        raise Problem(410, "answer-expired", "This payment's answer was kept for 30 days.")
    receipt = SettleResponse(
        success=True,
        transaction=row.transaction or "",
        network=row.network,
        payer=row.payer,
        amount=str(row.amount),
    ).model_dump_json(by_alias=True, exclude_none=True)
    return Response(
        row.answer.body,
        status_code=row.answer.status,
        media_type="application/json",
        headers={
            "PAYMENT-RESPONSE": base64.b64encode(receipt.encode()).decode(),
            "Cache-Control": "no-store",
            "Vary": "PAYMENT-SIGNATURE",
            **sale.headers(row),
        },
    )


def payment_pending(payment_id: str, transaction: str | None = None) -> Problem:
    """503: the outcome of a payment is not known yet."""
    return Problem(
        503,
        "payment-pending",
        "This payment's settlement is not known yet. Do not pay again: send the same request "
        "with the same payment until it is answered.",
        retry_after=pause_s(payment_id),
        extra={"paymentId": payment_id, "transaction": transaction},
    )


def check_same_request(payment: Payment, row: LedgerRow, digest: str) -> None:
    """Check that a repeated payment has the same payer (signature and ticket) and pays for the same
    request (`digest`). A rejected row holds no payment. Raises Problem 409.
    """
    if row.state is State.REJECTED:
        return
    # A settled signature proves nothing, because anyone can read it on the chain; only the payer
    # knows the ticket.
    stored = decode(row.header)
    same_payer = (stored.signer_mark, stored.ticket) == (payment.signer_mark, payment.ticket)
    if row.digest != digest or not same_payer:
        raise Problem(
            409,
            "payment-reused",
            "This payment already pays for another request. Sign a new payment.",
        )


def facilitator_unavailable(payment_id: str) -> Problem:
    """503: this payment cannot be verified now."""
    return Problem(
        503,
        "facilitator-unavailable",
        "The payment could not be verified because our facilitator did not answer. "
        "Nothing was charged; send the same request again.",
        retry_after=pause_s(payment_id, 10),
    )


def chain_unavailable() -> Problem:
    """503: whether a refused payment has paid cannot be checked."""
    return Problem(
        503,
        "chain-unavailable",
        "This payment was refused, and we cannot check on chain whether it was used before. Do not "
        "pay again: send the same request with the same payment later.",
        retry_after=5,
    )


def unknown_settlement(payment_id: str, transaction: str | None, contact: str) -> Problem:
    """409: the chain shows that a payment has paid us, and the ledger has no sale for it."""
    ask = f"Contact {contact}" if contact else "Contact the operator of this service"
    return Problem(
        409,
        SETTLED_UNKNOWN,
        "This payment was settled on chain, but this service has no record of a sale for it. Do "
        f"not pay again. {ask} and name the transaction; nothing is refunded automatically.",
        extra={"paymentId": payment_id, "transaction": transaction, "contact": contact or None},
    )


def buyer_first(head_start_s: int) -> Problem:
    """503 for a copy that came while the request that bought is being answered."""
    return Problem(
        503,
        "payment-in-flight",
        "The request that this payment was first sent with is being answered. Do not pay again: "
        "send the same request with the same payment in a few seconds.",
        retry_after=head_start_s,
    )


def operation_suffix(product: Product) -> str:
    """The last part of a paid route's path, as operation ids have it."""
    return product.path.rsplit("/", 1)[-1].replace("-", "_")


def example_terms(product: Product, dependencies: PaidDependencies) -> dict[str, Any]:
    """Return the body of 402 as JSON value, even if nothing is for sale yet."""
    settings = replace(
        dependencies.settings, pay_to=dependencies.settings.pay_to or examples.PAY_TO
    )
    sale = product.sale(replace(dependencies, settings=settings))
    document: dict[str, Any] = orjson.loads(bytes(payment_required(sale, PAYMENT_REQUIRED).body))
    # Fixed: a random ticket would give every process another /openapi.json with another ETag.
    document["extensions"][EXTENSION]["info"]["ticket"] = examples.TICKET
    return document


def buy_answers(product: Product, terms: dict[str, Any]) -> openapi.Answers:
    """Return the answers to POST, for the interface description."""
    answers = openapi.describe_paid(
        product.response,
        product.whole_answer or product.answer,
        terms,
        product.refusals,
    )
    return openapi.add_signature(answers) if product.typ else answers


def terms_answers(terms: dict[str, Any]) -> openapi.Answers:
    """Return the answers to GET, for the interface description."""
    return openapi.payment_preview(terms | {"error": SOLD_BY_POST})


def buy_description(product: Product, settings: SaleSettings) -> dict[str, Any]:
    """Return the request, its headers and its price, for the interface description."""
    price = {"mode": "fixed", "currency": "USD", "amount": product.dollars(settings)}
    # Directories recognize paid routes by this extension.
    info = {"x-payment-info": {"price": price, "protocols": [{"x402": {}}]}}
    return {
        **(info if settings.pay_to else {}),
        "requestBody": product.request.body(product.example, required=not product.bodyless),
        "parameters": [_PAYMENT_HEADER, *product.parameters],
    }


def _call(request: Request) -> Call:
    return Call(path=request.url.path, parameters=request.path_params)
