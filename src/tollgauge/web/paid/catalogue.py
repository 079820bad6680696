"""What every paid route shares: its price, its offer, its words for directories.

Prices live in one table of the configuration. Each thing that is sold is a Product in
web/paid/products; the gate (web/paid/gate) calls its `validate` before it takes a payment and its
`compute` after it has verified one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final

import orjson
from pydantic import AfterValidator
from pydantic.dataclasses import dataclass as pydantic_dataclass
from sqlalchemy import Connection

from tollgauge.clients.chain.transactions import Transactions
from tollgauge.clients.seal import Sealer
from tollgauge.core.endpoint import Perimeter, Resource, ResourceError, parse_resource
from tollgauge.core.payment import Offer
from tollgauge.core.text import clean_text
from tollgauge.core.units import known_asset
from tollgauge.db.engine import ReadOnlyStore
from tollgauge.monitor.alternatives import Alternatives
from tollgauge.web import wire
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.paid.claim import HeldClaim
from tollgauge.web.paid.live_probe import LiveProbe
from tollgauge.web.paid.payment_terms import Reveal, Sale

TRUST: Final = "/v1/x402-trust"
HISTORY: Final = "/v1/x402-history"
TRACE: Final = "/v1/x402-payment-trace"
SIMILAR: Final = "/v1/similar"
WATCH: Final = "/v1/watch-endpoint-30d"
RENEW: Final = "/v1/watch/{id}/renew"
BULK: Final[Mapping[int, str]] = {
    tier: f"/v1/x402-trust-bulk-{tier}" for tier in (10, 50, 100, 200, 500)
}
"""Routes of bulk scores by how many resources they take at most, smallest first."""
PRICES: Final[Mapping[str, str]] = {
    TRUST: "0.005000",
    BULK[10]: "0.045000",
    BULK[50]: "0.200000",
    BULK[100]: "0.325000",
    BULK[200]: "0.400000",
    BULK[500]: "0.500000",
    HISTORY: "0.020000",
    TRACE: "0.011673",
    SIMILAR: "0.005000",
    WATCH: "0.200000",
    RENEW: "0.200000",
}
"""Default prices in dollars by route."""
FIELDS: Final = (
    "Fields that the schema does not name are ignored, except one whose name nearly is a field's "
    "that is not given (`day` for `days`), or that belongs inside another field: such a request "
    "is refused with 422 and costs nothing."
)
"""What becomes of unknown fields, for the interface description."""
_EVM_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_NEAR: Final = 0.75
"""How much of two names must agree (difflib's ratio) for one to be the other, misspelt."""
_NAME_MAX: Final = 64
_EXAMPLE_MAX: Final = 360
"""Bytes of JSON."""
_UNKNOWN_MAX: Final = 50
"""How many unknown names are looked at; more is no misspelling, and would only cost time."""


def micro_usd(text: str) -> int:
    """Millionths of a dollar of a price's text. Raises ValueError."""
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not an amount in dollars") from error
    scaled = value * 10**6
    if not value.is_finite() or scaled != scaled.to_integral_value() or scaled <= 0:
        raise ValueError(f"{text!r} is not a positive amount with at most six decimals")
    return int(scaled)


def _pay_to(address: str) -> str:
    if address and not _EVM_ADDRESS.fullmatch(address):
        raise ValueError("must be an address: 0x and 40 hex digits")
    return address


def _prices(prices: Mapping[str, str]) -> Mapping[str, str]:
    for route, text in prices.items():
        if route not in PRICES:
            raise ValueError(f"{route} is not a paid route")
        micro_usd(text)
    return prices


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class SaleSettings:
    """Where money goes and what things cost.

    `pay_to` is the receiving address; while it is empty nothing is for sale. `asset` is native
    USDC of `network`. `prices` maps routes to dollars as text; a route that is left out keeps its
    default.
    """

    pay_to: Annotated[str, AfterValidator(_pay_to)] = ""
    network: str = "eip155:8453"
    asset: str = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
    timeout_seconds: int = 300
    prices: Annotated[Mapping[str, str], AfterValidator(_prices)] = field(default_factory=dict)

    def __post_init__(self) -> None:
        token = known_asset(self.network, self.asset)
        if token is None or token.symbol != "USDC" or not token.eip3009:
            raise ValueError("asset is not native USDC of network")

    def price(self, route: str) -> str:
        """A route's price in dollars, as text with six decimals."""
        amount = self.micro_usd(route)
        return f"{amount // 10**6}.{amount % 10**6:06d}"

    def micro_usd(self, route: str) -> int:
        """A route's price in millionths of a dollar."""
        return micro_usd(self.prices.get(route, PRICES[route]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidDependencies:
    """What the paid routes need to make their answers. They write under a claim alone."""

    store: ReadOnlyStore
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
            amount=self.settings.micro_usd(route),
            pay_to=self.settings.pay_to,
            domain_name=asset.domain_name,
            domain_version=asset.domain_version,
            timeout_seconds=self.settings.timeout_seconds,
        )


def resource_of(value: object, perimeter: Perimeter, *, path: str = "resource") -> Resource:
    """The resource at a path of a request, or Problem 422."""
    if value is None:
        raise invalid(path, "The resource is missing.")
    try:
        return parse_resource(value, perimeter)
    except ResourceError as error:
        raise Problem(
            422,
            error.code,
            f"{error} {error.hint}",
            errors=(Invalid(path=path, message=str(error)),),
        ) from error


def invalid(path: str, message: str) -> Problem:
    """Problem 422 about one part of the input."""
    return Problem(422, "invalid-input", message, errors=(Invalid(path=path, message=message),))


def json_object(document: object) -> dict[str, Any]:
    """A request's body, which must be an object. Raises Problem 422."""
    if not isinstance(document, dict):
        raise invalid("", "The body must be a JSON object.")
    return document


def check_names(document: object, body: Mapping[str, Any]) -> None:
    """Refuse a field of a request that was meant for another: one whose name nearly is one that
    `body` (the JSON Schema of the request) names and that is not given, or one that belongs inside
    another field. Otherwise the answer would be paid for, and not be the one that was asked for.
    Raises Problem 422.
    """
    known: Mapping[str, Any] = body.get("properties", {})
    if not isinstance(document, dict):
        return
    inside = {name: parent for parent in known for name in known[parent].get("properties", ())}
    open_names = {_plain(name): name for name in known if name not in document}
    for name in islice((name for name in document if name not in known), _UNKNOWN_MAX):
        if name in inside:
            raise _unknown(name, f"it belongs inside {inside[name]}.")
        near = get_close_matches(_plain(name[:_NAME_MAX]), open_names, n=1, cutoff=_NEAR)
        if near:
            raise _unknown(name, f"did you mean {open_names[near[0]]}?")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _unknown(name: str, words: str) -> Problem:
    shown = clean_text(name, limit=_NAME_MAX)
    message = f"There is no field {shown}: {words}"
    return Problem(
        422,
        "unknown-field",
        f"{message} Nothing was charged.",
        errors=(Invalid(path=shown, message=message),),
        extra={"notCharged": True},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a paid route, beside its body: its path and the path's parameters."""

    path: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One paid route: its words, its request and answer for the interface description and for
    directories, and how its answer is made.

    `body` is the JSON Schema of the request, `example` a request and `answer` the start of an
    answer, `shape` the model of the whole answer, `refusals` what the route's own problem statuses
    mean. `validate` turns the parsed body into the route's order or raises Problem; `compute`
    makes the whole answer's JSON bytes under the payment's claim, or raises one.

    A route whose path has `parameters` (name, pattern, example) has `place`, which finishes an
    order from the call. `reveal`, `hosts` and `check` are those of
    the sale.
    """

    dependencies: PaidDependencies
    route: str
    summary: str
    description: str
    body: dict[str, Any]
    example: dict[str, Any]
    answer: dict[str, Any]
    shape: type[wire.Shape]
    validate: Callable[[object], object]
    compute: Callable[[Any, HeldClaim], Awaitable[bytes]]
    refusals: Mapping[int, str] = field(default_factory=dict)
    place: Callable[[object, Call], object] | None = None
    parameters: tuple[tuple[str, str, str], ...] = ()
    reveal: Reveal | None = None
    hosts: Callable[[Any], tuple[str, ...]] = lambda _order: ()
    check: Callable[[Connection, Any], None] = lambda _tx, _order: None

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
            info={"input": request, "output": {"type": "json", "example": beginning(self.answer)}},
            schema=_bazaar_schema(self.body),
            bodyless=self.bodyless,
            reveal=self.reveal,
            hosts=self.hosts,
            check=self.check,
        )

    @property
    def bodyless(self) -> bool:
        """Whether a request needs no body: there is nothing to say in it."""
        return not self.body.get("properties")

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

    def _order(self, call: Call | None, document: object) -> object:
        check_names(document, self.body)
        order = self.validate(document)
        return order if self.place is None or call is None else self.place(order, call)


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
