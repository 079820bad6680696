"""The demo market over real TLS: every seller answers as its kind requires."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from x402.extensions.bazaar import validate_discovery_extension
from x402.extensions.bazaar.types import parse_discovery_extension
from x402.http import decode_payment_required_header
from x402.schemas import PaymentRequired

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.demo.directory import MALFORMED, items_at
from tollgauge.demo.market import DemoMarket, run_market
from tollgauge.demo.seller import Seller, Wire, is_listed, offer_at
from tollgauge.demo.sellers import SELLERS

pytestmark = pytest.mark.asyncio(loop_scope="module")

_NOW = 1_795_000_000_000

_STATUS = {
    "perfect-v2": 402,
    "perfect-v1": 402,
    "dual": 402,
    "header-only": 402,
    "plain-v2": 402,
    "templated": 402,
    "slow": 402,
    "price-changing": 402,
    "payto-changing": 402,
    "bait-price": 402,
    "over-a-dollar": 402,
    "needs-post": 402,
    "base64url": 402,
    "wrong-network": 402,
    "no-domain-name": 402,
    "wrong-domain-name": 402,
    "decimal-amount": 402,
    "v1-field-in-v2": 402,
    "text-version": 402,
    "internal-url": 402,
    "empty-accepts": 402,
    "huge-body": 402,
    "decoy-price": 402,
    "wildcard-402": 402,
    "injection": 402,
    "testnet": 402,
    "solana": 402,
    "unpaid-200": 200,
    "not-found": 404,
    "server-error": 500,
    "redirect": 308,
    "forbidden": 403,
    "cloaks-by-path": 402,
    "fresh-path": 402,
    "price-jumping": 402,
    "payto-rotating": 402,
    "listing-spam": 402,
    "sybil-wallets": 402,
    "recirculated-money": 402,
    "ring": 402,
}
"""Status of each kind for its own request; kinds with several statuses have their own tests."""

_ELSEWHERE = {
    "validates-first",
    "flapping",
    "throttled",
    "dead",
    "expired-certificate",
    "wrong-certificate",
    "cloaks-by-agent",
    "throttles-when-down",
    "asks-for-silence",
    "bad-record",
}


@dataclass
class Visitor:
    """Sends requests to sellers by name and trusts only the market's own authority."""

    market: DemoMarket
    http: httpx.AsyncClient
    now: int = _NOW

    async def ask(self, seller: Seller, method: str = "", path: str = "") -> httpx.Response:
        return await self.request(
            seller.host,
            path or seller.path,
            method=method or seller.method,
            params=dict(seller.query),
            content=seller.body,
        )

    async def request(
        self, host: str, path: str, *, method: str = "GET", **more: Any
    ) -> httpx.Response:
        address, port = self.market.mapped[host]
        response: httpx.Response = await self.http.request(
            method,
            f"https://{address}:{port}{path}",
            headers={"host": host},
            extensions={"sni_hostname": host},
            **more,
        )
        return response


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def regular(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    folder = tmp_path_factory.mktemp("market")
    async with run_market(lambda: visiting.now, folder, latency=lambda *_: 0) as market:
        trust = ssl.create_default_context(cafile=market.ca_file)
        # One connection per request: httpx would reuse a connection of one name for another name.
        alone = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(
            timeout=30, verify=trust, trust_env=False, limits=alone
        ) as http:
            visiting = Visitor(market, http)
            yield visiting


@pytest.fixture
def visitor(regular: Visitor) -> Visitor:
    regular.now = _NOW
    return regular


def _one(kind: str) -> Seller:
    return next(seller for seller in SELLERS if seller.kind == kind)


def _envelope(answer: httpx.Response) -> dict[str, Any]:
    return dict(json.loads(base64.b64decode(answer.headers["payment-required"], validate=True)))


async def test_market_is_large_and_varied_with_unique_seller_names() -> None:
    assert len(SELLERS) >= 40
    assert len({seller.url for seller in SELLERS}) == len(SELLERS)
    assert len({seller.name for seller in SELLERS}) == len(SELLERS)
    assert {seller.kind for seller in SELLERS} == _STATUS.keys() | _ELSEWHERE


async def test_every_kind_answers_with_its_status(visitor: Visitor) -> None:
    sellers = [seller for seller in SELLERS if seller.kind in _STATUS]
    answers = await asyncio.gather(*map(visitor.ask, sellers))
    status_by_host = {
        seller.host: answer.status_code for seller, answer in zip(sellers, answers, strict=True)
    }
    assert status_by_host == {seller.host: _STATUS[seller.kind] for seller in sellers}


async def test_correct_v2_sellers_pass_the_official_sdk(visitor: Visitor) -> None:
    right = ("perfect-v2", "dual", "header-only", "templated", "testnet", "solana")
    for seller in (seller for seller in SELLERS if seller.kind in right):
        answer = await visitor.ask(seller)
        required = decode_payment_required_header(answer.headers["payment-required"])
        assert isinstance(required, PaymentRequired)
        assert required.x402_version == 2
        assert required.resource is not None
        assert required.resource.url.startswith(f"https://{seller.host}{seller.path[:4]}")
        assert required.accepts[0].amount == str(offer_at(seller, _NOW).amount)
        extension = parse_discovery_extension((required.extensions or {})["bazaar"])
        result = validate_discovery_extension(extension)
        assert result.valid, (seller.host, result.errors)


async def test_correct_v2_sellers_pass_the_linter_advice(
    visitor: Visitor,
) -> None:
    for seller in (seller for seller in SELLERS if seller.kind == "perfect-v2"):
        answer = await visitor.ask(seller)
        assert answer.headers["cache-control"] == "no-store"
        assert "PAYMENT-REQUIRED" in answer.headers["access-control-expose-headers"]
        resource = _envelope(answer)["resource"]
        assert resource["url"] == seller.url
        assert 0 < len(resource["description"]) <= 500
        assert len(resource["serviceName"]) <= 32
        assert resource["serviceName"].isascii()
        assert len(resource["tags"]) <= 5


async def test_v1_sellers_have_the_envelope_only_in_the_body(visitor: Visitor) -> None:
    for seller in (seller for seller in SELLERS if seller.kind == "perfect-v1"):
        answer = await visitor.ask(seller)
        assert "payment-required" not in answer.headers
        entry = answer.json()["accepts"][0]
        assert (entry["network"], entry["resource"]) == ("base", seller.url)


async def test_dual_sellers_have_the_same_terms_in_header_and_body(visitor: Visitor) -> None:
    answer = await visitor.ask(_one("dual"))
    new, old = _envelope(answer)["accepts"][0], answer.json()["accepts"][0]
    assert (new["amount"], new["payTo"]) == (old["maxAmountRequired"], old["payTo"])
    assert (answer.json()["x402Version"], _envelope(answer)["x402Version"]) == (1, 2)


async def test_header_only_seller_has_an_empty_body(visitor: Visitor) -> None:
    answer = await visitor.ask(_one("header-only"))
    assert answer.content == b""
    assert _envelope(answer)["x402Version"] == 2


async def test_base64url_header_is_one_that_strict_decoders_reject(visitor: Visitor) -> None:
    header = (await visitor.ask(_one("base64url"))).headers["payment-required"]
    assert re.search("[-_]", header)
    assert not re.search("[+/=]", header)
    assert json.loads(base64.urlsafe_b64decode(header + "=="))["x402Version"] == 2


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("wrong-network", "network", "base"),
        ("no-domain-name", "extra", {"version": "2"}),
        ("wrong-domain-name", "extra", {"name": "USDC", "version": "2"}),
        ("decimal-amount", "amount", "0.01"),
        ("v1-field-in-v2", "maxAmountRequired", "4000"),
        ("over-a-dollar", "amount", "2500000"),
    ],
)
async def test_sellers_with_one_mistake_differ_in_one_field(
    visitor: Visitor, kind: str, place: str, value: object
) -> None:
    assert _envelope(await visitor.ask(_one(kind)))["accepts"][0][place] == value


async def test_sellers_with_mistakes_outside_of_entries_differ_there(visitor: Visitor) -> None:
    assert _envelope(await visitor.ask(_one("text-version")))["x402Version"] == "2"
    assert _envelope(await visitor.ask(_one("empty-accepts")))["accepts"] == []
    internal = _envelope(await visitor.ask(_one("internal-url")))
    assert internal["resource"]["url"].startswith("http://10.")
    injected = _envelope(await visitor.ask(_one("injection")))
    assert "<script>" in injected["resource"]["description"]


async def test_decoy_asks_for_five_thousand_dollars(visitor: Visitor) -> None:
    answer = await visitor.ask(_one("decoy-price"))
    assert answer.json()["accepts"][0]["maxAmountRequired"] == "5000000000"


async def test_huge_body_exceeds_the_limit_of_a_prober(visitor: Visitor) -> None:
    assert len((await visitor.ask(_one("huge-body"))).content) > 512 * 1024


async def test_redirect_leads_to_another_name(visitor: Visitor) -> None:
    answer = await visitor.ask(_one("redirect"))
    assert answer.headers["location"].startswith("https://new-streetmaps.")


async def test_only_wildcards_request_payment_for_any_path(visitor: Visitor) -> None:
    path = "/no/such/path"
    sellers = [seller for seller in SELLERS if seller.wire is Wire.OPEN]
    answers = await asyncio.gather(*(visitor.ask(seller, path=path) for seller in sellers))
    paid = {s.kind for s, answer in zip(sellers, answers, strict=True) if answer.status_code == 402}
    assert paid == {"wildcard-402", "cloaks-by-path"}
    assert {answer.status_code for answer in answers} == {402, 404}


async def test_templated_path_names_the_requested_resource(visitor: Visitor) -> None:
    seller = _one("templated")
    answer = await visitor.ask(seller, path="/v1/players/23/stats")
    envelope = _envelope(answer)
    assert envelope["resource"]["url"] == f"https://{seller.host}/v1/players/23/stats"
    assert envelope["extensions"]["bazaar"]["routeTemplate"] == "/v1/players/:id/stats"
    assert (await visitor.ask(seller, path="/v1/players/1/2/stats")).status_code == 404


async def test_wrong_method_is_405_with_the_allowed_method(visitor: Visitor) -> None:
    answer = await visitor.ask(_one("needs-post"), method="GET")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_validating_sellers_check_the_input_before_the_payment(visitor: Visitor) -> None:
    flights, vat = (seller for seller in SELLERS if seller.kind == "validates-first")
    assert (await visitor.ask(flights)).status_code == 400
    assert (await visitor.ask(vat)).status_code == 422
    answer = await visitor.request(flights.host, flights.path, params={"flight_no": "TW12"})
    assert answer.status_code == 402


async def test_flapping_and_throttled_sellers_alternate(visitor: Visitor) -> None:
    for kind, bad in (("flapping", 503), ("throttled", 429)):
        seen = set()
        for hour in range(16):
            visitor.now = _NOW + hour * HOUR_MS
            seen.add((await visitor.ask(_one(kind))).status_code)
        assert seen == {402, bad}


async def test_sellers_on_one_host_answer_on_their_own_paths(visitor: Visitor) -> None:
    for kind in ("bad-record", "fresh-path"):
        visitor.now = _NOW // DAY_MS * DAY_MS
        seller = _one(kind)
        assert seller.host == _one("bad-record").host
        assert _envelope(await visitor.ask(seller))["resource"]["url"] == seller.url


async def test_sellers_that_hide_outages_answer_with_an_excuse(visitor: Visitor) -> None:
    visitor.now = _NOW // DAY_MS * DAY_MS + 7 * HOUR_MS
    for kind, status in (("throttles-when-down", 429), ("asks-for-silence", 503)):
        answer = await visitor.ask(_one(kind))
        assert (answer.status_code, "retry-after" in answer.headers) == (status, status == 503)
        assert (await visitor.ask(_one("bad-record"))).status_code == 503


async def test_slow_seller_takes_seconds(visitor: Visitor) -> None:
    answer = await visitor.ask(_one("slow"))
    assert answer.elapsed.total_seconds() > 1.5


async def test_prices_and_payees_change_over_time(visitor: Visitor) -> None:
    price, owner = _one("price-changing"), _one("payto-changing")
    prices, owners = set(), set()
    for day in range(0, 30, 3):
        visitor.now = _NOW + day * DAY_MS
        prices.add(_envelope(await visitor.ask(price))["accepts"][0]["amount"])
        owners.add(_envelope(await visitor.ask(owner))["accepts"][0]["payTo"])
    assert len(prices) >= 3
    assert len(owners) == 3


async def test_dead_seller_refuses_connections(visitor: Visitor) -> None:
    with pytest.raises(httpx.ConnectError, match=r"[Cc]onnect"):
        await visitor.ask(_one("dead"))
    address = visitor.market.mapped[_one("dead").host]
    with socket.socket() as probe:
        assert probe.connect_ex(address) != 0


@pytest.mark.parametrize(
    ("kind", "message"),
    [("expired-certificate", "expired"), ("wrong-certificate", "not valid for")],
)
async def test_bad_certificates_do_not_verify(visitor: Visitor, kind: str, message: str) -> None:
    with pytest.raises(httpx.ConnectError, match=message):
        await visitor.ask(_one(kind))


async def test_unknown_name_is_misdirected(visitor: Visitor) -> None:
    address, port = visitor.market.mapped[SELLERS[0].host]
    answer = await visitor.http.get(
        f"https://{address}:{port}/",
        headers={"host": "nobody.example"},
        extensions={"sni_hostname": SELLERS[0].host},
    )
    assert answer.status_code == 421


async def test_crawl_of_the_pages_finds_every_entry_once(visitor: Visitor) -> None:
    items, total = await _crawl(visitor, limit=100)
    assert items == items_at(_NOW, present=_NOW)
    assert total == len(items) >= 40
    small, _ = await _crawl(visitor, limit=7)
    assert small == items


async def test_directory_lists_both_versions_and_malformed_entries(visitor: Visitor) -> None:
    items, _ = await _crawl(visitor, limit=100)
    good = [item for item in items if item not in MALFORMED]
    assert {item["x402Version"] for item in good} == {1, 2}
    assert {type(item["lastUpdated"]) for item in good} == {int, str}
    assert all(odd in items for odd in MALFORMED)
    there = [seller for seller in SELLERS if is_listed(seller, _NOW, present=_NOW)]
    assert len(good) == len(there)
    assert any(item["resource"].startswith("http://") for item in good)


async def test_stale_listing_has_another_price_than_the_seller(visitor: Visitor) -> None:
    seller = _one("bait-price")
    items, _ = await _crawl(visitor, limit=100)
    item = next(item for item in items if item and item.get("resource") == seller.url)
    asked = _envelope(await visitor.ask(seller))["accepts"][0]["amount"]
    assert (item["accepts"][0]["amount"], asked) == ("5000", "80000")


async def _crawl(visitor: Visitor, *, limit: int) -> tuple[list[Any], int]:
    url = httpx.URL(visitor.market.directory_url)
    items: list[Any] = []
    while True:
        params = {"limit": limit, "offset": len(items)}
        page = (await visitor.request(url.host, url.path, params=params)).json()
        items += page["items"]
        if len(items) >= page["pagination"]["total"]:
            return items, page["pagination"]["total"]
