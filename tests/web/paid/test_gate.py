"""The payment gate on both databases, with a facilitator whose answers a test configures.

The facilitator is a real HTTP server on loopback; only its answers are simulated. Signatures are
not verified here: tests/system/test_purchase.py uses a real chain.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tests.support.gate_world import (
    NOW,
    TX,
    GateClient,
    World,
    open_gate,
    payment,
    settled_response,
)
from tests.support.statements import execute

from tollgauge.core.sale.payment_state import State
from tollgauge.core.watch.watch_rules import REJECTED_MS
from tollgauge.db.engine import Store
from tollgauge.store.ledger import attempts, payments
from tollgauge.web.paid import gate as gate_module


@pytest.fixture
async def client(store: Store) -> AsyncIterator[GateClient]:
    async with open_gate(store, World()) as opened_client:
        yield opened_client


async def test_unpaid_request_returns_the_terms_for_any_body(
    client: GateClient,
) -> None:
    for content in (b"", b"{", b'{"q": 1}', b"\xff"):
        answer = await client.http.post("/v1/a", content=content)
        assert answer.status_code == 402
        terms = json.loads(base64.b64decode(answer.headers["PAYMENT-REQUIRED"]))
        assert terms == answer.json()
        assert terms["accepts"][0]["amount"] == "5000"
        assert answer.headers["Cache-Control"] == "no-store"
    assert not client.world.calls


async def test_v1_client_receives_a_hint_about_v2(client: GateClient) -> None:
    answer = await client.http.post("/v1/a", headers={"X-PAYMENT": "e30="})
    assert answer.status_code == 402
    assert "version 2" in answer.json()["error"]


async def test_paid_answer_has_a_receipt(client: GateClient) -> None:
    answer = await client.buy(payment())
    assert answer.status_code == 200
    assert answer.json() == {"answer": 1}
    receipt = json.loads(base64.b64decode(answer.headers["PAYMENT-RESPONSE"]))
    assert receipt["transaction"] == TX
    assert receipt["success"] is True
    assert receipt["payer"] == "0x" + "cd" * 20
    assert (await client.row(payment())).state is State.SETTLED


async def test_repeated_payment_returns_the_stored_answer(client: GateClient) -> None:
    first = await client.buy(payment())
    client.world.now += 20 * 86_400_000
    again = await client.buy(payment(), body={"q": 1})
    assert again.status_code == 200
    assert again.content == first.content
    assert client.world.computed == 1
    assert client.world.calls["settle"] == 1


async def test_payment_for_another_request_is_rejected(client: GateClient) -> None:
    await client.buy(payment())
    for answer in (
        await client.buy(payment(), body={"q": 2}),
        await client.buy(payment(), path="/v1/b"),
    ):
        assert answer.status_code == 409
        assert answer.json()["code"] == "payment-reused"
    assert client.world.computed == 1


async def test_payment_copied_from_the_chain_does_not_return_the_stored_answer(
    client: GateClient,
) -> None:
    """A settled transaction reveals all of the payment except its ticket."""
    asked = (await client.buy()).json()["extensions"]
    other = (await client.buy()).json()["extensions"]
    bought = await client.buy(payment(extensions=asked))
    assert bought.status_code == 200
    assert (await client.buy(payment(extensions=asked))).content == bought.content
    misplaced = {"tollgauge": asked["tollgauge"]["info"]}
    guesses: tuple[object, ...] = (None, {}, other, misplaced, {"tollgauge": []})
    for guess in guesses:
        assert (await client.buy(payment(extensions=guess))).status_code == 409
    assert client.world.calls["settle"] == 1


async def test_copies_of_one_payment_run_the_handler_once(
    client: GateClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly() -> None:
        await asyncio.sleep(0.1)

    monkeypatch.setattr(gate_module, "POLL_DELAYS_S", (0.1,) * 600)  # also on a busy machine
    client.world.compute = slowly
    answers = await asyncio.gather(*(client.buy(payment()) for _ in range(30)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert client.world.computed == 1
    assert client.world.calls["settle"] == 1


async def test_invalid_input_is_rejected_before_the_claim(client: GateClient) -> None:
    for body, status in (("{", 400), ("[1]", 422), ('{"x": 1}', 422)):
        answer = await client.http.post(
            "/v1/a", content=body, headers={"PAYMENT-SIGNATURE": payment()}
        )
        assert answer.status_code == status
    assert not client.world.calls
    assert await client.store.reading(payments.latest, limit=5) == ()


async def test_invalid_payment_header_returns_400(client: GateClient) -> None:
    for junk in ("x", "e30=", base64.b64encode(b"[" * 9_000).decode()):
        assert (await client.buy(junk)).status_code == 400
    assert not client.world.calls


def make_unaccepted(nonce: int = 1, **changes: Any) -> str:
    """The form of published clients: scheme and network, and no `accepted`."""
    document = json.loads(base64.b64decode(payment(nonce)))
    accepted = document.pop("accepted")
    document |= {"scheme": accepted["scheme"], "network": accepted["network"]} | changes
    return base64.b64encode(json.dumps(document).encode()).decode()


async def test_payment_without_accepted_pays_the_matching_offer(
    client: GateClient,
) -> None:
    asked: list[Any] = []

    async def keep_request(request: Request) -> Response:
        asked.append(await request.json())
        return (
            JSONResponse({"isValid": True}) if "verify" in request.url.path else settled_response()
        )

    client.world.bend = keep_request
    answer = await client.buy(make_unaccepted())
    assert answer.status_code == 200, answer.text
    assert (await client.buy(make_unaccepted())).content == answer.content
    assert client.world.computed == 1
    (offer,) = (await client.buy()).json()["accepts"]
    assert len(asked) == 2
    for sent in asked:
        assert sent["paymentPayload"]["accepted"] == offer
        assert sent["paymentPayload"].keys() == {"x402Version", "accepted", "payload"}
        assert sent["paymentRequirements"] == offer


async def test_payment_with_and_without_accepted_has_one_id(client: GateClient) -> None:
    first = await client.buy(make_unaccepted())
    again = await client.buy(payment())
    assert (again.status_code, again.content) == (200, first.content)
    assert client.world.calls["settle"] == 1


@pytest.mark.parametrize(
    "changes", [{"network": "eip155:1"}, {"scheme": "upto"}, {"network": None}, {"scheme": 1}]
)
async def test_payment_without_accepted_or_matching_offer_returns_400(
    client: GateClient, changes: dict[str, Any]
) -> None:
    answer = await client.buy(make_unaccepted(**changes))
    assert answer.status_code == 400
    assert "accepted" in answer.json()["detail"]
    assert not client.world.calls


async def test_payment_without_accepted_is_compared_with_the_offer(client: GateClient) -> None:
    document = json.loads(base64.b64decode(make_unaccepted()))
    document["payload"]["authorization"]["value"] = "1"
    header = base64.b64encode(json.dumps(document).encode()).decode()
    answer = await client.buy(header)
    assert (answer.status_code, answer.json()["error"]) == (402, "amount_mismatch")
    assert not client.world.calls


async def test_two_payments_in_one_request_return_400(client: GateClient) -> None:
    """Which of them pays would be a matter of taste."""
    two = [("PAYMENT-SIGNATURE", payment(1)), ("PAYMENT-SIGNATURE", payment(2))]
    answer = await client.http.post("/v1/a", content='{"q": 1}', headers=two)
    assert answer.status_code == 400
    assert not client.world.calls


@pytest.mark.parametrize("field", ["to", "value", "validBefore"])
async def test_payment_that_does_not_match_returns_402_without_verification(
    client: GateClient, field: str
) -> None:
    wrong = {"to": "0x" + "11" * 20, "value": "1", "validBefore": str(NOW // 1000)}[field]
    answer = await client.buy(payment(signed={field: wrong}))
    assert answer.status_code == 402
    assert "PAYMENT-REQUIRED" in answer.headers
    assert not client.world.calls


async def test_rejected_payment_releases_its_claim(client: GateClient) -> None:
    client.world.verify = lambda: JSONResponse(
        {"isValid": False, "invalidReason": "insufficient_funds"}
    )
    answer = await client.buy(payment())
    assert answer.status_code == 402
    assert answer.json()["error"] == "insufficient_funds"
    assert client.world.computed == 0
    client.world.verify = None
    assert (await client.buy(payment(), body={"q": 5})).json() == {"answer": 5}


async def test_nonce_signed_again_is_compared_with_the_new_signature(
    client: GateClient,
) -> None:
    """With the earlier terms, the chain would report another transfer."""
    client.world.verify = lambda: JSONResponse({"isValid": False})
    assert (await client.buy(payment())).status_code == 402
    client.world.verify = None
    until = NOW // 1000 + 200
    again = payment(signed={"validBefore": str(until), "value": "20000"})
    assert (await client.buy(again, path="/v1/dear")).status_code == 200
    row = await client.row(again)
    assert (row.authorization.value, row.valid_before_s, row.amount) == (20_000, until, 20_000)


async def test_rejected_payment_is_deleted_after_a_day(
    client: GateClient,
) -> None:
    """Anyone may send any number of them, of 16 KB each."""
    client.world.verify = lambda: JSONResponse({"isValid": False})
    await client.buy(payment(1))
    assert (await client.row(payment(1))).header == ""
    client.world.verify = None
    await client.buy(payment(2))
    client.world.verify = lambda: JSONResponse({"isValid": False})
    client.world.now += REJECTED_MS + 1
    await client.buy(payment(3, signed={"validBefore": str(client.world.now // 1000 + 300)}))
    assert await client.store.writing(payments.forget_rejected, now=client.world.now, limit=9) == 1
    kept = await client.store.writing(payments.latest, limit=5)
    counted = await execute(client.store, attempts.payment_attempt.select())
    assert {row.nonce[-1] for row in kept} == {"2", "3"}
    assert {row["payment_id"] for row in counted.mappings()} == {row.id for row in kept}
