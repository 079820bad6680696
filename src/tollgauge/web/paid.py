"""What is sold: each paid route's offer, its words for directories, and how its answer is made.

Prices live in one table of the configuration. The gate (web/paywall) calls `validate` before it
takes a payment and `compute` after it has verified one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from tollgauge import reports
from tollgauge.core.endpoint import Perimeter, Resource, ResourceError, parse_resource
from tollgauge.core.payment import Offer
from tollgauge.core.units import known_asset
from tollgauge.store.engine import Store
from tollgauge.web import wire
from tollgauge.web.live import LiveProbe
from tollgauge.web.paywall import Sale
from tollgauge.web.problem import Invalid, Problem

TRUST: Final = "/v1/x402-trust"
PRICES: Final[Mapping[str, str]] = {TRUST: "0.005000"}
"""Default prices in dollars by route (contract.md section 2)."""

TRUST_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["resource"],
    "properties": {
        "resource": {
            "type": "string",
            "minLength": 9,
            "maxLength": 2048,
            "pattern": "^https://",
            "description": "Full endpoint URL starting with https://, as listed in discovery",
        }
    },
}
TRUST_EXAMPLE: Final[dict[str, Any]] = {"resource": "https://api.example.com/weather"}


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
class Product:
    """One paid route: its words, its request and answer for the interface description, and the
    sale that the gate serves. `sale` raises Problem 503 while nothing can be sold.
    """

    route: str
    summary: str
    body: dict[str, Any]
    example: dict[str, Any]
    shape: type[wire.Shape]
    sale: Callable[[], Sale]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What the paid routes need to make their answers."""

    store: Store
    live: LiveProbe
    clock: Callable[[], int]
    settings: SaleSettings
    base_url: str
    perimeter: Perimeter

    def products(self) -> tuple[Product, ...]:
        """Everything that is sold."""
        return (
            Product(
                route=TRUST,
                summary="The live-probed trust report of an endpoint",
                body=TRUST_SCHEMA,
                example=TRUST_EXAMPLE,
                shape=wire.TrustReportShape,
                sale=self.trust,
            ),
        )

    def trust(self) -> Sale:
        """`POST /v1/x402-trust`: the live-probed trust report."""
        return Sale(
            offer=self._offer(TRUST),
            description="Trust report of a pay-per-call (x402) endpoint, from a live probe: "
            "score 0 to 100, grade, breakdown, flags, price and payTo history, settlements.",
            validate=self._trust_order,
            compute=self._trust_answer,
            info={
                "input": {
                    "type": "http",
                    "method": "POST",
                    "bodyType": "json",
                    "body": TRUST_EXAMPLE,
                },
                "output": {
                    "type": "json",
                    "example": {"resource": TRUST_EXAMPLE["resource"], "score": 84.2, "grade": "A"},
                },
            },
            schema=_bazaar_schema(TRUST_SCHEMA),
        )

    def _trust_order(self, document: object) -> Resource:
        if not isinstance(document, dict):
            raise _invalid("", "The body must be a JSON object.")
        return resource_of(document.get("resource"), self.perimeter)

    async def _trust_answer(self, order: object) -> bytes:
        assert isinstance(order, Resource)  # noqa: S101 - what _trust_order returned
        endpoint, probe = await self.live.look(order)
        async with self.store.read() as tx:
            report = await reports.live(tx, endpoint, probe, now=self.clock())
        return wire.dump(wire.trust_report(report))

    def _offer(self, route: str) -> Offer:
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
            resource=f"{self.base_url}{route}",
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
        raise _invalid("resource", "The resource is missing.")
    try:
        return parse_resource(value, perimeter)
    except ResourceError as error:
        raise Problem(
            422,
            error.code,
            f"{error} {error.hint}",
            errors=(Invalid(path="resource", message=str(error)),),
        ) from error


def _invalid(path: str, message: str) -> Problem:
    return Problem(422, "invalid-input", message, errors=(Invalid(path=path, message=message),))


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
