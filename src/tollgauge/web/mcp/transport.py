"""MCP server over Streamable HTTP at `/mcp`, and over stdio.

The official SDK implements the protocol revisions of 2025 and 2026. There are no sessions: each
POST is a complete exchange with one JSON response, so that any worker can serve it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata, resources
from typing import Any, Final
from urllib.parse import urlsplit

import mcp_types as types
import orjson
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ListToolsResult
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from tollgauge.core.base import strictjson
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.problem import Problem
from tollgauge.web.mcp.tools import Tools, UnknownToolError
from tollgauge.web.paid.products import all_products

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_REFUSALS: Final = {
    400: ("content-type-invalid", "Send the message as application/json."),
    403: ("origin-not-allowed", "This origin is not allowed to call the tools."),
    421: ("host-not-allowed", "This Host is not served here."),
}


def build_server(dependencies: Dependencies) -> Server[Any]:
    """Build the SDK's server with all paid and free tools."""
    return server(Tools(products=all_products(), dependencies=dependencies))


def server(tools: Tools) -> Server[Any]:
    """Build the SDK's server for one transport."""
    text = resources.files(__package__).joinpath("instructions.txt").read_text(encoding="utf-8")

    async def list_tools(
        _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=tools.list_tools())

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> CallToolResult:
        try:
            return await tools.call(params.name, params.arguments or {}, context.meta or {})
        except UnknownToolError as error:
            raise MCPError(code=types.INVALID_PARAMS, message="No tool with this name.") from error

    return Server(
        "tollgauge",
        version=metadata.version("tollgauge"),
        title="tollgauge",
        instructions=text.replace("\n", " ").strip(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """Handler of Streamable HTTP."""

    server: Server[Any]
    security: TransportSecuritySettings

    async def exchange(self, request: Request) -> Response:
        """Answer one message. Raises Problem."""
        guard = TransportSecurityMiddleware(self.security)
        refused = await guard.validate_request(request, is_post=True)
        if refused is not None:
            code, detail = _REFUSALS[refused.status_code]
            raise Problem(refused.status_code, code, detail)
        if not check_accept_headers(request)[0]:
            raise Problem(406, "not-acceptable", "The Accept header must allow application/json.")
        body = await request.body()
        # Checked here, because the SDK would return the message of its parser.
        invalid = _invalid(body)
        return invalid if invalid is not None else await self._serve(request, body)

    async def _serve(self, request: Request, body: bytes) -> Response:
        # One manager per exchange: a shared one needs a task for the lifetime of the app.
        manager = StreamableHTTPSessionManager(
            self.server, stateless=True, json_response=True, security_settings=self.security
        )
        response = Response(headers={"Cache-Control": "no-store"})
        parts: list[bytes] = []
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        # The body was read above, so the SDK gets it from here. A second call waits for the client
        # to disconnect.
        async def receive() -> Message:
            return unread.pop() if unread else await request.receive()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                response.status_code = message["status"]
                response.raw_headers = [*message["headers"], (b"cache-control", b"no-store")]
            else:
                parts.append(message.get("body", b""))

        async with manager.run():
            await manager.handle_request(request.scope, receive, send)
        response.body = b"".join(parts)
        return response


async def over_stdio(server: Server[Any]) -> None:
    """Serve this process's standard input and output until the input ends."""
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def security(base_url: str) -> TransportSecuritySettings:
    """Allow the Host and Origin of the public address, and of this machine at any port."""
    # Without this check a web page could reach a local service by DNS rebinding.
    public = urlsplit(base_url)
    local = [text for name in _LOOPBACK for text in (name, f"{name}:*")]
    return TransportSecuritySettings(
        allowed_hosts=[public.netloc.lower(), *local],
        allowed_origins=[
            f"{public.scheme}://{public.netloc}".lower(),
            *(f"http://{name}" for name in local),
        ],
    )


def _invalid(body: bytes) -> Response | None:
    """Return the JSON-RPC error for an invalid body, or None if the body is one valid message."""
    try:
        document = strictjson.loads(body)
    except strictjson.StrictJsonError as error:
        return _rpc_error(types.PARSE_ERROR, str(error))
    if not _is_message(document):
        return _rpc_error(types.INVALID_REQUEST, "The body is not one JSON-RPC 2.0 message.")
    return None


def _is_message(document: object) -> bool:
    try:
        message = types.jsonrpc_message_adapter.validate_python(document, by_name=False)
    except ValidationError:
        return False
    # A request with an id of the wrong type would validate as a notification, which gets no
    # response.
    has_id = isinstance(document, dict) and "id" in document
    return not (isinstance(message, types.JSONRPCNotification) and has_id)


def _rpc_error(code: int, message: str) -> Response:
    document = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return Response(
        orjson.dumps(document),
        status_code=400,
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
