"""Clients that no one here wrote, over HTTP and over stdio: the official SDKs of both languages."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.support.command_server import command as prepared_command
from tests.support.http_service import PAY_TO, configuration, open_service
from tests.support.mcp_client import call_tools

from tollgauge.demo.serving import serve

TOOLS = [
    "x402_trust_score",
    "x402_trust_bulk",
    "x402_history",
    "x402_payment_trace",
    "x402_find_alternatives",
    "x402_watch_create",
    "x402_watch_renew",
    "x402_trust_leaderboard",
    "x402_trust_preview",
    "x402_ecosystem_stats",
    "x402_semantic_search",
    "x402_preflight",
    "x402_lint",
    "x402_watch_events",
    "x402_watch_edit",
    "x402_watch_cancel",
]


@pytest.fixture
def environment(tmp_path: Path, market_database: Callable[[Path], str]) -> dict[str, str]:
    """A configuration that sells, in variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOLLGAUGE_")}
    return kept | {
        "TOLLGAUGE_STORE_URL": market_database(tmp_path / "service.db"),
        "TOLLGAUGE_SALE_PAY_TO": PAY_TO,
        "TOLLGAUGE_FACILITATOR_URL": "http://127.0.0.1:9",
    }


def check(seen: Any) -> None:
    assert seen["server"]["name"] == "tollgauge"
    assert seen["server"]["version"] == importlib.metadata.version("tollgauge")
    assert seen["tools"] == TOOLS
    assert not seen["free"].get("isError")
    assert seen["free"]["structuredContent"]["listed"] > 20
    assert seen["paid"]["isError"]
    terms = seen["paid"]["structuredContent"]
    assert terms["resource"]["url"] == "mcp://tool/x402_trust_score"
    assert terms["accepts"][0]["payTo"] == PAY_TO
    assert json.loads(seen["paid"]["content"][0]["text"]) == terms
    assert seen["refused"]["structuredContent"]["code"] == "payment-header-invalid"
    assert seen["watched"]["structuredContent"]["code"] == "unauthorized"
    assert seen["unknown"] == -32602


@pytest.mark.node
async def test_typescript_client_lists_and_calls_tools_over_http_and_stdio(
    environment: dict[str, str],
) -> None:
    config = configuration(store_url=environment["TOLLGAUGE_STORE_URL"])
    async with open_service(config) as running, serve(running.app) as port:
        http = [f"http://127.0.0.1:{port}/mcp"]
        seen = await call_tools(http, prepared_command("tollgauge", "mcp"), env=environment)
    assert len(seen) == 2
    for transport in seen:
        check(transport)


async def test_python_client_uses_the_command(environment: dict[str, str]) -> None:
    tollgauge, *words = prepared_command("tollgauge", "mcp")
    started = StdioServerParameters(command=tollgauge, args=words, env=environment)
    # Its own default is the standard error of when it was imported.
    async with Client(stdio_client(started, errlog=sys.stderr)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        counts = await client.call_tool("x402_ecosystem_stats", {})
        assert counts.structured_content is not None
        assert counts.structured_content["listed"] > 20
        asked = {"resource": "https://api.example.com/weather"}
        payment_required = await client.call_tool("x402_trust_score", asked)
        assert payment_required.is_error


async def start_client(environment: dict[str, str]) -> asyncio.subprocess.Process:
    """The command, once it answers."""
    process = await asyncio.create_subprocess_exec(
        *prepared_command("tollgauge", "mcp"),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "a-stranger", "version": "1"},
        },
    }
    process.stdin.write(json.dumps(hello).encode() + b"\n")
    answer = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    assert answer["result"]["serverInfo"]["version"] == importlib.metadata.version("tollgauge")
    return process


async def test_command_ends_with_its_input(environment: dict[str, str]) -> None:
    process = await start_client(environment)
    out, err = await asyncio.wait_for(process.communicate(b""), 60)
    assert (process.returncode, out) == (0, b"")
    assert b"Traceback" not in err


async def test_command_ends_at_ctrl_c(environment: dict[str, str]) -> None:
    process = await start_client(environment)
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGINT
