"""What every paid route shares: its offer, its words for directories.

Each thing that is sold is a Product in web/paid/products, at a price of web/paid/prices; the gate
(web/paid/gate) validates its request before it takes a payment and calls its `compute` after it has
verified one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import orjson
from sqlalchemy import Connection

from tollgauge.clients.chain.transactions import Transactions
from tollgauge.clients.seal import Sealer
from tollgauge.core.base.units import Clock, known_asset
from tollgauge.core.endpoint.identity import Perimeter
from tollgauge.core.sale.answer_signature import SigningKey, Typ
from tollgauge.core.sale.payment import Offer
from tollgauge.db.engine import ReadOnlyStore
from tollgauge.monitor.alternatives import Alternatives
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.claim import HeldClaim
from tollgauge.web.paid.live_probe import LiveProbe
from tollgauge.web.paid.prices import SaleSettings
from tollgauge.web.paid.tool_spec import ToolSpec
from tollgauge.web.paid.waiting import Waiting
from tollgauge.web.signing import signature_header
from tollgauge.web.wire.request_model import RequestModel
from tollgauge.web.wire.shape import Shape

_EXAMPLE_MAX: Final = 360
"""Bytes of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidDependencies:
    """What the paid routes need to make their answers. They write under a claim alone. Without a
    `signing_key` nothing is signed. `deliveries` are the tests of destinations in work.
    """

    store: ReadOnlyStore
    live: LiveProbe
    deliveries: Waiting
    clock: Clock
    settings: SaleSettings
    base_url: str
    perimeter: Perimeter
    alternatives: Alternatives
    sealer: Sealer
    transactions: Transactions
    signing_key: SigningKey | None

    def offer(self, route: str, path: str = "") -> Offer:
        """What a route asks, at its concrete path where it has parameters. Raises Problem 503
        while nothing can be sold.
        """
        asset = known_asset(self.settings.network, self.settings.asset)
        if not self.settings.pay_to or asset is None:
            raise Problem(
                503,
                "not-for-sale",
                "This server has no payTo address configured, so it sells nothing. "
                "Nothing was charged.",
                retry_after=3600,
            )
        return Offer(
            route=route,
            resource=f"{self.base_url}{path or route}",
            network=self.settings.network,
            asset=self.settings.asset,
            amount=self.settings.micro_usd(route),
            pay_to=self.settings.pay_to,
            domain_name=asset.domain_name,
            domain_version=asset.domain_version,
            timeout_seconds=self.settings.timeout_seconds,
        )


class Reveal(Protocol):
    """Makes what leaves of an answer that holds a secret."""

    def __call__(self, body: bytes, /, *, secret: bool) -> Awaitable[bytes]:
        """The answer's JSON bytes; `secret` says whether the secret may be in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """What a paid route sells: its offer, its words, and how to make the answer.

    `validate` turns the parsed body into the route's order or raises Problem 422; `compute` makes
    the whole answer's JSON bytes under the payment's claim, or raises Problem. `bazaar` is the
    extension of that name, which describes input and output to directories. Where `bodyless`, no
    body is an empty object.

    An answer that holds a secret has `reveal`, which turns what the ledger keeps into what leaves,
    with the secret or without it. `hosts` are those that an order has us connect to. `check` runs
    in the transaction of the claim: it raises Problem for an order that cannot be served now, and
    what it returns is the `seen` of the claim under which the answer is made. `headers` are those
    that the answer of a settled payment has beside its receipt.
    """

    offer: Offer
    description: str
    validate: Callable[[object], object]
    compute: Callable[[object, HeldClaim], Awaitable[bytes]]
    bazaar: dict[str, Any] = field(default_factory=dict)
    bodyless: bool = False
    reveal: Reveal | None = None
    hosts: Callable[[Any], tuple[str, ...]] = lambda _order: ()
    check: Callable[[Connection, Any], object] = lambda _tx, _order: None
    headers: Callable[[LedgerRow], Mapping[str, str]] = lambda _row: {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a paid route, beside its body: its path and the path's parameters."""

    path: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One paid route: its words, its request and answer for the interface description and for
    directories, and how its answer is made.

    `request` is the model of the request, `example` a request and `answer` the start of an answer,
    `shape` the model of the whole answer, `refusals` what the route's own problem statuses mean,
    `parameters` those of its path (name, pattern, example). `prepare` turns a valid request into
    the route's order before a payment is taken, or raises Problem; `compute` makes the whole
    answer's JSON bytes under the payment's claim, or raises one. `reveal`, `hosts` and `check` are
    those of the sale. An answer with a `typ` is signed as that (docs/signatures.md). `tool` is how
    agents buy it over MCP.
    """

    dependencies: PaidDependencies
    route: str
    summary: str
    description: str
    request: type[RequestModel]
    example: dict[str, Any]
    answer: dict[str, Any]
    shape: type[Shape]
    compute: Callable[[Any, HeldClaim], Awaitable[bytes]]
    tool: ToolSpec
    refusals: Mapping[int, str] = field(default_factory=dict)
    prepare: Callable[[Any, Call | None], object] = lambda request, _call: request
    parameters: tuple[tuple[str, str, str], ...] = ()
    reveal: Reveal | None = None
    hosts: Callable[[Any], tuple[str, ...]] = lambda _order: ()
    check: Callable[[Connection, Any], object] = lambda _tx, _order: None
    typ: Typ | None = None

    def sale(self, call: Call | None = None) -> Sale:
        """What the gate serves, of one call where the product places its orders. Raises Problem
        503 while nothing can be sold.
        """
        request = {"type": "http", "method": "POST", "bodyType": "json", "body": self.example}
        return Sale(
            offer=self.dependencies.offer(self.route, call.path if call else ""),
            description=self.description,
            validate=partial(self._order, call),
            compute=self.compute,
            bazaar={
                "info": {
                    "input": request,
                    "output": {"type": "json", "example": beginning(self.answer)},
                },
                "schema": _bazaar_schema(self.request.json_schema()),
            },
            bodyless=self.bodyless,
            reveal=self.reveal,
            hosts=self.hosts,
            check=self.check,
            headers=self._signature,
        )

    @property
    def bodyless(self) -> bool:
        """Whether a request needs no body: there is nothing to say in it."""
        return not self.request.model_fields

    def path_parameters(self) -> list[dict[str, Any]]:
        """The parameters of the path as OpenAPI has them."""
        return [
            {
                "name": name,
                "in": "path",
                "required": True,
                "description": f"The {name} that an earlier answer named",
                "schema": {"type": "string", "pattern": pattern, "examples": [example]},
            }
            for name, pattern, example in self.parameters
        ]

    def _signature(self, row: LedgerRow) -> dict[str, str]:
        """The signature of a stored answer, bound to its payment. It is made whenever the answer
        leaves, so that it always is one of the key that signs now.
        """
        if self.typ is None or row.answer is None:
            return {}
        bound = {"requestDigest": row.digest, "payer": row.payer, "nonce": row.nonce}
        key, now = self.dependencies.signing_key, self.dependencies.clock()
        return signature_header(key, row.answer.body, self.typ, now, **bound)

    def _order(self, call: Call | None, document: object) -> object:
        given = {} if document is None and self.bodyless else document
        request = self.request.read(given, self.dependencies.perimeter)
        return self.prepare(request, call)


def beginning(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The first fields of an answer, as many as a header has room for: what directories read is in
    a header, clients repeat it in their payment's, and many proxies take no more than 8 KB.
    """
    fields: dict[str, Any] = {}
    for name, value in answer.items():
        if len(orjson.dumps(fields | {name: value})) > _EXAMPLE_MAX:
            break
        fields[name] = value
    return fields


def _bazaar_schema(body: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a sale's input and output, as the bazaar extension wants it."""
    call = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "const": "http"},
            "method": {"type": "string", "enum": ["POST"]},
            "bodyType": {"type": "string", "const": "json"},
            "body": body,
        },
        "required": ["type", "method", "bodyType", "body"],
        "additionalProperties": False,
    }
    output = {
        "type": "object",
        "properties": {"type": {"type": "string"}, "example": {"type": "object"}},
        "required": ["type"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"input": call, "output": output},
        "required": ["input"],
    }
