"""MCP tools for all products and free answers, with payment in `_meta` (x402 transport for MCP).

A paid tool uses the gate of the paid routes: same ledger, price and answer. Its payment is bound to
the tool's name and canonical arguments, without those that select a page. Arguments are validated
before terms are quoted. Payment terms and problems are results with `isError`. Each result contains
the same JSON as text and as structured content.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from starlette.responses import Response
from x402.extensions.bazaar import (
    DeclareMcpDiscoveryConfig,
    OutputConfig,
    declare_mcp_discovery_extension,
)

from tollgauge.core.base import strictjson
from tollgauge.core.base.units import dollars, parse_dollars
from tollgauge.core.sale.payment import canonical_body, request_digest
from tollgauge.core.sale.signature import SIGNATURE_HEADER
from tollgauge.db.engine import StoreUnavailable
from tollgauge.observe import PAID_REQUESTS, log, place_of
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.problem import Problem, internal_error, store_unavailable
from tollgauge.web.mcp import answer_pages, output_schema
from tollgauge.web.mcp.answer_pages import PageRequest
from tollgauge.web.mcp.free_tools import TOOLS, FreeTool
from tollgauge.web.paid.product import PaidDependencies, Product, first_fields
from tollgauge.web.paid.request import payment_required, read_payment
from tollgauge.web.paid.sale import Sale, SaleSettings
from tollgauge.web.wire.request_model import invalid

PAYMENT: Final = "x402/payment"
RECEIPT: Final = "x402/payment-response"
SIGNATURE: Final = "tollgauge/signature"
"""Signature of the result's text; over HTTP this is the header Tollgauge-Signature."""
PRICE: Final = "tollgauge/price"
"""The price of a tool, in its `_meta`: dollars per call, or by tier."""
UNPAID: Final = "Payment required to access this tool"
_HOW_TO_PAY: Final = (
    "Paid per call with x402: a call without a payment returns the terms. Sign them and call "
    'again with the same arguments and the payment in _meta["x402/payment"].'
)


class UnknownToolError(LookupError):
    """No tool has this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The paid and free tools of a service."""

    products: tuple[Product, ...]
    dependencies: Dependencies

    def list_tools(self) -> list[Tool]:
        """Return all tools, paid ones first."""
        settings = self.dependencies.settings
        sold = [_paid_tool(products, settings) for products in self._group_products().values()]
        return [*sold, *map(_free_tool, TOOLS.values())]

    async def call(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> CallToolResult:
        """Call a tool. Raises UnknownToolError; every other failure is a result."""
        try:
            return await self._call(name, arguments, meta.get(PAYMENT))
        except Problem as problem:
            return _problem_result(problem)
        except StoreUnavailable:
            return _problem_result(store_unavailable())
        except UnknownToolError:
            raise
        except Exception as error:  # noqa: BLE001 - no exception's text may reach a caller
            log().error("tool.fail", tool=name, error=type(error).__name__, where=place_of(error))
            return _problem_result(internal_error())

    def _group_products(self) -> dict[str, list[Product]]:
        """Group the products by the name of their tool."""
        products_by_tool: dict[str, list[Product]] = {}
        for product in self.products:
            products_by_tool.setdefault(product.tool.name, []).append(product)
        return products_by_tool

    async def _call(
        self, name: str, arguments: Mapping[str, Any], payment: object
    ) -> CallToolResult:
        document = _strict(arguments)
        if name in TOOLS:
            return _to_result(await TOOLS[name].answer(self.dependencies, document))
        products = self._group_products().get(name)
        if products is None:
            raise UnknownToolError
        brief = products[0].tool.brief
        if brief is None:
            return await self._buy(products, document, payment)
        model = answer_pages.page_request(brief)
        names = model.json_schema()["properties"]
        page = model.read({key: value for key, value in document.items() if key in names})
        order = {key: value for key, value in document.items() if key not in names}
        if page.answer_id is None:
            return await self._buy(products, order, payment, page)
        if order:
            raise invalid(min(order), "answerId can only be combined with offset and details.")
        return await self._read_page(products[0], page, page.answer_id)

    async def _read_page(
        self, product: Product, page: PageRequest, answer_id: str
    ) -> CallToolResult:
        """Return a page of an answer that was already paid. Raises Problem 404 or 422."""
        payment_id = answer_id.partition(".")[0]
        row = await self.dependencies.gate.settlement.row(payment_id)
        routes = {sold.path for sold in self._group_products()[product.tool.name]}
        body = answer_pages.stored_answer(row if row and row.route in routes else None, answer_id)
        return _to_result(_page(product, body, page))

    async def _buy(
        self,
        products: Sequence[Product],
        order: Mapping[str, Any],
        payment: object,
        page: PageRequest | None = None,
    ) -> CallToolResult:
        """Call a paid tool, and count the call as a paid request under its name."""
        name, status = products[0].tool.name, 500
        try:
            product = _as_tool(self._choose(products, order))
            response = await self._sell(_sale(product, self.dependencies), order, payment)
            status = response.status_code
        except Problem as problem:
            status = problem.status
            raise
        finally:
            PAID_REQUESTS.labels(name, str(status)).inc()
            log().info("paid.request", route=name, status=status)
        body = bytes(response.body)
        if status != 200:
            return _to_result(body, is_error=True)
        return _to_result(_page(product, body, page), meta=_receipt(response))

    def _choose(self, products: Sequence[Product], order: Mapping[str, Any]) -> Product:
        """Return the product that a call of a tool buys. Raises Problem 422."""
        choose_tier = products[0].tool.choose_tier
        if choose_tier is None:
            return products[0]
        tier = choose_tier(order, self.dependencies.perimeter)
        return next(product for product in products if product.tier == tier)

    async def _sell(self, sale: Sale, order: Mapping[str, Any], payment: object) -> Response:
        if payment is None:
            sale.validate(order)
            return payment_required(sale, UNPAID)
        paid_with = read_payment(as_header(payment), sale.offer)
        digest = request_digest("MCP", sale.offer.resource, canonical_body(order))
        return await self.dependencies.gate.sell(sale, paid_with, order, digest=digest)


def as_header(payment: object) -> str:
    """Encode a payment object as a `PAYMENT-SIGNATURE` header, to parse both the same way.

    Raises Problem 400 if it is not an object.
    """
    if not isinstance(payment, dict):
        raise Problem(
            400,
            "payment-invalid",
            f'_meta["{PAYMENT}"] must be the signed payment as a JSON object, not base64.',
        )
    return base64.b64encode(_text(payment).encode("utf-8", "surrogatepass")).decode()


def _strict(arguments: Mapping[str, Any]) -> Any:
    """Parse arguments again with the strict parser of HTTP bodies. Raises Problem 400."""
    try:
        return strictjson.loads(_text(arguments).encode("utf-8", "surrogatepass"))
    except strictjson.StrictJsonError as error:
        raise Problem(400, "json-invalid", str(error)) from error


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _as_tool(product: Product) -> Product:
    """Return a product with the request and answer of its tool."""
    tool = product.tool
    return replace(
        product,
        request=tool.request or product.request,
        compute=answer_pages.with_id(product.compute) if tool.brief else product.compute,
    )


def _page(product: Product, body: bytes, page: PageRequest | None) -> bytes:
    """Return the complete answer, or a page of a long one. Raises Problem 422."""
    brief = product.tool.brief
    if brief is None:
        return body
    return answer_pages.page(body, brief, page or PageRequest.read({}), tool=product.tool.name)


def _sale(product: Product, dependencies: PaidDependencies) -> Sale:
    """Return the sale of a product as an MCP tool, with its entry for directories."""
    sale, tool = product.sale(dependencies), product.tool
    extension = declare_mcp_discovery_extension(
        DeclareMcpDiscoveryConfig(
            tool_name=tool.name,
            input_schema=product.request.json_schema(),
            description=tool.description or product.description,
            transport="streamable-http",
            example=dict(tool.example or product.example),
            output=OutputConfig(example=first_fields(product.answer)),
        )
    )
    offer = replace(sale.offer, resource=f"mcp://tool/{tool.name}")
    return replace(sale, offer=offer, bazaar=extension["bazaar"])


def _paid_tool(products: Sequence[Product], settings: SaleSettings) -> Tool:
    """Return the list entry of a paid tool.

    The tool moves money, so it is not read-only. It is idempotent, because the same payment is
    never charged twice.
    """
    product, tool = products[0], products[0].tool
    schema = (tool.request or product.request).json_schema()
    answers = [output_schema.of_model(product.response)]
    if tool.brief is not None:
        schema = answer_pages.arguments_schema(tool.brief, schema)
        answers = [*output_schema.of_pages(tool.brief, product.response)]
    prices = {
        "call" if product.tier is None else str(product.tier): product.dollars(settings)
        for product in products
    }
    return Tool(
        name=tool.name,
        title=tool.title or product.summary,
        description=f"{tool.description or product.description} Price: "
        f"{_price_text(prices)}. {_HOW_TO_PAY}",
        input_schema=schema,
        output_schema=output_schema.output_schema(answers, paid=True),
        annotations=ToolAnnotations(
            read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True
        ),
        _meta={PRICE: {"currency": "USD", "amounts": prices}},
    )


def _free_tool(tool: FreeTool) -> Tool:
    """Return the list entry of a free tool."""
    return Tool(
        name=tool.name,
        title=tool.title,
        description=f"{tool.description} Free.",
        input_schema=dict(tool.arguments),
        output_schema=output_schema.output_schema([tool.output], paid=False),
        annotations=ToolAnnotations(
            read_only_hint=tool.read_only,
            destructive_hint=None if tool.read_only else tool.destructive,
            idempotent_hint=None if tool.read_only else True,
            open_world_hint=False,
        ),
        _meta={PRICE: {"currency": "USD", "amounts": {"call": "0"}}},
    )


def _price_text(dollars_by_tier: Mapping[str, str]) -> str:
    """Format the price: `$0.005 per call`, or `$0.045 for up to 10 resources, …`."""
    return ", ".join(
        f"{dollars(parse_dollars(price))} "
        + ("per call" if tier == "call" else f"for up to {tier} resources")
        for tier, price in dollars_by_tier.items()
    )


def _receipt(response: Response) -> dict[str, Any]:
    """Return the `_meta` of a paid answer: its signature, and its receipt if it was charged."""
    meta: dict[str, Any] = {}
    if receipt := response.headers.get("PAYMENT-RESPONSE"):
        meta[RECEIPT] = orjson.loads(base64.b64decode(receipt))
    if signature := response.headers.get(SIGNATURE_HEADER):
        meta[SIGNATURE] = signature
    return meta


def _to_result(
    body: bytes, *, is_error: bool = False, meta: dict[str, Any] | None = None
) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(text=body.decode())],
        structured_content=orjson.loads(body),
        is_error=is_error,
        _meta=meta or None,
    )


def _problem_result(problem: Problem) -> CallToolResult:
    """Return a problem as a result; `retryAfter` is the `Retry-After` header, in seconds."""
    document = orjson.loads(bytes(problem.response().body))
    if problem.retry_after is not None:
        document["retryAfter"] = problem.retry_after
    return _to_result(orjson.dumps(document), is_error=True)
