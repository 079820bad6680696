"""The tools of a watch: answers, authentication and secrecy. The watches are bought through the
gate, with probes and alerts.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, RequestParamsMeta, TextContent
from tests.support.command_server import command as prepared_command
from tests.support.http_service import BASE, PAY_TO
from tests.support.mcp_client import call_tools
from tests.support.watch_service import QUOTE, RESOURCE, WatchService, open_watch_service, path

from tollgauge.db.engine import StoreUnavailable
from tollgauge.demo.serving import serve
from tollgauge.web.edge.middleware import Edge, EdgeSettings
from tollgauge.web.mcp import transport

TOOL = "x402_watch_events"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watch_service(
    tmp_path_factory: pytest.TempPathFactory, empty_sqlite: Path
) -> AsyncIterator[WatchService]:
    folder = tmp_path_factory.mktemp("watched")
    database = shutil.copy(empty_sqlite, folder / "service.db")
    async with open_watch_service(f"sqlite:///{database}", folder) as service:
        yield service


@contextlib.asynccontextmanager
async def connect(watch_service: WatchService) -> AsyncIterator[Client]:
    """The SDK's client over Streamable HTTP."""
    async with (
        serve(watch_service.running.app) as port,
        Client(f"http://127.0.0.1:{port}/mcp") as client,
    ):
        yield client


async def call(watch_service: WatchService, arguments: dict[str, Any]) -> CallToolResult:
    async with Client(transport.build_server(watch_service.running.service.server())) as client:
        return await client.call_tool(TOOL, arguments)


def read_result(result: CallToolResult) -> Any:
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert json.loads(block.text) == result.structured_content
    return result.structured_content


def with_secret(bought: Any, **more: str) -> dict[str, str]:
    """The arguments, named as the answer that sold the watch names them."""
    return {name: bought[name] for name in ("watch_id", "secret")} | more


async def test_watch_tool_equals_the_route_with_the_same_cursors(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy()
    await watch_service.probe()
    async with connect(watch_service) as client:
        first = read_result(await client.call_tool(TOOL, with_secret(bought)))
        assert first == await watch_service.poll(bought)
        assert [event["type"] for event in first["watch_events"]] == ["created"]
        await watch_service.probe(quote=replace(QUOTE, amount=20_000))
        cursors = {"since": first["next_cursor"], "watch_since": first["watch_events_cursor"]}
        second = read_result(await client.call_tool(TOOL, with_secret(bought, **cursors)))
    assert [event["type"] for event in second["events"]] == ["price_change"]
    assert second["watch_events"] == []
    assert second == await watch_service.poll(bought, **cursors)


async def test_watch_is_readable_immediately_after_settlement(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy()
    assert read_result(await call(watch_service, with_secret(bought)))["state"] == "active"


async def test_canceled_watch_stays_readable(watch_service: WatchService) -> None:
    bought = await watch_service.buy()
    await watch_service.cancel(bought)
    assert read_result(await call(watch_service, with_secret(bought)))["state"] == "cancelled"


async def test_tool_and_route_reject_with_the_same_code(
    watch_service: WatchService,
) -> None:
    mine, other = await watch_service.buy(), await watch_service.buy()
    nobodys = {"Authorization": "Bearer whsec_" + "A" * 43 + "="}
    for headers, asked, arguments in (
        ({}, path(mine, "/events"), {"watch_id": mine["watch_id"]}),
        (nobodys, path(mine, "/events"), with_secret(mine, secret="whsec_" + "A" * 43 + "=")),
        (bearer(other), path(mine, "/events"), with_secret(mine, secret=other["secret"])),
        (bearer(mine), "/v1/watch/wat_0/events", with_secret(mine, watch_id="wat_0")),
        (bearer(mine), path(mine, "/events?since=x"), with_secret(mine, since="x")),
        (bearer(mine), path(mine, "/events?watch_since=-1"), with_secret(mine, watch_since="-1")),
    ):
        route = (await watch_service.running.http.get(asked, headers=headers)).json()
        result = await call(watch_service, arguments)
        assert result.is_error
        tool = read_result(result)
        same = ("status", "code", "errors")
        assert [tool.get(key) for key in same] == [route.get(key) for key in same], asked


def bearer(bought: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {bought['secret']}"}


async def test_arguments_of_wrong_type_are_rejected_by_name(watch_service: WatchService) -> None:
    bought = await watch_service.buy()
    rows: tuple[tuple[dict[str, Any], int, list[str]], ...] = (
        ({"watch_id": None}, 422, ["watch_id"]),
        ({"watch_id": 7}, 422, ["watch_id"]),
        ({"since": 17.5}, 422, ["since"]),
        ({"watch_since": []}, 422, ["watch_since"]),
        ({"watchSince": "3"}, 422, ["watchSince"]),
        *(
            ({"secret": secret}, 401, [])
            for secret in (None, 7, "", "\N{SNOWMAN}", "a b", "x" * 201)
        ),
    )
    for arguments, status, named in rows:
        document = read_result(await call(watch_service, with_secret(bought) | arguments))
        assert document["status"] == status, arguments
        assert [error["path"] for error in document.get("errors", [])] == named
        if status == 401:  # whether it is missing, wrong or replaced
            assert "from the purchase answer" in document["detail"]


async def test_secret_is_not_logged_or_returned(
    watch_service: WatchService,
    monkeypatch: pytest.MonkeyPatch,
    log_records: list[logging.LogRecord],
    capfd: Any,
) -> None:
    bought = await watch_service.buy()
    tools = transport.build_server(watch_service.running.service.server())
    answers = [
        await call(watch_service, with_secret(bought)),
        await call(watch_service, with_secret(bought, since="x")),
    ]

    def find_nothing(*_: object) -> Any:
        raise StoreUnavailable(bought["secret"])

    def raise_error(*_: object) -> Any:
        raise RuntimeError(bought["secret"])

    for fault in (find_nothing, raise_error):
        monkeypatch.setattr("tollgauge.store.watches.watches.by_secret", fault)
        async with Client(tools) as client:
            answers.append(await client.call_tool(TOOL, with_secret(bought)))
    assert [read_result(answer).get("status") for answer in answers] == [None, 422, 503, 500]
    assert bought["secret"] not in json.dumps([read_result(answer) for answer in answers])
    out, err = capfd.readouterr()
    assert "tool.fail" in out + err
    assert bought["secret"] not in out + err
    ours = [
        record.getMessage() for record in log_records if not record.name.startswith("mcp.client")
    ]
    assert bought["secret"] not in "".join(ours)


@pytest.fixture(scope="module")
def environment(watch_service: WatchService) -> dict[str, str]:
    """A configuration of another process on the same database."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOLLGAUGE_")}
    return kept | {
        "TOLLGAUGE_SERVER_BASE_URL": BASE,
        "TOLLGAUGE_STORE_URL": watch_service.running.service.config.store.url,
        "TOLLGAUGE_SALE_PAY_TO": PAY_TO,
        "TOLLGAUGE_FACILITATOR_URL": "http://127.0.0.1:9",
    }


async def test_stdio_reads_the_same_watch_and_leaves_stderr_empty(
    watch_service: WatchService, environment: dict[str, str], tmp_path: Path
) -> None:
    bought = await watch_service.buy()
    await watch_service.probe()
    polled = await watch_service.poll(bought)
    program, *words = prepared_command("tollgauge", "mcp")
    started = StdioServerParameters(command=program, args=words, env=environment)
    with (tmp_path / "errors").open("w+") as errors:
        async with Client(stdio_client(started, errlog=errors)) as client:
            read = read_result(await client.call_tool(TOOL, with_secret(bought)))
            refused = read_result(
                await client.call_tool(TOOL, with_secret(bought, secret="whsec_0"))
            )
        errors.seek(0)
        assert bought["secret"] not in errors.read()
    assert refused["status"] == 401
    for answer in (read, polled):
        del answer["next_cursor"]  # it contains the time
    assert read == polled


@pytest.mark.node
async def test_typescript_client_reads_a_watch_over_http_and_stdio(
    watch_service: WatchService, environment: dict[str, str]
) -> None:
    bought = await watch_service.buy()
    watch = {"WATCH_ID": bought["watch_id"], "WATCH_SECRET": bought["secret"]}
    async with serve(watch_service.running.app) as port:
        http = [f"http://127.0.0.1:{port}/mcp"]
        stdio = prepared_command("tollgauge", "mcp")
        seen = await call_tools(http, stdio, env=environment | watch)
    assert len(seen) == 2
    for answers in seen:
        watched = answers["watched"]
        assert not watched.get("isError")
        assert watched["structuredContent"]["watch_id"] == bought["watch_id"]
        assert watched["structuredContent"]["state"] == "active"


async def test_secret_guesses_count_against_the_rate_limit(watch_service: WatchService) -> None:
    limited = Edge(watch_service.running.app.app, EdgeSettings(free_per_minute=5))
    params = {"name": TOOL, "arguments": {"watch_id": "wat_0", "secret": "whsec_0"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Accept": "application/json, text/event-stream", "Host": "trust.test"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(limited), base_url=BASE) as http:
        answers = [await http.post("/mcp", json=asked, headers=headers) for _ in range(6)]
    statuses = [answer.status_code for answer in answers]
    assert statuses == sorted(statuses)
    assert statuses[-1] == 429
    for answer in answers[: statuses.index(429)]:
        assert answer.json()["result"]["structuredContent"]["status"] == 401


async def use(
    watch_service: WatchService, name: str, arguments: dict[str, Any], payment: Any = None
) -> CallToolResult:
    meta = cast("RequestParamsMeta", {"x402/payment": payment}) if payment else None
    async with Client(transport.build_server(watch_service.running.service.server())) as client:
        return await client.call_tool(name, arguments, meta=meta)


def sign_rotation(watch_service: WatchService, **more: Any) -> Any:
    return json.loads(base64.b64decode(watch_service.payment(**more)))


async def test_tools_can_buy_renew_edit_and_cancel_a_watch(
    watch_service: WatchService,
) -> None:
    before = watch_service.asked["/settle"]
    order = {"endpoint": RESOURCE, "events": ["price_change"]}
    terms = await use(watch_service, "x402_watch_create", order)
    assert terms.is_error
    assert read_result(terms)["accepts"][0]["amount"] == "200000"
    payment = sign_rotation(watch_service, ticket="known to the buyer")
    bought = read_result(await use(watch_service, "x402_watch_create", order, payment))
    again = read_result(await use(watch_service, "x402_watch_create", order, payment))
    assert again["secret"] == bought["secret"]
    assert read_result(await call(watch_service, with_secret(bought)))["state"] == "active"

    renewal = {"watch_id": bought["watch_id"]}
    payment = sign_rotation(watch_service)
    renewed = read_result(await use(watch_service, "x402_watch_renew", renewal, payment))
    assert renewed["watch_id"] == bought["watch_id"]
    assert renewed["expires_at"] > bought["expires_at"]
    assert read_result(await use(watch_service, "x402_watch_renew", renewal, payment)) == renewed
    other = await use(watch_service, "x402_watch_renew", {"watch_id": "wat_" + "0" * 24}, payment)
    assert read_result(other)["code"] == "payment-reused"

    edited = await use(
        watch_service, "x402_watch_edit", {**with_secret(bought), "events": ["payto_change"]}
    )
    assert read_result(edited)["events"] == ["payto_change"]
    cancelled = await use(watch_service, "x402_watch_cancel", with_secret(bought))
    assert read_result(cancelled)["state"] == "cancelled"
    assert read_result(await call(watch_service, with_secret(bought)))["state"] == "cancelled"
    assert watch_service.asked["/settle"] == before + 2


async def test_renewal_of_an_unknown_watch_charges_nothing(watch_service: WatchService) -> None:
    before = watch_service.asked["/settle"]
    unknown = {"watch_id": "wat_" + "0" * 24}
    result = await use(watch_service, "x402_watch_renew", unknown, sign_rotation(watch_service))
    assert (read_result(result)["status"], read_result(result)["code"]) == (404, "unknown-watch")
    assert watch_service.asked["/settle"] == before


@pytest.mark.parametrize("name", ["x402_watch_edit", "x402_watch_cancel"])
async def test_only_the_owner_changes_a_watch(watch_service: WatchService, name: str) -> None:
    mine, other = await watch_service.buy(), await watch_service.buy()
    change = {"digest": True} if name == "x402_watch_edit" else {}
    for secret, status in ((other["secret"], 404), ("whsec_0", 401), ("", 401), (None, 401)):
        arguments = {"watch_id": mine["watch_id"], "secret": secret, **change}
        refused = await use(watch_service, name, arguments)
        assert refused.is_error
        assert read_result(refused)["status"] == status, secret
    assert read_result(await call(watch_service, with_secret(mine)))["state"] == "active"
    nothing = await use(watch_service, "x402_watch_edit", with_secret(mine))
    assert read_result(nothing)["code"] == "nothing-to-change"
    misspelt = await use(watch_service, "x402_watch_edit", with_secret(mine, event="price_change"))
    assert read_result(misspelt)["code"] == "unknown-field"
