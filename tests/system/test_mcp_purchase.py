"""Buying a tool in the demo world: a real chain, a real facilitator, real sellers on TLS, the
official MCP client over HTTP and a payment signed by the official x402 client.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio
from eth_account import Account
from mcp import Client
from mcp_types import CallToolResult, RequestParamsMeta, TextContent
from tests.support.command_server import command as prepared_command
from tests.support.paying_clients import node
from tests.support.storefront import list_only
from tests.support.token_balance import balance
from x402 import x402Client
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.schemas import PaymentRequired

from tollgauge import app
from tollgauge.clients.peer import public_authorities
from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.sale.signature import read
from tollgauge.core.score.scoring import recompute
from tollgauge.demo.buyer import buy
from tollgauge.demo.seed import configuration, prepare
from tollgauge.demo.serving import serve
from tollgauge.demo.world import World
from tollgauge.web import routes as web
from tollgauge.web.paid import live_probe
from tollgauge.web.paid.products import trust

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "mcp.md").read_text()
CLIENTS = (ROOT / "docs" / "clients.md").read_text()
WEATHER = "https://weather.example/v1/current"
INJECTED = "https://seo.example/v1/audit"
TRUST = "x402_trust_score"
SIGNATURE = "tollgauge/signature"

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]


@dataclass(frozen=True)
class Business:
    """The running service and its world."""

    world: World
    service: app.Opened
    url: str

    async def income(self) -> int:
        return await balance(self.world.chain, self.world.pay_to)

    async def call(
        self, name: str, arguments: dict[str, Any], payment: object = None
    ) -> CallToolResult:
        meta = cast("RequestParamsMeta", {"x402/payment": payment}) if payment else None
        async with Client(f"{self.url}/mcp") as client:
            return await client.call_tool(name, arguments, meta=meta)

    async def sign_terms(self, terms: Any) -> dict[str, Any]:
        """Sign a payment of these terms with the official x402 client."""
        client = x402Client()
        signer = EthAccountSigner(Account.from_key(self.world.buyer.key))
        register_exact_evm_client(client, signer, networks="eip155:8453")
        payment = await client.create_payment_payload(PaymentRequired.model_validate(terms))
        return payment.model_dump(by_alias=True, exclude_none=True)

    async def buy_tool(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Buy as an agent does: call, sign the terms, call again with the payment."""
        payment_required = await self.call(name, arguments)
        assert payment_required.is_error
        return await self.call(
            name, arguments, await self.sign_terms(payment_required.structured_content)
        )


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def business() -> AsyncIterator[Business]:
    async with World.start(clock=app.now_ms) as world:
        config = configuration(world, port=0, store_url="sqlite://")
        async with app.open_resources(config) as service:
            list_only(world, "weather", "seo")
            await prepare(service, history_days=0, report=lambda *_: None)
            async with serve(web.create(service.server())) as port:
                yield Business(world, service, f"http://127.0.0.1:{port}")


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_paid_call_is_charged_once_and_the_same_payment_is_served_again(
    business: Business,
) -> None:
    before = await business.income()
    arguments = {"resource": WEATHER, "evidence": "full"}
    payment_required = await business.call(TRUST, arguments)
    assert await business.income() == before
    payment = await business.sign_terms(payment_required.structured_content)
    result = await business.call(TRUST, arguments, payment)
    assert not result.is_error, text(result)
    report = result.structured_content
    assert report is not None
    assert report["resource"] == WEATHER
    assert report["liveProbe"]["outcome"] == "payment-required"
    assert recompute(text(result).encode()).grade == report["grade"]
    assert await business.income() - before == 5_000
    assert result.meta is not None
    receipt = result.meta["x402/payment-response"]
    assert receipt["success"] is True
    mined = await business.world.chain.rpc("eth_getTransactionReceipt", receipt["transaction"])
    assert mined["status"] == "0x1"

    again = await business.call(TRUST, arguments, payment)
    assert text(again) == text(result)
    assert again.meta is not None
    assert again.meta["x402/payment-response"] == receipt
    first, second = (read(meta[SIGNATURE]) for meta in (result.meta, again.meta))
    assert (second.kid, second.bound) == (first.kid, first.bound)
    assert second.iat >= first.iat
    other = await business.call(TRUST, {"resource": WEATHER + "/other"}, payment)
    assert other.structured_content is not None
    assert other.structured_content["code"] == "payment-reused"
    assert await business.income() - before == 5_000


async def test_tool_returns_the_result_of_the_route(
    business: Business, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both calls are within the time in which callers share one live probe."""
    for module in (live_probe, trust):
        monkeypatch.setattr(module, "SHARE_MS", HOUR_MS)
    tool = await business.buy_tool(TRUST, {"resource": WEATHER})
    route = await buy(business.url, WEATHER, account=business.world.buyer)
    report = tool.structured_content
    assert report is not None
    assert set(report) == set(route.report)
    for key in ("resource", "score", "grade", "breakdown", "advertised", "advertisedBy"):
        assert report[key] == route.report[key], key
    assert report["liveProbe"]["at"] == route.report["liveProbe"]["at"]


async def test_injection_in_a_report_stays_in_the_unverified_fields(business: Business) -> None:
    result = await business.buy_tool(TRUST, {"resource": INJECTED})
    report = result.structured_content
    assert report is not None
    assert "IGNORE ALL" in report["advertisedBy"]["description"]
    rest = {key: value for key, value in report.items() if key != "advertisedBy"}
    assert "IGNORE ALL" not in json.dumps(rest)


def blocks(language: str, text: str = GUIDE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


async def run_program(business: Business, *command: str) -> str:
    """Run a program with the service's URL and a funded key; return its output."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | {"TOLLGAUGE_URL": business.url, "PRIVATE_KEY": business.world.buyer.key},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("language", ["python", "ts"])
async def test_snippets_of_the_guide_buy_a_report(
    business: Business, language: str, tmp_path: Path
) -> None:
    before = await business.income()
    (snippet,) = blocks(language)
    if language == "python":
        program = prepared_command("-c", snippet)
    else:
        (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
        path = tmp_path / "snippet.mjs"
        path.write_text(snippet)
        program = [node(), str(path)]
    grade, _, transaction = (await run_program(business, *program)).split()
    assert grade in "ABCDF"
    mined = await business.world.chain.rpc("eth_getTransactionReceipt", transaction)
    assert mined["status"] == "0x1"
    assert await business.income() - before == 5_000


async def test_list_of_endpoints_names_a_reportable_endpoint(
    business: Business,
) -> None:
    """The command of docs/clients.md, on a service whose leaderboard may still be empty."""
    command = blocks("sh", CLIENTS)[0]
    resource = (await run_program(business, "sh", "-euc", command)).strip()
    assert resource
    async with httpx.AsyncClient(timeout=30, verify=public_authorities()) as http:
        url = f"{business.url}/trust/snapshot"
        assert (await http.get(url, params={"resource": resource})).json()["resource"] == resource


async def test_tools_and_addresses_of_the_guide_exist(
    business: Business,
) -> None:
    over_http, over_stdio, over_both = (
        json.loads(block)["mcpServers"]["tollgauge"] for block in blocks("json")
    )
    assert over_both["args"][-1] == over_http["url"]
    assert over_http["url"].endswith("/mcp")
    assert (over_stdio["command"], over_stdio["args"]) == ("tollgauge", ["mcp"])
    async with Client(f"{business.url}/mcp") as client:
        served = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", GUIDE, re.MULTILINE)
    arguments_by_tool = {name: re.findall(r"`(\w+)\??`", arguments) for name, arguments in rows}
    assert {name: set(arguments) for name, arguments in arguments_by_tool.items()} == {
        name: set(schema["properties"]) for name, schema in served.items()
    }
