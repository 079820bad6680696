"""Probes of MCP tools, against servers of the official SDK."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, TextContent

from tollgauge.clients.x402 import exchange
from tollgauge.core.endpoint.identity import Endpoint, tool_url
from tollgauge.core.lint.example import ANSWERS
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, Timings

ENVELOPE: dict[str, Any] = ANSWERS["tool"].body["result"]["structuredContent"]


class DirectEgress:
    """Sends requests to an ASGI application instead of the network."""

    def __init__(self, app: Any) -> None:
        self.transport = httpx.ASGITransport(app=app)
        self.methods: list[str] = []

    async def fetch(self, request: Any, *, at: int = 0) -> Exchange:
        async with httpx.AsyncClient(transport=self.transport) as client:
            reply = await client.request(
                request.method,
                "http://127.0.0.1:8000/mcp",
                headers=dict(request.headers),
                content=request.body,
            )
        self.methods.append(request.method)
        answer = Answer(
            status=reply.status_code, headers=tuple(reply.headers.items()), body=reply.content
        )
        timings = Timings(total=1)
        return Exchange(
            url=request.url, method=request.method, at=at, result=answer, timings=timings
        )


def endpoint(tool: str) -> Endpoint:
    resource = tool_url("https://api.example.com/mcp", tool)
    return Endpoint(id="x", resource=resource, host="api.example.com", first_seen=0, last_seen=0)


def paid_server() -> MCPServer:
    server = MCPServer("shop")

    @server.tool(name="weather")
    async def weather() -> CallToolResult:
        text = TextContent(type="text", text=json.dumps(ENVELOPE))
        return CallToolResult(content=[text], structured_content=ENVELOPE, is_error=True)

    return server


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
async def test_payment_error_of_an_official_server_is_a_402(stateless: bool, as_json: bool) -> None:
    server = paid_server()
    app = server.streamable_http_app(stateless_http=stateless, json_response=as_json)
    async with server.session_manager.run():
        egress: Any = DirectEgress(app)
        paid = await exchange(egress, endpoint("weather"), now=1)
        missing = await exchange(egress, endpoint("nothing"), now=1)
    verdict = lint(paid.exchange)
    assert (verdict.payable, verdict.findings) == (True, ())
    assert paid.learned == "POST"
    assert isinstance(missing.exchange.result, Answer)
    assert missing.exchange.result.status == 404
    assert ("DELETE" in egress.methods) is not stateless


async def test_page_in_place_of_a_message_is_not_mcp() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>"})

    egress: Any = DirectEgress(app)
    result = (await exchange(egress, endpoint("weather"), now=1)).exchange.result
    assert isinstance(result, Fault)
    assert result.defect == "not-mcp"
