"""MCP server: products and free routes as tools for agents.

The handler of the route imports the SDK at the first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.web.dependencies import Dependencies
from tollgauge.web.route import Route
from tollgauge.web.wire import openapi

PATH: Final = "/mcp"
_LIST_TOOLS: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
_EXAMPLE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "x402_ecosystem_stats", "arguments": {}},
}


def route(dependencies: Dependencies) -> Route:
    """Return the MCP route."""
    return Route(
        "POST",
        PATH,
        "MCP server: tools for agents over Streamable HTTP",
        _Endpoint(dependencies).exchange,
        _answers(),
        tag="mcp",
        name="post_mcp",
        request=_request(),
        example=orjson.dumps(_LIST_TOOLS).decode(),
    )


class _Endpoint:
    """The handler, which builds the transport at the first request."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._exchange: Callable[[Request], Awaitable[Response]] | None = None

    async def exchange(self, request: Request) -> Response:
        """Answer one message. Raises Problem."""
        if self._exchange is None:
            # The SDK is 20 % of the CPU time of a start (0.3 s). On a thread, so that its import
            # does not delay other requests.
            self._exchange = await asyncio.to_thread(self._build)
        return await self._exchange(request)

    def _build(self) -> Callable[[Request], Awaitable[Response]]:
        from tollgauge.web.mcp import transport

        server = transport.build_server(self._dependencies)
        allowed = transport.security(self._dependencies.base_url)
        return transport.HttpTransport(server, allowed).exchange


@cache
def _request() -> dict[str, Any]:
    """Return the OpenAPI description of the request."""
    return {"requestBody": openapi.body(openapi.read_schema("json_rpc_message"), _EXAMPLE)}


@cache
def _answers() -> openapi.Answers:
    """Return the OpenAPI responses of the route."""
    result = {"content": [{"type": "text", "text": "{}"}], "structuredContent": {}}
    unknown = {"code": -32601, "message": "Method not found"}
    broken = {"code": -32700, "message": "The text is not valid JSON in UTF-8."}
    error, response = map(openapi.read_schema, ("json_rpc_error", "json_rpc_result"))
    own = openapi.problems(
        {
            400: "The body is not one JSON-RPC 2.0 message in JSON",
            403: "The origin of the request is not allowed",
            406: "The Accept header does not allow JSON",
            421: "The Host is not served here",
        }
    )
    own[400]["content"] |= _rpc(error, {"error": broken, "id": None})
    return own | {
        200: {
            "description": "The response",
            "content": _rpc(response, {"result": result, "id": 1}),
        },
        202: {"description": "The message was a notification, which has no response"},
        404: {
            "description": "The method does not exist in this protocol revision",
            "content": _rpc(error, {"error": unknown, "id": 1}),
        },
    }


def _rpc(schema: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema, "example": {"jsonrpc": "2.0"} | example}}
