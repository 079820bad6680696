"""Product: everything about one paid route, from which 402, OpenAPI, /docs, the MCP tool, the price
table of README.md and `tollgauge buy` follow.

Each product is a module in web/paid/products.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

import orjson
from sqlalchemy import Connection
from x402.extensions.bazaar import OutputConfig, declare_discovery_extension

from tollgauge.clients.chain.transactions import Transactions
from tollgauge.clients.webhooks import Sealer
from tollgauge.core.base.units import Clock, known_asset, parse_dollars
from tollgauge.core.endpoint.identity import Perimeter
from tollgauge.core.sale.payment import Offer
from tollgauge.core.sale.signature import SigningKey, Typ
from tollgauge.db.engine import ReadOnlyStore
from tollgauge.monitor.alternatives import Alternatives
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.admission import Waiting
from tollgauge.web.paid.live_probe import LiveProbe
from tollgauge.web.paid.sale import HeldClaim, Sale, SaleSettings
from tollgauge.web.signing import signature_header
from tollgauge.web.wire.request_model import RequestModel
from tollgauge.web.wire.response_model import ResponseModel

_EXAMPLE_MAX: Final = 360
"""Bytes of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidDependencies:
    """The resources that products use. The store is read-only, because a product writes only under
    its claim. Nothing is signed without a `signing_key`; `deliveries` limits concurrent tests of
    destinations.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The path of a request, and the path's parameters."""

    path: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """How agents read a long answer in pages (web/mcp/answer_pages).

    Attributes:
        lists: The lists of the answer whose rows an agent can request unchanged.
        columns: The columns of the table that `rows` returns.
        head: Returns the fields of the first page that describe the whole answer.
    """

    lists: tuple[str, ...]
    columns: tuple[str, ...]
    head: Callable[[Mapping[str, Any]], dict[str, Any]]
    rows: Callable[[Mapping[str, Any]], Sequence[Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The MCP tool that sells a product.

    Attributes:
        title, description, example: Default: those of the product.
        request: The model of the arguments, if it is not that of the route's body.
        brief: Needed only if an answer can be longer than a page.
        choose_tier: The tier that a call buys, for a tool that sells several products. It raises
            Problem 422 for arguments that fit none.
    """

    name: str
    title: str = ""
    description: str = ""
    request: type[RequestModel] | None = None
    example: Mapping[str, Any] | None = None
    brief: Brief | None = None
    choose_tier: Callable[[Mapping[str, Any], Perimeter], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """A paid route.

    Attributes:
        position: Products are documented in this order.
        price: Default price in dollars, with six decimals.
        request, response: The models of the request and of the whole answer.
        example, answer: A request, and the first fields of its answer.
        whole_answer: The answer that OpenAPI shows, if it is longer than `answer`.
        compute: Makes the whole answer's JSON bytes under the payment's claim, or raises Problem.
        prepare: Turns a valid request into the route's order before a payment is taken, or raises
            Problem. Default: the request is the order.
        reveal, hosts, check: As in Sale.
        refusals: The meaning of the route's own problem statuses.
        parameters: Those of the path, for OpenAPI.
        typ: The type under which answers are signed (docs/signatures.md). Default: not signed.
        tier: The largest number of resources, for products that share a tool.
    """

    path: str
    position: int
    price: str
    summary: str
    description: str
    request: type[RequestModel]
    example: dict[str, Any]
    answer: dict[str, Any]
    whole_answer: dict[str, Any] | None = None
    response: type[ResponseModel]
    compute: Callable[[PaidDependencies, Any, HeldClaim], Awaitable[bytes]]
    tool: ToolSpec
    refusals: Mapping[int, str] = field(default_factory=dict)
    prepare: Callable[[PaidDependencies, Any, Call | None], object] = lambda _, request, __: request
    parameters: tuple[dict[str, Any], ...] = ()
    reveal: Callable[..., Awaitable[bytes]] | None = None
    hosts: Callable[[Any], tuple[str, ...]] = lambda _order: ()
    check: Callable[[PaidDependencies, Connection, Any], object] = lambda _, __, ___: None
    typ: Typ | None = None
    tier: int | None = None

    def micro_usd(self, settings: SaleSettings) -> int:
        """Return the configured price in millionths of a dollar."""
        return parse_dollars(settings.prices.get(self.path, self.price))

    def dollars(self, settings: SaleSettings) -> str:
        """Return the configured price in dollars, with six decimals."""
        amount = self.micro_usd(settings)
        return f"{amount // 10**6}.{amount % 10**6:06d}"

    def offer(self, dependencies: PaidDependencies, path: str = "") -> Offer:
        """Return the payment terms, for the concrete `path` of a route with parameters. Raises
        Problem 503 while nothing can be sold.
        """
        settings = dependencies.settings
        asset = known_asset(settings.network, settings.asset)
        if not settings.pay_to or asset is None:
            raise Problem(
                503,
                "not-for-sale",
                "This server has no payTo address configured, so it sells nothing. "
                "Nothing was charged.",
                retry_after=3600,
            )
        return Offer(
            route=self.path,
            resource=f"{dependencies.base_url}{path or self.path}",
            network=settings.network,
            asset=settings.asset,
            amount=self.micro_usd(settings),
            pay_to=settings.pay_to,
            domain_name=asset.domain_name,
            domain_version=asset.domain_version,
            timeout_seconds=settings.timeout_seconds,
        )

    def sale(self, dependencies: PaidDependencies, call: Call | None = None) -> Sale:
        """Return the sale that the gate carries out. A product with `parameters` needs the `call`.
        Raises Problem 503 while nothing can be sold.
        """
        return Sale(
            offer=self.offer(dependencies, call.path if call else ""),
            description=self.description,
            validate=partial(self._read_order, dependencies, call),
            compute=partial(self.compute, dependencies),
            bazaar=_bazaar_extension(self),
            bodyless=self.bodyless,
            reveal=partial(self.reveal, dependencies) if self.reveal else None,
            hosts=self.hosts,
            check=partial(self.check, dependencies),
            headers=partial(self._sign, dependencies),
        )

    @property
    def bodyless(self) -> bool:
        """Whether a request needs no body, because its model has no fields."""
        return not self.request.model_fields

    def _sign(self, dependencies: PaidDependencies, row: LedgerRow) -> dict[str, str]:
        """Sign a stored answer, bound to its payment. It is signed each time it is sent, so that
        the signature is always by the current key.
        """
        if self.typ is None or row.answer is None:
            return {}
        bound = {"requestDigest": row.digest, "payer": row.payer, "nonce": row.nonce}
        key, now = dependencies.signing_key, dependencies.clock()
        return signature_header(key, row.answer.body, self.typ, now, **bound)

    def _read_order(
        self, dependencies: PaidDependencies, call: Call | None, document: object
    ) -> object:
        given = {} if document is None and self.bodyless else document
        request = self.request.read(given, dependencies.perimeter)
        return self.prepare(dependencies, request, call)


def first_fields(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return as many fields of an example as fit into a header: clients repeat what directories
    read in their payment's header, and many proxies accept no more than 8 KB.
    """
    fields: dict[str, Any] = {}
    for name, value in answer.items():
        if len(orjson.dumps(fields | {name: value})) > _EXAMPLE_MAX:
            break
        fields[name] = value
    return fields


@lru_cache(maxsize=64)
def _bazaar_extension(product: Product) -> dict[str, Any]:
    """Return the description of a route for directories. Every 402 contains it."""
    extension: dict[str, Any] = declare_discovery_extension(
        input=product.example,
        input_schema=product.request.json_schema(),
        body_type="json",
        output=OutputConfig(example=first_fields(product.answer)),
    )["bazaar"]
    # The SDK's server adds the method from its own route, which this service does not have.
    extension["info"]["input"]["method"] = "POST"
    return extension
