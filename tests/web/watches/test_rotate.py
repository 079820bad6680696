"""A watch's secret is shown once to its buyer; a signature of the payer replaces it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from dataclasses import replace
from typing import Any

import httpx
import pytest
from eth_account import Account
from eth_account.messages import encode_defunct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support.receivers import ALERTS
from tests.support.watch_service import CREATE, RESOURCE, WatchService, path

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.rpc import Node
from tollgauge.demo.serving import serve
from tollgauge.web import routes as web
from tollgauge.web.paid.products import watch
from tollgauge.web.watches import watch_secret

PAYER = Account.from_key("0x" + "11" * 32)
STRANGER = Account.from_key("0x" + "22" * 32)
BODY = {"endpoint": RESOURCE}


def sign_rotation(watch_service: WatchService, *, ticket: bool = False) -> str:
    return watch_service.payment(payer=PAYER.address, ticket="of the 402" if ticket else "")


async def rotate(
    watch_service: WatchService, bought: Any, *, by: Any = PAYER, **changes: Any
) -> Any:
    at = changes.get("signed_at", watch_service.clock() // 1000)
    text = f"Rotate the secret of watch {bought['watch_id']} at http://trust.test.\nSigned at: {at}"
    signature = by.sign_message(encode_defunct(text=changes.pop("text", text))).signature.hex()
    body = {"signed_at": at, "signature": "0x" + signature.removeprefix("0x")} | changes
    return await watch_service.running.http.post(path(bought, "/rotate"), json=body)


async def test_secret_is_shown_once_without_a_ticket(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    header = sign_rotation(watch_service)
    first = (await watch_service.ask(CREATE, BODY, payment=header)).json()
    assert first["secret"].startswith("whsec_")
    copy = await watch_service.ask(CREATE, BODY, payment=header)
    assert copy.status_code == 200
    assert "secret" not in copy.json()
    assert first["secret"] not in copy.text
    assert copy.json()["watch_id"] == first["watch_id"]
    assert copy.json()["rotate_url"] == f"http://trust.test{path(first, '/rotate')}"
    assert "shown once" in copy.json()["next_steps"][0]
    assert "rotate" in copy.json()["next_steps"][0]
    assert (await watch_service.poll(first))["state"] == "active"


async def test_answer_stored_by_a_version_with_other_texts_is_sent_again(
    watch_service: WatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = sign_rotation(watch_service)
    first = (await watch_service.ask(CREATE, BODY, payment=header)).json()
    monkeypatch.setattr(watch, "_KEEP", "Keep the secret.")
    copy = await watch_service.ask(CREATE, BODY, payment=header)
    assert (copy.status_code, copy.json()["watch_id"]) == (200, first["watch_id"])
    assert "rotate" in copy.json()["next_steps"][0]


async def test_secret_is_shown_again_with_the_ticket(watch_service: WatchService) -> None:
    header = sign_rotation(watch_service, ticket=True)
    first = await watch_service.ask(CREATE, BODY, payment=header)
    again = await watch_service.ask(CREATE, BODY, payment=header)
    assert (again.status_code, again.content) == (200, first.content)


async def test_copied_payment_cannot_overtake_the_buyer(
    watch_service: WatchService,
) -> None:
    """Who reads a settlement on the chain as it happens has the payment while the buyer waits."""
    header = sign_rotation(watch_service)
    copies = [
        asyncio.create_task(watch_service.ask(CREATE, BODY, payment=header)) for _ in range(8)
    ]
    answers = await asyncio.gather(*copies)
    assert [answer.status_code for answer in answers if '"secret":' in answer.text] == [200]
    assert {answer.status_code for answer in answers} <= {200, 503}


async def test_first_answer_after_an_unclear_settlement_shows_the_secret(
    watch_service: WatchService,
) -> None:
    header = sign_rotation(watch_service)
    watch_service.settles.append(False)
    assert (await watch_service.ask(CREATE, BODY, payment=header)).status_code == 503
    assert "secret" in (await watch_service.ask(CREATE, BODY, payment=header)).json()
    assert "secret" not in (await watch_service.ask(CREATE, BODY, payment=header)).json()


async def test_payer_can_rotate_the_secret(watch_service_on_each_database: WatchService) -> None:
    watch_service = watch_service_on_each_database
    header = sign_rotation(watch_service, ticket=True)
    body = BODY | {"delivery": {"webhook_url": f"https://{ALERTS}/a"}}
    bought = (await watch_service.ask(CREATE, body, payment=header)).json()
    answer = await rotate(watch_service, bought)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Cache-Control"].startswith("no-store")
    fresh = bought | {"secret": answer.json()["secret"]}
    assert fresh["secret"] != bought["secret"]
    await watch_service.poll(bought, status=401)
    polled = await watch_service.poll(fresh)
    assert [event["type"] for event in polled["watch_events"]] == ["created", "edited"]
    assert polled["watch_events"][1]["detail"] == {"secret_rotated": True}
    copy = await watch_service.ask(CREATE, body, payment=header)
    assert bought["secret"] not in copy.text
    assert fresh["secret"] not in copy.text


async def test_deliveries_are_signed_with_the_new_secret(watch_service: WatchService) -> None:
    header = sign_rotation(watch_service, ticket=True)
    body = BODY | {"delivery": {"webhook_url": f"https://{ALERTS}/a"}}
    bought = (await watch_service.ask(CREATE, body, payment=header)).json()
    fresh = (await rotate(watch_service, bought)).json()
    await check_delivery(watch_service, fresh["secret"])


async def check_delivery(watch_service: WatchService, secret: str) -> None:
    """Let the endpoint go down, and check that the alert is signed with a secret."""
    await watch_service.probe()
    for _ in range(2):
        await watch_service.probe(up=False)
    await watch_service.alert()
    delivery = watch_service.receivers.of(ALERTS)[-1]
    assert delivery.json["type"] == "liveness_down"
    key = hashlib.sha256(secret.encode()).hexdigest().encode()
    signature = hmac.new(key, delivery.body, hashlib.sha256).hexdigest()
    assert delivery.headers["x-signature"] == f"sha256={signature}"


async def test_destination_added_during_a_rotation_gets_signed_deliveries(
    watch_service: WatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = sign_rotation(watch_service, ticket=True)
    bought = (await watch_service.ask(CREATE, BODY, payment=header)).json()
    load = watch_secret._load_signers_watch

    async def load_and_edit(*args: Any) -> Any:
        loaded = await load(*args)
        body = {"delivery": {"webhook_url": f"https://{ALERTS}/a"}}
        assert (await watch_service.patch(bought, body)).status_code == 200
        return loaded

    monkeypatch.setattr(watch_secret, "_load_signers_watch", load_and_edit)
    fresh = (await rotate(watch_service, bought)).json()
    await check_delivery(watch_service, fresh["secret"])


async def test_edit_with_a_secret_that_was_rotated_in_the_meantime_is_refused(
    watch_service: WatchService,
) -> None:
    header = sign_rotation(watch_service, ticket=True)
    bought = (await watch_service.ask(CREATE, BODY, payment=header)).json()
    watch_service.receivers.stuck.add(ALERTS)
    body = {"delivery": {"webhook_url": f"https://{ALERTS}/a"}}
    editing = asyncio.create_task(watch_service.patch(bought, body))
    while not watch_service.receivers.of(ALERTS):  # noqa: ASYNC110 - a receiver has no event
        await asyncio.sleep(0.01)
    fresh = bought | (await rotate(watch_service, bought)).json()
    watch_service.receivers.stuck.clear()
    watch_service.receivers.released.set()
    assert (await editing).status_code == 401
    state = await watch_service.patch(fresh, {"digest": True})
    assert state.json()["destinations"] == []


async def test_only_the_payer_can_rotate(watch_service: WatchService) -> None:
    bought = (await watch_service.ask(CREATE, BODY, payment=sign_rotation(watch_service))).json()
    other = (await watch_service.ask(CREATE, BODY, payment=sign_rotation(watch_service))).json()
    now_s = watch_service.clock() // 1000
    for answer in (
        await rotate(watch_service, bought, by=STRANGER),
        await rotate(watch_service, bought, text=f"Rotate {bought['watch_id']}"),
        await rotate(watch_service, bought, signature="0x" + "1b" * 65),
        await rotate(watch_service, bought, signature="0x" + "00" * 65),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "not-the-payer")
        assert "Rotate the secret of watch" in answer.json()["detail"]
    for at in (now_s - 601, now_s + 601):
        late = await rotate(watch_service, bought, signed_at=at)
        assert (late.status_code, late.json()["code"]) == (422, "signature-too-old")
    for wrong in ({"signature": "0x12"}, {"signature": 5}, {"signed_at": "x"}, {"signed_at": None}):
        assert (await rotate(watch_service, bought, **wrong)).status_code == 422
    unknown = await rotate(watch_service, {"watch_id": "wat_" + "0" * 24})
    assert unknown.status_code == 404
    assert (await watch_service.poll(bought))["state"] == "active"
    assert (await watch_service.poll(other))["state"] == "active"


async def test_rotation_signature_is_valid_once(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = (await watch_service.ask(CREATE, BODY, payment=sign_rotation(watch_service))).json()
    answers = await asyncio.gather(*(rotate(watch_service, bought) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    used = next(answer for answer in answers if answer.status_code == 409)
    assert used.json()["code"] == "signature-used"
    watch_service.clock.now += 1_000
    assert (await rotate(watch_service, bought)).status_code == 200


async def test_contract_wallet_signature_is_verified_on_chain(
    watch_service: WatchService,
) -> None:
    """ERC-1271: the check of an externally owned account fails, so the node is queried."""
    bought = (await watch_service.ask(CREATE, BODY, payment=sign_rotation(watch_service))).json()
    asked: list[Any] = []

    async def node(request: Request) -> Response:
        call = await request.json()
        asked.append(call)
        results = {"eth_chainId": hex(8453), "eth_call": "0x1626ba7e" + "00" * 28}
        return JSONResponse({"jsonrpc": "2.0", "id": call["id"], "result": results[call["method"]]})

    async with serve(Starlette(routes=[Route("/", node, methods=["POST"])])) as port:
        chain = Prover([Node(f"http://127.0.0.1:{port}", timeout_s=5)])
        dependencies = watch_service.running.service.server()
        gate = replace(dependencies.gate, chain=chain)
        app = web.create(replace(dependencies, gate=gate))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://trust.test") as http:
            body = {"signed_at": watch_service.clock() // 1000, "signature": "0x" + "5e" * 96}
            answer = await http.post(path(bought, "/rotate"), json=body)
        await chain.close()
    assert answer.status_code == 200, answer.text
    (call,) = (request for request in asked if request["method"] == "eth_call")
    assert call["params"][0]["to"] == PAYER.address.lower()
    assert call["params"][0]["data"].startswith("0x1626ba7e")
    await watch_service.poll(bought | {"secret": answer.json()["secret"]})
