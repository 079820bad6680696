"""The wallet page as it leaves the server: well formed, escaped, with the deal for its script."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.support import http_service
from tests.support.http_service import PAY_TO
from tests.support.page_reader import BASE, BIDI, FORBIDDEN, HOSTILE, Reader, snapshot

from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.core.sale.payment import Offer
from tollgauge.monitor.discovery import new_endpoint
from tollgauge.monitor.reports.snapshots import Snapshot
from tollgauge.store.endpoints import endpoints
from tollgauge.web.pages.render import ASSETS
from tollgauge.web.pages.views import upgrade_html
from tollgauge.web.paid.sale import SaleSettings

OFFER = Offer(
    route="/v1/x402-trust",
    resource=f"{BASE}/v1/x402-trust",
    network="eip155:8453",
    asset="0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
    amount=5_000,
    pay_to="0x" + "AB" * 20,
    domain_name="USD Coin",
    domain_version="2",
)
RESOURCE = parse_resource("https://api.example.com/v1/weather")


def page(shown: Snapshot | None = None, offer: Offer | None = OFFER, base: str = BASE) -> bytes:
    return upgrade_html(shown or snapshot(), offer, base_url=base)


def script(reader: Reader) -> dict[str, str | None]:
    (scripts,) = reader.all("script")
    return scripts


@pytest.mark.parametrize("offer", [OFFER, None], ids=["for sale", "not for sale"])
def test_page_is_well_formed_and_loads_only_its_script(offer: Offer | None) -> None:
    reader = Reader(page(offer=offer))
    ids = [attrs["id"] for _, attrs in reader.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert len(reader.all("h1")) == len(reader.all("main")) == 1
    assert len(reader.all("script")) == (1 if offer else 0)
    for tag, attrs in reader.elements:
        assert tag not in FORBIDDEN - {"script"}
        assert "style" not in attrs
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("href", "src"):
            link = attrs.get(name)
            assert link is None or re.match(r"(/(?!/)|#)", link), link
        assert set((attrs.get("aria-labelledby") or "").split()) <= set(ids)
    assert not "".join(reader.pieces.get("script", [])).strip()


def test_script_receives_the_terms_that_the_page_shows() -> None:
    reader = Reader(page())
    attrs = script(reader)
    digest = ASSETS["upgrade.js"].digest
    assert attrs["src"] == f"/static/upgrade.js?v={digest}"
    assert attrs["data-api"] == "/v1/x402-trust"
    deal = json.loads(attrs["data-deal"] or "")
    assert deal | {"chain": None} == {
        "endpoint": snapshot().id,
        "resource": snapshot().resource,
        "network": "eip155:8453",
        "networkName": "Base",
        "asset": OFFER.asset.lower(),
        "decimals": 6,
        "amount": "5000",
        "payTo": OFFER.pay_to.lower(),
        "seconds": OFFER.timeout_seconds,
        "chain": None,
    }
    assert deal["chain"]["chainId"] == "0x2105"
    for words in ("$0.005 in USDC", "Base eip155:8453", OFFER.pay_to, "within 5 minutes"):
        assert words in reader.words


def test_network_without_wallet_parameters_can_only_be_selected() -> None:
    asset = "0x3600000000000000000000000000000000000000"
    reader = Reader(page(offer=replace(OFFER, network="eip155:5042002", asset=asset)))
    deal = json.loads(script(reader)["data-deal"] or "")
    assert (deal["chain"], deal["networkName"]) == (None, "eip155:5042002")


@pytest.mark.parametrize("text", HOSTILE)
def test_escapes_hostile_text_and_keeps_the_terms_valid_json(text: str) -> None:
    shown = snapshot(resource=f"https://api.example.com/{text}", host=text, summary=text)
    html = page(shown)
    reader = Reader(html)
    assert "canary" not in " ".join(name for _, attrs in reader.elements for name in attrs)
    assert len(reader.all("script")) == 1
    assert isinstance(json.loads(script(reader)["data-deal"] or "")["resource"], str)
    for char in f"{BIDI}\x00\x1b":
        assert char not in html.decode()


def test_page_works_below_a_path_prefix() -> None:
    reader = Reader(page(base=f"{BASE}/gauge/"))
    attrs = script(reader)
    assert (attrs["data-api"] or "").startswith("/gauge/v1/")
    assert (attrs["src"] or "").startswith("/gauge/static/")


async def test_serves_the_page_only_for_known_endpoints() -> None:
    async with http_service.open_service(http_service.configuration()) as running:
        path = f"/endpoint/{RESOURCE.id}/upgrade"
        for unknown in (path, "/endpoint/NOT-AN-ID/upgrade"):
            answer = await running.get(unknown)
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown-resource")
        await running.service.store.writing(
            endpoints.insert, new_endpoint(RESOURCE, now=running.clock(), spread_ms=0)
        )
        answer = await running.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert PAY_TO in answer.text
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        asset: Any = await running.get(script(Reader(answer.content))["src"] or "")
        assert asset.headers["content-type"] == "text/javascript; charset=utf-8"


async def test_shows_no_button_if_sales_are_not_configured() -> None:
    config = replace(http_service.configuration(), sale=SaleSettings())
    async with http_service.open_service(config) as running:
        await running.service.store.writing(
            endpoints.insert, new_endpoint(RESOURCE, now=running.clock(), spread_ms=0)
        )
        answer = await running.get(f"/endpoint/{RESOURCE.id}/upgrade")
        assert answer.status_code == 200
        assert "Sales are not configured on this server" in answer.text
        assert "<script" not in answer.text
