"""A product is one module: routes, documents and tools follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client
from tests.support.http_service import configuration, open_service

from tollgauge.web.mcp import transport
from tollgauge.web.paid import products

MODULE = """
from tollgauge.web.paid.product import Product, ToolSpec
from tollgauge.web.paid.products.trust import EXAMPLE, TrustRequest
from tollgauge.web.wire.response_model import ResponseModel


class NewResponse(ResponseModel):
    resource: str


async def _answer(dependencies, request, claim):
    return b"{}"


PRODUCTS = (
    Product(
        path="/v1/new",
        position=80,
        price="0.123000",
        summary="Something new",
        description="Something new about an endpoint.",
        request=TrustRequest,
        example=dict(EXAMPLE),
        answer=dict(EXAMPLE),
        response=NewResponse,
        compute=_answer,
        tool=ToolSpec(name="x402_new"),
    ),
)
"""


@pytest.fixture(autouse=True)
def _new_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "new.py").write_text(MODULE)
    monkeypatch.setattr(products, "__path__", [*products.__path__, str(tmp_path)])
    products.all_products.cache_clear()
    yield
    products.all_products.cache_clear()


async def test_new_product_module_is_sold_and_documented() -> None:
    async with open_service(configuration()) as running:
        terms = await running.http.post("/v1/new", json={"resource": "https://a.example/"})
        assert (terms.status_code, terms.json()["accepts"][0]["amount"]) == (402, "123000")
        operation = (await running.get("/openapi.json")).json()["paths"]["/v1/new"]["post"]
        assert operation["x-payment-info"]["price"]["amount"] == "0.123000"
        for page in ("/docs", "/llms.txt"):
            text = (await running.get(page)).text
            assert "/v1/new" in text
            assert "$0.123" in text
        assert "/v1/new" in (await running.get("/.well-known/x402")).text
        async with Client(transport.build_server(running.service.server())) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "$0.123 per call" in (tools["x402_new"].description or "")
