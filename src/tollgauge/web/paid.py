"""What every paid route shares: its price, its offer, its words for directories.

Prices live in one table of the configuration. Each thing that is sold is a Product in
web/products; the gate (web/paywall) calls its `validate` before it takes a payment and its
`compute` after it has verified one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

from tollgauge.alternatives import Alternatives
from tollgauge.clients.seal import Sealer
from tollgauge.clients.transactions import Transactions
from tollgauge.core.endpoint import Perimeter, Resource, ResourceError, parse_resource
from tollgauge.core.payment import Offer
from tollgauge.core.units import known_asset
from tollgauge.store.engine import Store
from tollgauge.web import wire
from tollgauge.web.incoming import read_payment
from tollgauge.web.live import LiveProbe
from tollgauge.web.problem import Invalid, Problem
from tollgauge.web.sale import Sale

TRUST: Final = "/v1/x402-trust"
HISTORY: Final = "/v1/x402-history"
TRACE: Final = "/v1/x402-payment-trace"
SIMILAR: Final = "/v1/similar"
WATCH: Final = "/v1/watch-endpoint-30d"
RENEW: Final = "/v1/watch/{id}/renew"
PRICES: Final[Mapping[str, str]] = {
    TRUST: "0.005000",
    HISTORY: "0.020000",
    TRACE: "0.011673",
    SIMILAR: "0.005000",
    WATCH: "0.200000",
    RENEW: "0.200000",
}
"""Default prices in dollars by route (contract.md section 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaleSettings:
    """Where money goes and what things cost.

    `pay_to` is the receiving address; while it is empty nothing is for sale. `asset` is native
    USDC of `network`. `prices` maps routes to dollars as text; a route that is left out keeps its
    default. Raises ValueError for a price that is no positive amount of six decimals.
    """

    pay_to: str = ""
    network: str = "eip155:8453"
    asset: str = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
    timeout_seconds: int = 300
    prices: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for route, text in self.prices.items():
            if route not in PRICES:
                raise ValueError(f"prices: {route} is not a paid route")
            micro_usd(text)

    def price(self, route: str) -> str:
        """A route's price in dollars, as text with six decimals."""
        amount = micro_usd(self.prices.get(route, PRICES[route]))
        return f"{amount // 10**6}.{amount % 10**6:06d}"


def micro_usd(text: str) -> int:
    """Millionths of a dollar of a price's text. Raises ValueError."""
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"prices: {text!r} is not an amount in dollars") from error
    scaled = value * 10**6
    if not value.is_finite() or scaled != scaled.to_integral_value() or scaled <= 0:
        raise ValueError(f"prices: {text!r} is not a positive amount with at most six decimals")
    return int(scaled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What the paid routes need to make their answers."""

    store: Store
    live: LiveProbe
    clock: Callable[[], int]
    settings: SaleSettings
    base_url: str
    perimeter: Perimeter
    alternatives: Alternatives = field(default_factory=Alternatives)
    sealer: Sealer = field(default_factory=lambda: Sealer(()))
    transactions: Transactions = field(default_factory=Transactions)

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
            amount=micro_usd(self.settings.price(route)),
            pay_to=self.settings.pay_to,
            domain_name=asset.domain_name,
            domain_version=asset.domain_version,
            timeout_seconds=self.settings.timeout_seconds,
        )


def resource_of(value: object, perimeter: Perimeter) -> Resource:
    """The resource of a request's field, or Problem 422."""
    if value is None:
        raise invalid("resource", "The resource is missing.")
    try:
        return parse_resource(value, perimeter)
    except ResourceError as error:
        raise Problem(
            422,
            error.code,
            f"{error} {error.hint}",
            errors=(Invalid(path="resource", message=str(error)),),
        ) from error


def invalid(path: str, message: str) -> Problem:
    """Problem 422 about one part of the input."""
    return Problem(422, "invalid-input", message, errors=(Invalid(path=path, message=message),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a paid route, beside its body: its path, the path's parameters, and the
    payment header as it came.
    """

    path: str
    parameters: Mapping[str, str]
    header: str | None

    @property
    def payment_id(self) -> str:
        """The ledger's id of the payment. Raises Problem 400."""
        return read_payment(self.header or "").id


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One paid route: its words, its request and answer for the interface description and for
    directories, and how its answer is made.

    `body` is the JSON Schema of the request, `example` a request and `answer` the start of an
    answer, `shape` the model of the whole answer, `refusals` what the route's own problem statuses
    mean. `validate` turns the parsed body into the route's order or raises Problem; `compute`
    makes the whole answer's JSON bytes or raises one.

    A route whose path has `parameters` (name, pattern, example) or that must know its payment
    has `place`, which finishes an order from the call. `reveal` turns what was stored of an
    answer into what leaves.
    """

    shop: Shop
    route: str
    summary: str
    description: str
    body: dict[str, Any]
    example: dict[str, Any]
    answer: dict[str, Any]
    shape: type[wire.Shape]
    validate: Callable[[object], object]
    compute: Callable[[Any], Awaitable[bytes]]
    refusals: Mapping[int, str] = field(default_factory=dict)
    place: Callable[[object, Call], object] | None = None
    parameters: tuple[tuple[str, str, str], ...] = ()
    reveal: Callable[[bytes], bytes] | None = None

    def sale(self, made: Call | None = None) -> Sale:
        """What the gate serves, of one call where the product places its orders. Raises Problem
        503 while nothing can be sold.
        """
        validate = self.validate
        if self.place is not None and made is not None:
            validate = partial(self._placed, made)
        call = {"type": "http", "method": "POST", "bodyType": "json", "body": self.example}
        return Sale(
            offer=self.shop.offer(self.route, made.path if made else ""),
            description=self.description,
            validate=validate,
            compute=self.compute,
            info={"input": call, "output": {"type": "json", "example": self.answer}},
            schema=_bazaar_schema(self.body),
        )

    def _placed(self, made: Call, document: object) -> object:
        order = self.validate(document)
        return self.place(order, made) if self.place is not None else order


def _bazaar_schema(body: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a sale's `info`, as the bazaar extension wants it."""
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


def resource_field() -> dict[str, Any]:
    """The JSON Schema of a request's `resource`."""
    return {
        "type": "string",
        "minLength": 9,
        "maxLength": 2048,
        "pattern": "^https://",
        "description": "Full endpoint URL starting with https://, as listed in discovery",
    }
