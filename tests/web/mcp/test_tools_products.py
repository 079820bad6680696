"""All products are tools: price, schemas, and pages of long answers. Only the facilitator, which
accepts every payment, is simulated.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator
from mcp import Client
from mcp_types import CallToolResult, RequestParamsMeta, Tool
from tests.support import prices
from tests.support.http_service import NOW
from tests.support.paid_service import PaidService, header, open_paid_service
from tests.support.probe_rows import record_probe
from tests.web.paid.products.test_bulk import endpoint, insert_endpoints, probe, url, urls

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.store.endpoints import endpoints
from tollgauge.web import routes as web
from tollgauge.web.mcp import transport
from tollgauge.web.paid.products import all_products

AGENT_BYTES = 8_000
"""Text, structured content and receipt together: an agent reads all that it is given."""
RESOURCE = url(0)
BULK = "x402_trust_bulk"
HISTORY = "x402_history"
SOLD = {
    prices.TRUST: ("x402_trust_score", {"resource": RESOURCE}),
    **{
        route: (BULK, {"resources": [RESOURCE], "tier": tier})
        for tier, route in prices.BULK.items()
    },
    prices.HISTORY: (HISTORY, {"resource": RESOURCE}),
    prices.SIMILAR: ("x402_find_alternatives", {"resource": RESOURCE}),
    prices.RENEW: ("x402_watch_renew", {"watch_id": "wat_" + "0" * 24}),
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[PaidService]:
    async with open_paid_service("sqlite://", PaidService) as service:
        await insert_endpoints(service.store, range(30), scored_at=NOW - MINUTE_MS)
        yield service


async def call(
    shop: PaidService, name: str, arguments: Any, payment: object = None
) -> CallToolResult:
    meta = cast("RequestParamsMeta", {"x402/payment": payment}) if payment else None
    async with Client(transport.build_server(shop.running.service.server())) as client:
        return await client.call_tool(name, arguments, meta=meta)


async def fetch_tools(shop: PaidService) -> dict[str, Tool]:
    async with Client(transport.build_server(shop.running.service.server())) as client:
        return {tool.name: tool for tool in (await client.list_tools()).tools}


def body(result: CallToolResult) -> Any:
    assert not result.is_error, result.structured_content
    return result.structured_content


def size(result: CallToolResult) -> int:
    return len(result.model_dump_json(by_alias=True).encode())


async def test_every_product_has_a_tool_that_quotes_the_price_of_its_route(
    shop: PaidService,
) -> None:
    tools = await fetch_tools(shop)
    dependencies = shop.running.service.server()
    for product in all_products():
        assert product.tool.name in tools, product.path
        documented = next(
            route
            for route in web.table(dependencies)
            if (route.method, route.path) == ("POST", product.path)
        )
        assert documented.tool == product.tool.name
    for route, (name, arguments) in SOLD.items():
        over_http = (await shop.running.http.post(route)).json()["accepts"]
        result = await call(shop, name, arguments)
        assert result.is_error
        assert result.structured_content is not None
        assert result.structured_content["accepts"] == over_http, route


async def test_every_tool_states_its_price_and_the_schema_of_its_answer(shop: PaidService) -> None:
    for name, tool in (await fetch_tools(shop)).items():
        assert tool.output_schema is not None, name
        assert tool.output_schema["type"] == "object"
        Draft202012Validator.check_schema(tool.output_schema)
        assert tool.meta is not None
        prices = tool.meta["tollgauge/price"]
        assert prices["currency"] == "USD"
        assert tool.description is not None
        for amount in prices["amounts"].values():
            text = "Free." if float(amount) == 0 else f"${float(amount):.6f}".rstrip("0")
            assert text in tool.description, name
    bulk = (await fetch_tools(shop))[BULK].meta
    assert bulk is not None
    assert bulk["tollgauge/price"]["amounts"] == {
        "10": "0.045000",
        "50": "0.200000",
        "100": "0.325000",
        "200": "0.400000",
        "500": "0.500000",
    }


async def test_server_version_is_that_of_the_package(shop: PaidService) -> None:
    server = transport.build_server(shop.running.service.server())
    async with Client(server, mode="legacy") as client:
        assert client.server_info is not None
        assert client.server_info.version == importlib.metadata.version("tollgauge")


@pytest.mark.parametrize(
    ("name", "arguments", "path"),
    [
        ("x402_trust_score", {}, "resource"),
        ("x402_trust_score", {"resource": "weather"}, "resource"),
        (BULK, {}, "resources"),
        (HISTORY, {"resource": RESOURCE, "days": 91}, "days"),
        ("x402_find_alternatives", {"resource": RESOURCE, "limit": 26}, "limit"),
        ("x402_payment_trace", {}, "txHash"),
        ("x402_watch_create", {}, "resource"),
        ("x402_watch_renew", {}, "watch_id"),
    ],
)
async def test_invalid_arguments_are_refused_before_terms_are_quoted(
    shop: PaidService, name: str, arguments: dict[str, Any], path: str
) -> None:
    result = await call(shop, name, arguments)
    assert result.is_error
    document = result.structured_content
    assert document is not None
    assert "accepts" not in document
    assert document["status"] == 422
    assert [error["path"] for error in document["errors"]] == [path]


@pytest.mark.parametrize("count", [1, 10, 50, 100, 200, 500])
async def test_bulk_answer_fits_an_agent_and_every_row_can_be_read_for_one_payment(
    shop: PaidService, count: int
) -> None:
    arguments = {"resources": urls(count)}
    tier = next(size for size in prices.BULK if count <= size)
    before = shop.asked["/settle"]
    payment = shop.payment(prices.BULK[tier])
    result = await call(shop, BULK, arguments, payment)
    first = body(result)
    assert size(result) < AGENT_BYTES
    assert first["total"] == count
    assert sum(first["recommendations"].values()) == count
    rows = [dict(zip(first["columns"], row, strict=True)) for row in first["rows"]]
    assert rows[0]["resource"] == RESOURCE
    assert rows[0]["score"] is not None
    seen, page = [row["resource"] for row in rows], first
    while page.get("nextOffset"):
        assert "answerId" in page["more"]
        turned = await call(
            shop, BULK, {"answerId": page["answerId"], "offset": page["nextOffset"]}
        )
        assert size(turned) < AGENT_BYTES
        page = body(turned)
        seen += [row[0] for row in page["rows"]]
    assert seen == urls(count)
    if count >= 50:
        assert len(rows) >= 40
    assert shop.asked["/settle"] == before + 1


async def test_details_of_a_bulk_answer_are_the_rows_of_the_route_without_another_charge(
    shop: PaidService,
) -> None:
    arguments = {"resources": urls(12)}
    over_http = (await shop.post(prices.BULK[50], arguments)).json()["results"]
    payment = shop.payment(prices.BULK[50])
    first = body(await call(shop, BULK, arguments, payment))
    before = shop.asked["/settle"]
    rows: list[Any] = []
    asked: dict[str, Any] = {"answerId": first["answerId"], "details": "results"}
    while True:
        result = await call(shop, BULK, asked | {"offset": len(rows)})
        assert size(result) < AGENT_BYTES
        page = body(result)
        rows += page["results"]
        if "nextOffset" not in page:
            break
    assert rows == over_http
    with_payment = arguments | {"details": "results", "offset": 3}
    again = await call(shop, BULK, with_payment, payment)
    assert body(again)["results"][0] == over_http[3]
    assert shop.asked["/settle"] == before


async def test_history_fits_an_agent_and_every_probe_can_be_read_for_one_payment(
    shop: PaidService,
) -> None:
    resource = url(40)
    await shop.store.writing(endpoints.insert, endpoint(40))
    for n in range(300):
        await shop.store.writing(record_probe, endpoint(40).id, probe(NOW - (300 - n) * MINUTE_MS))
    arguments = {"resource": resource, "days": 2}
    over_http = (await shop.post(prices.HISTORY, arguments)).json()
    result = await call(shop, HISTORY, arguments, shop.payment(prices.HISTORY))
    assert size(result) < AGENT_BYTES
    brief = body(result)
    spans = [dict(zip(brief["columns"], row, strict=True)) for row in brief["rows"]]
    assert [(span["probes"], span["outcome"]) for span in spans] == [(300, "payment-required")]
    assert (brief["probes"], brief["resource"], brief["days"]) == (300, resource, 2)
    probes: list[Any] = []
    while True:
        asked = {"answerId": brief["answerId"], "details": "probes", "offset": len(probes)}
        page = await call(shop, HISTORY, asked)
        assert size(page) < AGENT_BYTES
        probes += body(page)["probes"]
        if "nextOffset" not in body(page):
            break
    assert probes == over_http["probes"]


@pytest.mark.parametrize(
    "answer_id",
    ["", "x", "0" * 32, f"{'0' * 32}.{'A' * 22}", "é.é", 7, None],
)
async def test_unknown_answer_id_returns_404(shop: PaidService, answer_id: object) -> None:
    result = await call(shop, BULK, {"answerId": answer_id})
    assert result.is_error
    assert result.structured_content is not None
    assert result.structured_content["status"] in (404, 422)


async def test_answer_id_is_valid_only_for_its_tool(shop: PaidService) -> None:
    arguments = {"resources": urls(2)}
    bought = body(await call(shop, BULK, arguments, shop.payment(prices.BULK[10])))
    other = await call(shop, HISTORY, {"answerId": bought["answerId"]})
    assert other.structured_content is not None
    assert other.structured_content["code"] == "unknown-answer"
    payment_id, _, token = bought["answerId"].partition(".")
    changed = ("A" if token[0] != "A" else "B") + token[1:]
    guess = await call(shop, BULK, {"answerId": f"{payment_id}.{changed}"})
    assert guess.structured_content is not None
    assert guess.structured_content["code"] == "unknown-answer"
    for bad in ({"offset": -1}, {"offset": 3}, {"details": "probes"}, {"offset": "1"}):
        refused = await call(shop, BULK, {"answerId": bought["answerId"]} | bad)
        assert refused.structured_content is not None
        assert refused.structured_content["status"] == 422, bad


async def test_tool_texts_name_both_recommendations_to_pay(shop: PaidService) -> None:
    async with Client(
        transport.build_server(shop.running.service.server()), mode="legacy"
    ) as client:
        texts = json.dumps(
            [tool.model_dump() for tool in (await client.list_tools()).tools],
        ) + str(client.instructions)
    assert "alone" not in texts
    assert "Pay only if `recommendation` is `proceed` or `caution`." in texts


async def test_route_rejects_the_payment_of_a_tool(shop: PaidService) -> None:
    payment = shop.payment(prices.HISTORY)
    body(await call(shop, HISTORY, {"resource": RESOURCE}, payment))
    reused = await shop.post(prices.HISTORY, {"resource": RESOURCE}, paid=header(payment))
    assert (reused.status_code, reused.json()["code"]) == (409, "payment-reused")
