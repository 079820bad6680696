"""The pages that find endpoints, over a store that holds some days of the demo's market."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.support.http_service import (
    BASE,
    WEATHER,
    WEATHER_ID,
    Running,
    configuration,
    open_service,
)
from tests.support.page_reader import HOSTILE, Reader
from tests.support.statements import fetch

from tollgauge.core.endpoint.identity import endpoint_id, parse_resource
from tollgauge.core.sale.payment import Offer
from tollgauge.monitor import discovery
from tollgauge.web.pages.render import render
from tollgauge.web.pages.search import ROWS, unknown_html
from tollgauge.web.paid.sale import SaleSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
UNKNOWN = "https://api.new-seller.com/v1/thing"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("finding") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


async def read(running: Running, path: str, **parameters: str) -> httpx.Response:
    return await running.get(path, params=parameters or None, headers=BROWSER)


def links(answer: httpx.Response) -> set[str]:
    """The addresses on this site that a page links to, without their fragments."""
    hrefs = {html.unescape(link) for link in re.findall(r'<a [^>]*?href="(/[^"]*)"', answer.text)}
    return {link.partition("#")[0] for link in hrefs}


async def test_crawl_from_home_reaches_every_listed_endpoint_and_provider(
    running: Running,
) -> None:
    seen, queue = {"/"}, ["/"]
    while queue:
        answer = await read(running, queue.pop())
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        assert answer.status_code == 200, answer.url
        for link in links(answer) - seen:
            seen.add(link)
            if re.match(r"/(endpoints|endpoint/[0-9a-f]{16}$|provider/|leaderboard)", link):
                queue.append(link)
    query = sa.text("SELECT id, host FROM endpoint WHERE NOT adopted")
    rows = (await fetch(running.service.store, query)).all()
    assert len(rows) > 100
    assert {f"/endpoint/{row.id}" for row in rows} <= seen
    assert {f"/provider/{row.host}" for row in rows} <= seen


async def test_list_form_filters_rows_and_keeps_the_selection(running: Running) -> None:
    empty = {"grade": "", "network": "", "host": "", "maxAmountUsd": ""}
    answer = await read(
        running, "/endpoints", **(empty | {"sort": "price", "recommendation": "proceed"})
    )
    reader = Reader(answer.content)
    selected = [attrs.get("value") for attrs in reader.all("option") if "selected" in attrs]
    assert answer.status_code == 200
    assert "price" in selected
    recommended = [
        text.lstrip("Grade ABCDF—0123456789.")
        for text in reader.pieces["td"]
        if text.startswith("Grade")
    ]
    assert set(recommended) == {"proceed"}
    nothing = await read(running, "/endpoints", host="nobody.example")
    assert "No matching endpoints" in nothing.text
    refused = await read(running, "/endpoints", maxAmountUsd="cheap")
    assert refused.status_code == 422
    assert "maxAmountUsd must be a number from 0 to 1000000" in refused.text


async def test_list_pages_link_to_the_next_and_previous_page(running: Running) -> None:
    first = await read(running, "/endpoints", sort="name")
    (following,) = (link for link in links(first) if "cursor=" in link)
    second = await read(running, following)
    back = {attrs.get("rel"): attrs["href"] for attrs in Reader(second.content).all("a")}
    assert parse_qs(urlsplit(back["prev"] or "").query) == {"sort": ["name"]}
    pages = [
        [link for link in links(page) if link.startswith("/endpoint/")] for page in (first, second)
    ]
    assert len(pages[0]) == ROWS
    assert not set(pages[0]) & set(pages[1])


@pytest.mark.parametrize(
    ("text", "page"),
    [
        (WEATHER, f"/endpoint/{WEATHER_ID}"),
        (f" {WEATHER}?city=Oslo ", f"/endpoint/{WEATHER_ID}"),
        ("weather.example/v1/current", f"/endpoint/{WEATHER_ID}"),
        ("weather.example", "/provider/weather.example"),
        ("https://weather.example", "/provider/weather.example"),
    ],
)
async def test_search_for_a_known_url_or_host_redirects_to_its_page(
    running: Running, text: str, page: str
) -> None:
    answer = await read(running, "/search", q=text)
    assert (answer.status_code, answer.headers["location"]) == (307, f"{BASE}{page}")


async def test_search_for_a_pay_to_address_lists_its_endpoints(running: Running) -> None:
    query = sa.text("SELECT quote_pay_to FROM endpoint WHERE id = :id")
    address = (await fetch(running.service.store, query, {"id": WEATHER_ID})).scalar_one()
    answer = await read(running, "/search", q=address)
    assert answer.status_code == 200
    assert f"/endpoint/{WEATHER_ID}" in links(answer)
    assert "paid at this address" in Reader(answer.content).words
    nobody = "0x" + "9a" * 20
    unknown = await read(running, "/search", q=nobody)
    assert (unknown.status_code, f"No monitored endpoint for {nobody}." in unknown.text) == (
        404,
        True,
    )
    machine = await running.get("/search", params={"q": nobody})
    assert (machine.status_code, machine.json()["code"]) == (404, "unknown-payto")


async def test_search_for_keywords_shows_endpoints_with_descriptions(
    running: Running,
) -> None:
    answer = await read(running, "/search", q="weather forecast")
    words = Reader(answer.content).words
    assert "barometer.example" in words
    assert "Weather forecast for a city" in words
    assert Reader(answer.content).pieces["title"] == ["weather forecast · Search · tollgauge"]
    (box,) = (attrs for attrs in Reader(answer.content).all("input") if attrs.get("name") == "q")
    assert box["value"] == "weather forecast"


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("", 200, "opens that endpoint"),
        ("zyxwv", 200, "No listed endpoints match these keywords"),
        ("http://127.0.0.1/admin", 422, "must be a name, not an address"),
        ("ftp://example.com/a", 422, "must start with https://"),
        ("nobody-sells.com", 404, "No monitored endpoint for nobody-sells.com"),
        ("x" * 301, 422, "query must be a string"),
    ],
)
async def test_search_without_results_shows_the_reason(
    running: Running, text: str, status: int, words: str
) -> None:
    answer = await read(running, "/search", q=text)
    reader = Reader(answer.content)
    assert answer.status_code == status
    assert words in reader.words
    assert [attrs["name"] for attrs in reader.all("input")] == ["q"]


@pytest.mark.parametrize(
    "path", [f"/endpoint?resource={UNKNOWN}", f"/search?q={UNKNOWN}", f"/search?q={UNKNOWN[8:]}"]
)
async def test_unknown_url_offers_a_live_probe(running: Running, path: str) -> None:
    answer = await read(running, path)
    reader = Reader(answer.content)
    assert answer.status_code == 200
    assert "Not measured yet" in reader.words
    assert "Probe it now for $0.005" in reader.words
    assert f"tollgauge buy {UNKNOWN} --service {BASE}" in reader.words
    assert f'x402_trust_score {{"resource":"{UNKNOWN}"}}' in reader.words
    (button,) = (link for link in links(answer) if "/upgrade" in link)
    wallet = await read(running, button)
    (script,) = Reader(wallet.content).all("script")
    deal = json.loads(script["data-deal"] or "")
    assert (deal["endpoint"], deal["resource"]) == (endpoint_id(UNKNOWN), UNKNOWN)
    assert deal["amount"] == "5000"


async def test_returns_problem_404_to_clients_that_are_not_browsers(running: Running) -> None:
    for path, code in (
        (f"/endpoint?resource={UNKNOWN}", "unknown-resource"),
        (f"/search?q={UNKNOWN}", "unknown-resource"),
        ("/search?q=nobody-sells.com", "unknown-host"),
    ):
        answer = await running.get(path, headers={"Accept": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (404, code)


async def test_wallet_page_rejects_a_url_of_another_id(running: Running) -> None:
    for resource in ("https://api.other.com/", "http://127.0.0.1/"):
        path = f"/endpoint/{endpoint_id(UNKNOWN)}/upgrade"
        answer = await running.get(path, params={"resource": resource})
        assert answer.status_code == 422


async def test_unlisted_endpoint_that_never_sold_remains_unknown(running: Running) -> None:
    secret = parse_resource("https://api.private-seller.com/v1/secret")
    store = running.service.store
    await store.writing(discovery.adopt, secret, source="request", now=running.clock())
    assert "Not measured yet" in (await read(running, "/search", q=secret.url)).text
    await running.service.alternatives.index.refresh(store)
    listed = await running.get("/trust/endpoints", params={"status": "unlisted"})
    assert secret.url not in listed.text
    answer = await running.get("/trust/search", params={"q": secret.host})
    assert answer.json() == {"match": "provider", "results": []}


async def test_offers_no_probe_if_sales_are_not_configured() -> None:
    config = replace(configuration(), sale=SaleSettings())
    async with open_service(config) as empty:
        answer = await read(empty, "/endpoint", resource=UNKNOWN)
    assert "Sales are not configured" in Reader(answer.content).words
    assert not [link for link in links(answer) if "/upgrade" in link]


async def test_pages_of_an_empty_server_explain_the_missing_endpoints() -> None:
    async with open_service(configuration()) as empty:
        endpoints = await read(empty, "/endpoints")
        search = await read(empty, "/search", q="weather")
        filtered = await read(empty, "/endpoints", grade="A")
    assert "No endpoints yet" in endpoints.text
    assert "No matching endpoints" in filtered.text
    assert "No listed endpoints match these keywords" in search.text


@pytest.mark.parametrize("text", HOSTILE)
async def test_escapes_hostile_search_text(text: str) -> None:
    nothing = {"searched": False, "by_pay_to": False, "rows": [], "uptimes": {}, "said": {}}
    reader = Reader(render("search.html", BASE, text=text, message=text, **nothing))
    assert not reader.all("script")
    assert "canary" not in " ".join(name for _, attrs in reader.elements for name in attrs)


async def test_command_is_quoted_for_a_shell() -> None:
    resource = parse_resource("https://api.example.com/it's;$(id)")
    offer = Offer(
        route="",
        resource="",
        network="eip155:8453",
        asset="",
        amount=5_000,
        pay_to="",
        domain_name="",
        domain_version="",
    )
    html = unknown_html(resource, offer, host_is_known=False, base_url=f"{BASE}/gauge/")
    words = Reader(html).words
    assert f"--service {BASE}/gauge" in words
    assert "tollgauge buy 'https://api.example.com/it'\"'\"'s;$(id)' --service" in words
