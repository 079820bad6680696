"""The tools that agents call: the same products and free answers as over HTTP, with payment in
`_meta` (x402 transport for MCP).

Rules:
- names, descriptions (web/mcp/tool_texts) and schemas are static;
- a paid tool goes through the gate of the paid routes: same ledger, same price, same answer; its
  payment is bound to the tool's name and its canonical arguments;
- the tool of a watch's owner takes the secret as an argument, because clients cannot send a header
  with one call; arguments are never logged;
- terms of payment and problem documents are results with `isError`.

An answer is the same JSON twice: as text and as structured content. No tool declares an output
schema, because clients would validate the terms of payment by it too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import orjson
from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import Field
from starlette.responses import Response
from x402.extensions.bazaar import (
    DeclareMcpDiscoveryConfig,
    OutputConfig,
    declare_mcp_discovery_extension,
)

from tollgauge.core import answer_signature, strictjson
from tollgauge.core.payment import canonical_body, request_digest
from tollgauge.db.engine import StoreUnavailable
from tollgauge.monitor import ranking
from tollgauge.observe import PAID_REQUESTS, log, place_of
from tollgauge.web import wire
from tollgauge.web.edge.problem import Problem, internal_error, store_unavailable
from tollgauge.web.free.api import FreeApi
from tollgauge.web.free.endpoint_lists import EndpointLists, SearchRequest
from tollgauge.web.free.lint import CAPTURE_WORDS, Capture, Linting
from tollgauge.web.free.preflight import PreflightRequest, Preflights
from tollgauge.web.mcp.tool_texts import (
    LEADERBOARD,
    LINT,
    PAID,
    PREFLIGHT,
    PREVIEW,
    SEARCH,
    STATS,
    WATCHED,
    ToolTexts,
)
from tollgauge.web.paid import catalogue
from tollgauge.web.paid.catalogue import Product, Sale
from tollgauge.web.paid.gate import Gate
from tollgauge.web.paid.products import bulk
from tollgauge.web.paid.request import payment_required, read_payment
from tollgauge.web.watches.poll import CURSOR, Polling
from tollgauge.web.watches.shapes import ID_PATTERN
from tollgauge.web.watches.watch_auth import UnauthorizedProblem
from tollgauge.web.wire.request_model import RequestModel

PAYMENT: Final = "x402/payment"
RECEIPT: Final = "x402/payment-response"
SIGNATURE: Final = "tollgauge/signature"
"""What is the header Tollgauge-Signature over HTTP: the signature of the result's text."""
UNPAID: Final = "Payment required to access this tool"
_NOTHING: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
_Cursor = Annotated[str, Field(json_schema_extra={"pattern": f"^{CURSOR.pattern}$"})]


class LeaderboardArguments(RequestModel):
    """How many endpoints an agent wants to see."""

    limit: Annotated[int, Field(ge=1, le=ranking.SIZE)] = Field(
        10, description="How many, best first"
    )


class LintArguments(RequestModel):
    """What an agent wants to check."""

    capture: Capture = Field(description=CAPTURE_WORDS)


class PollArguments(RequestModel):
    """The arguments of the poll. The rules of ids and cursors are the route's (web/watches)."""

    watch_id: str = Field(description="The watch's id", json_schema_extra={"pattern": ID_PATTERN})
    secret: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="The watch's secret, shown once, in the answer that sold the watch",
    )
    since: _Cursor = Field("0", description="`next_cursor` of your last poll")
    watch_since: _Cursor = Field("0", description="`watch_events_cursor` of your last poll")


class UnknownToolError(LookupError):
    """No tool has this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of a service: its products, its free answers, and the reader of watches."""

    products: tuple[Product, ...]
    free: FreeApi
    lists: EndpointLists
    preflights: Preflights
    linting: Linting
    polling: Polling
    gate: Gate

    def listed(self) -> list[Tool]:
        """Every tool, paid ones first."""
        sold = [
            _tool(texts, _chosen(products, {}).request.json_schema(), paid=True)
            for texts, products in self._sold().items()
        ]
        board = _tool(LEADERBOARD, LeaderboardArguments.json_schema())
        free = [_tool(texts, _NOTHING) for texts in (PREVIEW, STATS)]
        free.append(_tool(SEARCH, SearchRequest.json_schema()))
        free.append(_tool(PREFLIGHT, PreflightRequest.json_schema()))
        free.append(_tool(LINT, LintArguments.json_schema()))
        return [*sold, board, *free, _tool(WATCHED, PollArguments.json_schema())]

    async def call(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> CallToolResult:
        """One call. Raises UnknownToolError; every other failure is a result."""
        try:
            return await self._call(name, arguments, meta)
        except Problem as problem:
            return _refused(problem)
        except StoreUnavailable:
            return _refused(store_unavailable())
        except UnknownToolError:
            raise
        except Exception as error:  # noqa: BLE001 - no exception's text may reach a caller
            log().error("tool.fail", tool=name, error=type(error).__name__, where=place_of(error))
            return _refused(internal_error())

    def _sold(self) -> dict[ToolTexts, list[Product]]:
        """The products of each paid tool."""
        products_by_tool: dict[ToolTexts, list[Product]] = {}
        for product in self.products:
            if product.route in PAID:
                products_by_tool.setdefault(PAID[product.route], []).append(product)
        return products_by_tool

    async def _call(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> CallToolResult:
        free: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[bytes]]] = {
            LEADERBOARD.name: self._leaderboard,
            PREVIEW.name: self._preview,
            STATS.name: self._stats,
            SEARCH.name: self._search,
            PREFLIGHT.name: self._preflight,
            LINT.name: self._lint,
            WATCHED.name: self._poll,
        }
        if name in free:
            return _answered(await free[name](arguments))
        sold = next((item for item in self._sold().items() if item[0].name == name), None)
        if sold is None:
            raise UnknownToolError
        return await self._buy(*sold, arguments, meta.get(PAYMENT))

    async def _leaderboard(self, arguments: Mapping[str, Any]) -> bytes:
        """The first rows of the leaderboard. Raises Problem 422."""
        limit = LeaderboardArguments.read(strict(arguments)).limit
        board = await self.free.best()
        return wire.dump(board.model_copy(update={"endpoints": board.endpoints[:limit]}))

    async def _preview(self, _arguments: Mapping[str, Any]) -> bytes:
        """The sample reports in short: an agent reads all that it is given."""
        return wire.outline(await self.free.samples())

    async def _stats(self, _arguments: Mapping[str, Any]) -> bytes:
        return bytes((await self.free.stats()).body)

    async def _search(self, arguments: Mapping[str, Any]) -> bytes:
        """What a search finds, in short. Raises Problem 422 and 503."""
        request = SearchRequest.read(strict(arguments))
        return wire.lists.brief_search(await self.lists.results(request), limit=request.limit)

    async def _preflight(self, arguments: Mapping[str, Any]) -> bytes:
        """The verdict about an offer. Raises Problem 422."""
        return wire.dump(await self.preflights.judge(strict(arguments)))

    async def _lint(self, arguments: Mapping[str, Any]) -> bytes:
        """The lint of an answer in short. Raises Problem 422."""
        capture = LintArguments.read(strict(arguments)).capture
        return wire.brief(await self.linting.captured(capture))

    async def _poll(self, arguments: Mapping[str, Any]) -> bytes:
        """The poll of a watch. Raises Problem 401, 404 or 422, as the route does."""
        try:
            poll = PollArguments.read(strict(arguments))
            events = await self.polling.read(
                poll.watch_id, poll.secret, since=poll.since, watch_since=poll.watch_since
            )
            return events.model_dump_json().encode()
        except UnauthorizedProblem as error:
            raise _no_secret() from error
        except Problem as problem:
            if any(error.path == "secret" for error in problem.errors):
                raise _no_secret() from problem
            raise

    async def _buy(
        self,
        texts: ToolTexts,
        products: Sequence[Product],
        arguments: Mapping[str, Any],
        payment: object,
    ) -> CallToolResult:
        """One call of a paid tool, counted as a paid request of its own name."""
        name, status = texts.name, 500
        try:
            sale = _sale(_chosen(products, arguments), texts)
            response = await self._sell(sale, arguments, payment)
            status = response.status_code
        except Problem as problem:
            status = problem.status
            raise
        finally:
            PAID_REQUESTS.labels(name, str(status)).inc()
            log().info("paid.request", route=name, status=status)
        body = bytes(response.body)
        if status != 200:
            return _answered(body, is_error=True)
        receipt = orjson.loads(base64.b64decode(response.headers["PAYMENT-RESPONSE"]))
        meta = {RECEIPT: receipt}
        if signature := response.headers.get(answer_signature.HEADER):
            meta[SIGNATURE] = signature
        return _answered(body, meta=meta)

    async def _sell(self, sale: Sale, arguments: Mapping[str, Any], payment: object) -> Response:
        if payment is None:
            return payment_required(sale, UNPAID)
        paid_with = read_payment(as_header(payment), sale.offer)
        document = strict(arguments)
        digest = request_digest("MCP", sale.offer.resource, canonical_body(document))
        return await self.gate.sell(sale, paid_with, document, digest=digest)


def as_header(payment: object) -> str:
    """A payment object as the `PAYMENT-SIGNATURE` of HTTP, so that it is read by the same rules.
    Raises Problem 400.
    """
    if not isinstance(payment, dict):
        raise Problem(
            400,
            "payment-invalid",
            f'_meta["{PAYMENT}"] must be the signed payment as a JSON object, not as base64.',
        )
    return base64.b64encode(_text(payment).encode("utf-8", "surrogatepass")).decode()


def strict(arguments: Mapping[str, Any]) -> object:
    """Arguments, which a transport has parsed by its own rules, parsed again by ours. Raises
    Problem 400.
    """
    try:
        return strictjson.loads(_text(arguments).encode("utf-8", "surrogatepass"))
    except strictjson.StrictJsonError as error:
        raise Problem(400, "json-invalid", str(error)) from error


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _chosen(products: Sequence[Product], arguments: Mapping[str, Any]) -> Product:
    """The product that a call of a tool buys. Raises Problem 422."""
    return products[0] if len(products) == 1 else bulk.chosen(products, arguments)


def _sale(product: Product, texts: ToolTexts) -> Sale:
    """A product's sale, as the tool that directories may list."""
    sale = product.sale()
    extension = declare_mcp_discovery_extension(
        DeclareMcpDiscoveryConfig(
            tool_name=texts.name,
            input_schema=product.request.json_schema(),
            description=texts.description,
            transport="streamable-http",
            example=product.example,
            output=OutputConfig(example=catalogue.beginning(product.answer)),
        )
    )
    offer = replace(sale.offer, resource=f"mcp://tool/{texts.name}")
    return replace(sale, offer=offer, bazaar=extension["bazaar"])


def _tool(texts: ToolTexts, arguments: Mapping[str, Any], *, paid: bool = False) -> Tool:
    """A tool as it is listed. A paid one moves money, so it is not read-only; it is idempotent,
    because the same payment never pays twice.
    """
    annotations = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    if paid:
        annotations = ToolAnnotations(
            read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True
        )
    return Tool(
        name=texts.name,
        title=texts.title,
        description=texts.description,
        input_schema=dict(arguments),
        annotations=annotations,
    )


def _no_secret() -> Problem:
    """401 as a tool says it, which has no header to send."""
    words = "Pass `watch_id` and `secret` as the answer that sold the watch has them."
    return Problem(401, "unauthorized", words)


def _answered(
    body: bytes, *, is_error: bool = False, meta: dict[str, Any] | None = None
) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(text=body.decode())],
        structured_content=orjson.loads(body),
        is_error=is_error,
        _meta=meta,
    )


def _refused(problem: Problem) -> CallToolResult:
    """A problem as a result; `retryAfter` is the header `Retry-After` of HTTP, in seconds."""
    document = orjson.loads(bytes(problem.response().body))
    if problem.retry_after is not None:
        document["retryAfter"] = problem.retry_after
    return _answered(orjson.dumps(document), is_error=True)
