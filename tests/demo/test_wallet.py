"""Parts that only the demo serves: its wallet, and the progress of loading its history."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from tests.support.http_service import WEATHER_ID, Running, configuration, open_service

from tollgauge.config import Config
from tollgauge.demo import wallet
from tollgauge.demo.chain import ACCOUNTS
from tollgauge.web.settings import DemoSettings

BUYER = ACCOUNTS[1]
TYPED = {
    "types": {
        "EIP712Domain": [
            {"name": "name", "type": "string"},
            {"name": "chainId", "type": "uint256"},
        ],
        "Note": [{"name": "text", "type": "string"}],
    },
    "primaryType": "Note",
    "domain": {"name": "USD Coin", "chainId": 8453},
    "message": {"text": "hello"},
}


@pytest.fixture
def config(tmp_path: Path, market_database: Callable[[Path], str]) -> Config:
    return configuration(store_url=market_database(tmp_path / "service.db"))


@pytest.fixture
async def demo(config: Config) -> AsyncIterator[Running]:
    settings = DemoSettings(buyer_key=BUYER.key, chain_name="tollgauge demo chain")
    async with open_service(replace(config, demo=settings), more=wallet.ROUTES.rows) as running:
        yield running


@pytest.fixture
async def service(config: Config) -> AsyncIterator[Running]:
    async with open_service(config) as running:
        yield running


async def ask(running: Running, method: str, *params: Any) -> Any:
    answer = await running.http.post("/demo/wallet", json={"method": method, "params": params})
    assert answer.status_code == 200
    return answer.json()


async def test_demo_wallet_has_one_account_on_the_chain_of_the_sale(demo: Running) -> None:
    assert await ask(demo, "eth_requestAccounts") == {"result": [BUYER.address]}
    assert await ask(demo, "eth_chainId") == {"result": "0x2105"}


async def test_demo_wallet_signs_typed_data(demo: Running) -> None:
    reply = await ask(demo, "eth_signTypedData_v4", BUYER.address, json.dumps(TYPED))
    message = encode_typed_data(full_message=TYPED)
    assert Account.recover_message(message, signature=reply["result"]) == BUYER.address


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"method": "eth_sendTransaction", "params": []}', 4200),
        (b'{"method": "eth_signTypedData_v4", "params": []}', -32602),
        (b'{"method": "eth_signTypedData_v4", "params": ["0x", "{}"]}', -32602),
        (b'{"method": "eth_signTypedData_v4", "params": ["0x", {"types": 1}]}', -32602),
        (b'{"params": []}', -32602),
        (b"[]", -32602),
        (b"no JSON", -32602),
    ],
)
async def test_unsupported_call_to_the_demo_wallet_returns_eip_1193_code(
    demo: Running, body: bytes, code: int
) -> None:
    answer = await demo.http.post("/demo/wallet", content=body)
    assert answer.json()["error"]["code"] == code


async def test_other_services_do_not_serve_the_demo_wallet(service: Running) -> None:
    assert (await service.http.post("/demo/wallet", json={})).status_code == 404
    assert (await service.get("/demo/wallet.js")).status_code == 404
    assert (await service.get("/static/demo_wallet.js")).status_code == 404
    page = (await service.get(f"/endpoint/{WEATHER_ID}/upgrade")).text
    # The test uses the demo's simulated data, so the page must have its notice.
    page, notices = re.subn(r'<aside [^>]*aria-label="Simulated">.*?</aside>', "", page)
    assert notices == 1
    assert "demo" not in page.lower()
    assert "Base <span" in page


async def test_demo_page_contains_only_its_own_chain(demo: Running) -> None:
    page = (await demo.get(f"/endpoint/{WEATHER_ID}/upgrade")).text
    assert "tollgauge demo chain" in page
    assert (await demo.get("/demo/wallet.js")).headers["content-type"].startswith("text/javascript")
    for path in ("/", "/leaderboard", "/docs", f"/endpoint/{WEATHER_ID}", "/methodology"):
        page += (await demo.get(path)).text
    for node in ("mainnet.base.org", "basescan.org", "polygon-rpc.com", "arb1.arbitrum.io"):
        assert node not in page


async def test_pages_show_loading_progress_and_refresh(demo: Running) -> None:
    loading = demo.service.loading
    loading.days, loading.percent = 30, 42
    words = "The demo is loading 30 days of history: 42%."
    for path in ("/", "/leaderboard", f"/endpoint/{WEATHER_ID}"):
        page = (await demo.get(path)).text
        assert words in page
        assert '<meta http-equiv="refresh" content="5">' in page
    assert (await demo.get("/readyz")).json() == {"status": "ready", "loadingPercent": 42}


async def test_pages_omit_the_progress_after_loading(demo: Running) -> None:
    for path in ("/", "/leaderboard"):
        page = (await demo.get(path)).text
        assert "loading" not in page
        assert "http-equiv" not in page
    assert "loadingPercent" not in (await demo.get("/readyz")).json()
