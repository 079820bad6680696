"""Probes of MCP tools, against servers of the official SDK."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, TextContent
from tests.support.programs import require
from x402 import x402ResourceServer
from x402.mcp.server_async import PaymentWrapperConfig, create_payment_wrapper
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.schemas import PaymentRequirements, ResourceInfo, SupportedResponse

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.x402 import exchange
from tollgauge.core.endpoint.identity import Endpoint, tool_url
from tollgauge.core.lint.judge import lint
from tollgauge.core.lint.rule import ANSWERS
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


class NoFacilitator:
    """A facilitator that is only asked for what it supports."""

    def get_supported(self) -> SupportedResponse:
        kind = {"x402Version": 2, "scheme": "exact", "network": "eip155:8453"}
        return SupportedResponse.model_validate({"kinds": [kind], "extensions": [], "signers": {}})


def paid_server() -> MCPServer:
    """A server whose tool the official x402 SDK sells."""
    (entry,) = ENVELOPE["accepts"]
    facilitator: Any = NoFacilitator()
    scheme: Any = ExactEvmServerScheme  # its constructor has no types
    sales = x402ResourceServer(facilitator)
    sales.register("eip155:8453", scheme())
    sales.initialize()
    accepts = [PaymentRequirements.model_validate(entry)]
    resource = ResourceInfo.model_validate(ENVELOPE["resource"])
    config = PaymentWrapperConfig(
        accepts=accepts, resource=resource, extensions=ENVELOPE["extensions"]
    )
    sell: Any = create_payment_wrapper(sales, config)
    server = MCPServer("shop")

    async def deliver(*_: object) -> dict[str, Any]:
        raise AssertionError("the tool ran without a payment")

    @server.tool(name="weather")
    async def weather() -> CallToolResult:
        sold = await sell(deliver)({}, {"toolName": "weather", "_meta": {}})
        content: Any = [TextContent.model_validate(part) for part in sold.content]
        return CallToolResult(
            content=content, structured_content=sold.structured_content, is_error=sold.is_error
        )

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


@pytest.mark.node
@pytest.mark.parametrize("query", ["", "json"])
async def test_payment_error_of_a_typescript_server_is_a_402(tmp_path: Path, query: str) -> None:
    authority, certificate = trustme.CA(), tmp_path / "server.pem"
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("api.example.com").private_key_and_cert_chain_pem.write_to_path(
        certificate
    )
    command = (require("node"), "tests/support/mcp_seller.mjs", certificate, json.dumps(ENVELOPE))
    seller = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert seller.stdout is not None
    port = int(await seller.stdout.readline())
    settings = EgressSettings(
        mapped={"api.example.com": ("127.0.0.1", port)}, ca_file=str(tmp_path / "ca.pem")
    )
    egress = Egress(settings)
    egress.start()
    probed = await exchange(egress, replace(endpoint("weather"), query=query), now=1)
    await egress.close()
    seller.kill()
    await seller.wait()
    verdict = lint(probed.exchange)
    assert (verdict.payable, verdict.findings) == (True, ())
