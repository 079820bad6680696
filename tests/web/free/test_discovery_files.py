"""The discovery files, and the routes that they link."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from tests.support import http_service
from tests.support.bundles import add, priced_endpoint
from tests.support.http_service import BASE, Running
from tests.support.prices import PRICES
from x402.extensions.bazaar import validate_discovery_extension

from tollgauge.web.paid.sale import SaleSettings
from tollgauge.web.wire.watch_models import EXAMPLE_ID

LINK = re.compile(r"^- \[([^\]]+)\]\(([^)]+)\): (.+)$", re.MULTILINE)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with http_service.open_service(http_service.configuration()) as service:
        yield service


async def links(running: Running) -> dict[str, tuple[str, str]]:
    """Return the links of llms.txt by their labels, each with its URL and description."""
    answer = await running.get("/llms.txt")
    assert answer.status_code == 200
    return {text: (address, words) for text, address, words in LINK.findall(answer.text)}


async def test_all_paid_routes_are_listed_and_return_402(running: Running) -> None:
    answer = await running.get("/.well-known/x402")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "public, max-age=60"
    document = answer.json()
    assert set(document) == {"version", "resources"}
    assert document["version"] == 1
    listed = [resource.split(" ", 1) for resource in document["resources"]]
    for method, url in listed:
        assert method == "POST"
        assert url.startswith(f"{BASE}/v1/")
        assert (await running.http.post(url)).status_code == 402
    paths = (await running.get("/openapi.json")).json()["paths"]
    sold = {path for path, row in paths.items() if "x-payment-info" in row.get("post", {})}
    assert {urlsplit(url).path for _, url in listed} == {p for p in sold if "{" not in p}


async def test_llms_txt_lists_paid_routes_with_their_prices(
    running: Running,
) -> None:
    hrefs = await links(running)
    for resource in (await running.get("/.well-known/x402")).json()["resources"]:
        path = urlsplit(resource.split(" ", 1)[1]).path
        address, words = hrefs[f"POST {path}"]
        assert address == f"{BASE}{path}"
        terms = (await running.http.post(path)).json()["accepts"][0]
        price = float(words.removeprefix("$").split(". ", 1)[0])
        assert round(price * 10**6) == int(terms["amount"])
        assert f"`{terms['network']}`" in (await running.get("/llms.txt")).text


async def test_get_and_post_return_the_terms(running: Running) -> None:
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("GET", {}),
        ("HEAD", {}),
        ("POST", {}),
        ("POST", {"json": {}}),
        ("POST", {"content": b"\xff", "headers": {"content-type": "text/plain"}}),
    )
    for path in (*(path for path in PRICES if "{" not in path), f"/v1/watch/{EXAMPLE_ID}/renew"):
        terms = [await running.http.request(method, path, **more) for method, more in asked]
        assert [term.status_code for term in terms] == [402] * len(asked), path
        documents = [
            orjson.loads(base64.b64decode(term.headers["payment-required"])) for term in terms
        ]
        assert all(document["accepts"] == documents[0]["accepts"] for document in documents)
        assert all(document["resource"]["url"] == f"{BASE}{path}" for document in documents)
        assert documents[0]["extensions"]["bazaar"]["info"]["input"]["method"] == "POST"
        assert terms[0].json() == documents[0]


async def test_payment_by_get_is_rejected(running: Running) -> None:
    answer = await running.get("/v1/x402-trust", headers={"PAYMENT-SIGNATURE": "e30="})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "Nothing was charged" in answer.json()["detail"]


async def test_offer_and_payment_fit_into_proxy_header_limits(
    running: Running,
) -> None:
    """Many proxies accept headers of 8 KB; a signed payment adds about 1.2 KB to the offer."""
    for resource in (await running.get("/.well-known/x402")).json()["resources"]:
        payment_required = await running.http.post(resource.split(" ", 1)[1])
        assert len(payment_required.headers["payment-required"]) < 5_200, resource
        listed = payment_required.json()["extensions"]["bazaar"]
        assert validate_discovery_extension(listed).valid
        assert listed["info"]["output"]["example"], resource


async def test_free_urls_in_llms_txt_respond(running: Running) -> None:
    await add(running.service.store, priced_endpoint("/1"))
    await running.service.round("bundle")
    for text, (address, _) in (await links(running)).items():
        if text.startswith("POST"):
            continue
        assert address.startswith(BASE)
        answer = await running.get(address)
        # The endpoint of the examples is invented.
        invented = "/trust/snapshot?" in address or "/trust/directories?" in address
        expected = 404 if invented else 200
        assert answer.status_code == expected, address


async def test_llms_txt_is_cached_markdown(running: Running) -> None:
    answer = await running.get("/llms.txt")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.startswith("# tollgauge\n\n> ")
    headings = re.findall(r"^## (.+)$", answer.text, re.MULTILINE)
    assert headings == ["Free", "Paid", "How to pay", "More"]
    assert len(answer.content) < 16_000
    again = await running.get("/llms.txt", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


async def test_configured_prices_are_published() -> None:
    config = http_service.configuration()
    dear = replace(config.sale, prices=dict.fromkeys(PRICES, "1.25"))
    async with http_service.open_service(replace(config, sale=dear)) as running:
        for text, (_, words) in (await links(running)).items():
            sold = text.removeprefix("POST ") in PRICES
            assert sold == words.startswith("$1.25")


async def test_service_without_pay_to_states_that_it_sells_nothing() -> None:
    config = replace(http_service.configuration(), sale=SaleSettings())
    async with http_service.open_service(config) as running:
        assert (await running.get("/.well-known/x402")).json()["resources"] == []
        text = (await running.get("/llms.txt")).text
        assert "Sales are not configured" in text
        assert "PAYMENT-SIGNATURE" not in text
        docs = (await running.get("/docs")).text
        assert "Sales are not configured on this server" in docs
        assert "$0.0" not in docs
        paths = (await running.get("/openapi.json")).json()["paths"]
        paid = [path for path in paths if "paid" in paths[path].get("post", {}).get("tags", ())]
        assert paid
        for path in paid:
            assert "x-payment-info" not in paths[path]["post"]
            answer = await running.http.post(path.replace("{id}", "wat_1"), json={})
            assert (answer.status_code, answer.json()["code"]) == (503, "not-for-sale")
