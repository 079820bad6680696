"""Sale: what a paid route sells, and its terms as x402 v2 says them."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson
from sqlalchemy import Connection
from starlette.responses import Response
from x402.schemas import PaymentRequired, PaymentRequirements, ResourceInfo

from tollgauge.core.payment import EXTENSION, Offer
from tollgauge.web.paid.claim import HeldClaim

TICKET_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"ticket": {"type": "string"}},
    "required": ["ticket"],
}


class Reveal(Protocol):
    """Makes what leaves of an answer that holds a secret."""

    def __call__(self, body: bytes, /, *, secret: bool) -> Awaitable[bytes]:
        """The answer's JSON bytes; `secret` says whether the secret may be in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """What a paid route sells: its offer, its words, and how to make the answer.

    `validate` turns the parsed body into the route's request or raises Problem 422; `compute`
    makes the whole answer's JSON bytes under the payment's claim, or raises Problem. `info` and
    `schema` describe input and output to directories (the `bazaar` extension). Where `bodyless`,
    no body is an empty object.

    An answer that holds a secret has `reveal`, which turns what the ledger keeps into what leaves,
    with the secret or without it. `hosts` are those that an order has us connect to, and `check`
    raises Problem, in the transaction of the claim, for an order that cannot be served now.
    """

    offer: Offer
    description: str
    validate: Callable[[object], object]
    compute: Callable[[object, HeldClaim], Awaitable[bytes]]
    info: dict[str, object] = field(default_factory=dict)
    schema: dict[str, object] = field(default_factory=dict)
    tags: tuple[str, ...] = ("x402", "trust", "reliability")
    bodyless: bool = False
    reveal: Reveal | None = None
    hosts: Callable[[Any], tuple[str, ...]] = lambda _order: ()
    check: Callable[[Connection, Any], None] = lambda _tx, _order: None


def _ticket() -> dict[str, object]:
    """A random text that clients repeat in their payment (x402 v2, extensions). What they signed
    is public once it settled; the stored answer goes to those alone who know this too.
    """
    return {"info": {"ticket": secrets.token_urlsafe(16)}, "schema": TICKET_SCHEMA}


def payment_required(sale: Sale, reason: str) -> Response:
    """402: the terms in `PAYMENT-REQUIRED` and in the body, with the reason and a new ticket."""
    extensions: dict[str, object] = {EXTENSION: _ticket()}
    if sale.info:
        extensions["bazaar"] = {"info": sale.info, "schema": sale.schema}
    document = PaymentRequired(
        error=reason,
        resource=ResourceInfo(
            url=sale.offer.resource,
            description=sale.description,
            mime_type="application/json",
            service_name="tollgauge",
            tags=list(sale.tags),
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
