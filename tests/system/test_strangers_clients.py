"""Third-party clients that send no `accepted` can buy every product in the demo world, with
settlements on its chain.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.support.paying_clients import node
from tests.support.rated_endpoints import add_better_alternative
from tests.support.storefront import WEATHER, Storefront, storefront

from tollgauge.clients.peer import public_authorities
from tollgauge.demo.chain import ACCOUNTS

CLIENT = Path(__file__).parents[1] / "support" / "stranger.mjs"
TRUST = "/v1/x402-trust"
WATCH = "/v1/watch-endpoint-30d"

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]


@dataclass(frozen=True)
class Sold:
    """A purchase of a third-party client: the offer, the payment header, the first and the second
    response.
    """

    offer: Mapping[str, Any]
    header: str
    first: Mapping[str, Any]
    again: Mapping[str, Any]

    @property
    def answer(self) -> Any:
        return json.loads(self.first["text"])


@dataclass(frozen=True)
class Shop(Storefront):
    """The service, and the third-party client as a process."""

    client: asyncio.subprocess.Process

    async def run(self, *arguments: str, key: str = "") -> Any:
        """Return the output of the third-party client."""
        order = json.dumps([key or self.world.buyer.key, *arguments])
        assert self.client.stdin is not None
        assert self.client.stdout is not None
        self.client.stdin.write(f"{order}\n".encode())
        return json.loads(await asyncio.wait_for(self.client.stdout.readline(), 60))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shop() -> AsyncIterator[Shop]:
    async with storefront() as shop:
        client = await asyncio.create_subprocess_exec(
            *(node(), str(CLIENT), shop.url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        yield Shop(shop.world, shop.service, shop.url, shop.stall, client)
        assert client.stdin is not None
        client.stdin.close()
        assert await asyncio.wait_for(client.wait(), 60) == 0


async def buy(shop: Shop, path: str, body: Any, price: int) -> Sold:
    """Buy with the third-party client, which sends its payment twice. The price is charged once, in
    one transaction of the chain.
    """
    before, sales = await shop.income(), len(await shop.load_settled())
    sold = Sold(**await shop.run("pay", path, json.dumps(body)))
    assert sold.first["status"] == 200, sold.first["text"]
    assert sold.again["status"] == 200, sold.again["text"]
    assert sold.again["receipt"] == sold.first["receipt"]
    assert sold.offer["amount"] == str(price)
    assert await shop.income() - before == price
    assert len(await shop.load_settled()) - sales == 1
    mined = await shop.world.chain.rpc(
        "eth_getTransactionReceipt", sold.first["receipt"]["transaction"]
    )
    assert mined["status"] == "0x1"
    return sold


async def post(shop: Shop, path: str, body: Any, header: str, **more: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30, trust_env=False, verify=public_authorities()) as http:
        return await http.post(
            shop.url + path, json=body, headers={"PAYMENT-SIGNATURE": header, **more}
        )


async def poll(shop: Shop, watch: str, secret: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30, trust_env=False, verify=public_authorities()) as http:
        return await http.get(
            f"{shop.url}/v1/watch/{watch}/events", headers={"Authorization": f"Bearer {secret}"}
        )


@pytest.mark.parametrize(
    ("path", "price"), [(TRUST, 5_000), ("/v1/x402-history", 20_000), ("/v1/similar", 5_000)]
)
async def test_payment_without_accepted_buys_a_read_once(shop: Shop, path: str, price: int) -> None:
    if path == "/v1/similar":
        await add_better_alternative(shop.service.store, WEATHER, now=shop.service.clock())
    sold = await buy(shop, path, {"resource": WEATHER}, price)
    assert sold.answer["resource"] == WEATHER
    assert sold.again["text"] == sold.first["text"]


async def test_payment_without_accepted_buys_the_trace_of_another(shop: Shop) -> None:
    report = await buy(shop, TRUST, {"resource": WEATHER}, 5_000)
    transaction = report.first["receipt"]["transaction"]
    sold = await buy(shop, "/v1/x402-payment-trace", {"txHash": transaction}, 11_673)
    (payment,) = sold.answer["payments"]
    assert payment["payer"] == shop.world.buyer.address.lower()
    assert payment["amount"] == "5000"
    assert sold.again["text"] == sold.first["text"]


async def test_watch_is_bought_rotated_and_renewed_without_accepted(shop: Shop) -> None:
    """The client sends only values that are public on the chain, so the repetition returns no
    secret.
    """
    sold = await buy(shop, WATCH, {"endpoint": WEATHER}, 200_000)
    watch, secret = sold.answer["watch_id"], sold.answer["secret"]
    copy = json.loads(sold.again["text"])
    assert secret not in sold.again["text"]
    kept = sold.answer.keys() - {"secret", "next_steps"}
    assert {key: copy[key] for key in kept} == {key: sold.answer[key] for key in kept}
    assert (await poll(shop, watch, secret)).status_code == 200

    rotated = await shop.run("rotate", sold.answer["rotate_url"])
    assert rotated["status"] == 200, rotated["text"]
    fresh = json.loads(rotated["text"])["secret"]
    assert (await poll(shop, watch, secret)).status_code == 401
    assert (await poll(shop, watch, fresh)).json()["state"] == "active"

    renewed = await buy(shop, f"/v1/watch/{watch}/renew", {}, 200_000)
    assert renewed.answer["expires_at"] > sold.answer["expires_at"]
    assert renewed.again["text"] == renewed.first["text"]
    after = (await poll(shop, watch, fresh)).json()
    assert after["expires_at"] == renewed.answer["expires_at"]


async def test_other_wallet_cannot_rotate(shop: Shop) -> None:
    sold = await buy(shop, WATCH, {"endpoint": WEATHER}, 200_000)
    stranger = next(account for account in ACCOUNTS if account != shop.world.buyer)
    refused = await shop.run("rotate", sold.answer["rotate_url"], key=stranger.key)
    assert (refused["status"], json.loads(refused["text"])["code"]) == (403, "not-the-payer")
    polled = await poll(shop, sold.answer["watch_id"], sold.answer["secret"])
    assert polled.status_code == 200


async def test_same_authorization_in_another_form_is_the_same_payment(
    shop: Shop,
) -> None:
    """With `accepted`, and additionally with the header of version 1, as some clients send it."""
    sold = await buy(shop, TRUST, {"resource": WEATHER}, 5_000)
    before = await shop.income()
    short = json.loads(base64.b64decode(sold.header))
    whole = {"x402Version": 2, "accepted": sold.offer, "payload": short["payload"]}
    header = base64.b64encode(json.dumps(whole).encode()).decode()
    for answer in (
        await post(shop, TRUST, {"resource": WEATHER}, header),
        await post(shop, TRUST, {"resource": WEATHER}, header, **{"X-PAYMENT": header}),
    ):
        assert (answer.status_code, answer.text) == (200, sold.first["text"])
    other = await post(shop, "/v1/similar", {"resource": WEATHER}, sold.header)
    assert (other.status_code, other.json()["code"]) == (409, "payment-reused")
    assert await shop.income() == before


async def test_network_that_is_not_offered_is_rejected(shop: Shop) -> None:
    sold = await buy(shop, TRUST, {"resource": WEATHER}, 5_000)
    before = await shop.income()
    payment = json.loads(base64.b64decode(sold.header)) | {"network": "eip155:84532"}
    header = base64.b64encode(json.dumps(payment).encode()).decode()
    answer = await post(shop, TRUST, {"resource": WEATHER}, header)
    assert (answer.status_code, answer.json()["code"]) == (400, "payment-header-invalid")
    assert "accepted" in answer.json()["detail"]
    assert await shop.income() == before
