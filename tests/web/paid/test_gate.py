"""The payment gate on both databases, against a facilitator that can be bent.

The facilitator is a real HTTP server on loopback; what it answers is the only thing that is
played. Signatures are not looked at here: the real chain is met in tests/system/test_purchase.py.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tollgauge.clients.facilitator import Facilitator, FacilitatorSettings
from tollgauge.core.payment import Offer, State, decode
from tollgauge.db.engine import Store
from tollgauge.demo.serving import serve
from tollgauge.store.ledger import payer_limit, payments
from tollgauge.store.ledger.payments import KEEP_REJECTED_MS
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import gate as gate_module
from tollgauge.web.paid.claim import HeldClaim
from tollgauge.web.paid.gate import LEASE_MS, SETTLE_LEASE_MS, Gate
from tollgauge.web.paid.payment_terms import Sale

NOW = 1_800_000_000_000
PAY_TO = "0x" + "ab" * 20
ASSET = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
TX = "0x" + "77" * 32


@dataclass
class World:
    """A facilitator, a clock and a route whose answers tests may bend."""

    now: int = NOW
    calls: Counter[str] = field(default_factory=Counter)
    verify: Any = None
    settle: Any = None
    bend: Any = None
    compute: Any = None
    computed: int = 0
    hosts: tuple[str, ...] = ()

    def clock(self) -> int:
        return self.now

    async def facilitator(self, request: Request) -> Response:
        verb = request.url.path.strip("/")
        self.calls[verb] += 1
        if self.bend is not None:
            bent: Response = await self.bend(request)
            return bent
        bend = getattr(self, verb)
        if bend is not None:
            made = bend()
            answer: Response = await made if asyncio.iscoroutine(made) else made
            return answer
        if verb == "verify":
            return JSONResponse({"isValid": True})
        return settled()


def settled(**changes: Any) -> Response:
    reply = {"success": True, "transaction": TX, "network": "eip155:8453"} | changes
    return JSONResponse(reply)


@dataclass
class Shop:
    """A server behind the gate and a client in front of it."""

    world: World
    store: Store
    http: httpx.AsyncClient

    async def buy(
        self, header: str | None = None, body: object = None, path: str = "/v1/a"
    ) -> httpx.Response:
        headers = {} if header is None else {"PAYMENT-SIGNATURE": header}
        content = json.dumps({"q": 1} if body is None else body)
        return await self.http.post(path, content=content, headers=headers)

    async def row(self, header: str) -> payments.LedgerRow:
        async with self.store.read() as tx:
            found = await payments.get(tx, decode(header).id)
        assert found is not None
        return found


def payment(nonce: int = 1, signed: dict[str, str] | None = None, extensions: object = None) -> str:
    document: dict[str, object] = {
        "x402Version": 2,
        "accepted": {"scheme": "exact", "network": "eip155:8453", "asset": ASSET},
        "payload": {
            "signature": "0x" + "1b" * 65,
            "authorization": {
                "from": "0x" + "cd" * 20,
                "to": PAY_TO,
                "value": "5000",
                "validAfter": "0",
                "validBefore": str(NOW // 1000 + 300),
                "nonce": f"0x{nonce:064x}",
            }
            | (signed or {}),
        },
    }
    if extensions is not None:
        document["extensions"] = extensions
    return base64.b64encode(json.dumps(document).encode()).decode()


@contextlib.asynccontextmanager
async def opened(store: Store, world: World) -> AsyncIterator[Shop]:
    played = Starlette(
        routes=[
            Route(f"/{verb}", world.facilitator, methods=["POST"]) for verb in ("verify", "settle")
        ]
    )
    async with serve(played) as port:
        facilitator = Facilitator(
            FacilitatorSettings(
                url=f"http://127.0.0.1:{port}", verify_timeout_s=2, settle_timeout_s=0.5
            )
        )
        gate = Gate(store=store, facilitator=facilitator, clock=world.clock)

        async def answer(request: Request) -> Response:
            try:
                return await gate.serve(request, sale(world, request.url.path))
            except Problem as problem:
                return problem.response()

        routes = [Route(path, answer, methods=["POST"]) for path in ("/v1/a", "/v1/b", "/v1/dear")]
        transport = httpx.ASGITransport(Starlette(routes=routes), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
            yield Shop(world, store, http)
        await facilitator.close()


def sale(world: World, path: str) -> Sale:
    async def compute(order: object, _claim: HeldClaim) -> bytes:
        world.computed += 1
        if world.compute is not None:
            await world.compute()
        return json.dumps({"answer": order}).encode()

    def validate(document: object) -> object:
        if not isinstance(document, dict) or "q" not in document:
            raise Problem(422, "invalid-input", "q is missing")
        return document["q"]

    offer = Offer(
        route=path,
        resource=f"http://shop{path}",
        network="eip155:8453",
        asset=ASSET,
        amount=20_000 if path == "/v1/dear" else 5_000,
        pay_to=PAY_TO,
        domain_name="USD Coin",
        domain_version="2",
    )
    return Sale(
        offer=offer,
        description="",
        validate=validate,
        compute=compute,
        hosts=lambda _order: world.hosts,
    )


@pytest.fixture
async def shop(store: Store) -> AsyncIterator[Shop]:
    async with opened(store, World()) as found:
        yield found


async def test_a_request_without_payment_is_told_the_terms_whatever_its_body(shop: Shop) -> None:
    for content in (b"", b"{", b'{"q": 1}', b"\xff"):
        answer = await shop.http.post("/v1/a", content=content)
        assert answer.status_code == 402
        terms = json.loads(base64.b64decode(answer.headers["PAYMENT-REQUIRED"]))
        assert terms == answer.json()
        assert terms["accepts"][0]["amount"] == "5000"
        assert answer.headers["Cache-Control"] == "no-store"
    assert not shop.world.calls


async def test_a_v1_client_is_told_that_this_is_v2(shop: Shop) -> None:
    answer = await shop.http.post("/v1/a", headers={"X-PAYMENT": "e30="})
    assert answer.status_code == 402
    assert "version 2" in answer.json()["error"]


async def test_a_paid_answer_carries_its_receipt(shop: Shop) -> None:
    answer = await shop.buy(payment())
    assert answer.status_code == 200
    assert answer.json() == {"answer": 1}
    receipt = json.loads(base64.b64decode(answer.headers["PAYMENT-RESPONSE"]))
    assert receipt["transaction"] == TX
    assert receipt["success"] is True
    assert receipt["payer"] == "0x" + "cd" * 20
    assert (await shop.row(payment())).state is State.SETTLED


async def test_the_same_payment_gets_the_stored_answer_again(shop: Shop) -> None:
    first = await shop.buy(payment())
    shop.world.now += 20 * 86_400_000
    again = await shop.buy(payment(), body={"q": 1})
    assert again.status_code == 200
    assert again.content == first.content
    assert shop.world.computed == 1
    assert shop.world.calls["settle"] == 1


async def test_the_same_payment_for_another_request_is_refused(shop: Shop) -> None:
    await shop.buy(payment())
    for answer in (
        await shop.buy(payment(), body={"q": 2}),
        await shop.buy(payment(), path="/v1/b"),
    ):
        assert answer.status_code == 409
        assert answer.json()["code"] == "payment-reused"
    assert shop.world.computed == 1


async def test_what_can_be_read_on_the_chain_does_not_fetch_the_stored_answer(shop: Shop) -> None:
    """Whoever reads a settled transaction knows all of the payment but its ticket."""
    asked = (await shop.buy()).json()["extensions"]
    other = (await shop.buy()).json()["extensions"]
    bought = await shop.buy(payment(extensions=asked))
    assert bought.status_code == 200
    assert (await shop.buy(payment(extensions=asked))).content == bought.content
    misplaced = {"tollgauge": asked["tollgauge"]["info"]}
    guesses: tuple[object, ...] = (None, {}, other, misplaced, {"tollgauge": []})
    for guess in guesses:
        assert (await shop.buy(payment(extensions=guess))).status_code == 409
    assert shop.world.calls["settle"] == 1


async def test_many_copies_of_one_payment_run_the_handler_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly() -> None:
        await asyncio.sleep(0.1)

    monkeypatch.setattr(gate_module, "WAITS_S", (0.1,) * 600)  # a busy machine is no news here
    shop.world.compute = slowly
    answers = await asyncio.gather(*(shop.buy(payment()) for _ in range(30)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert shop.world.computed == 1
    assert shop.world.calls["settle"] == 1


async def test_invalid_input_is_refused_before_any_claim(shop: Shop) -> None:
    for body, status in (("{", 400), ("[1]", 422), ('{"x": 1}', 422)):
        answer = await shop.http.post(
            "/v1/a", content=body, headers={"PAYMENT-SIGNATURE": payment()}
        )
        assert answer.status_code == status
    assert not shop.world.calls
    async with shop.store.read() as tx:
        assert await payments.latest(tx, limit=5) == ()


async def test_a_junk_payment_header_is_400(shop: Shop) -> None:
    for junk in ("x", "e30=", base64.b64encode(b"[" * 9_000).decode()):
        assert (await shop.buy(junk)).status_code == 400
    assert not shop.world.calls


def unaccepted(nonce: int = 1, **changes: Any) -> str:
    """The form of published clients: scheme and network, and no `accepted`."""
    document = json.loads(base64.b64decode(payment(nonce)))
    accepted = document.pop("accepted")
    document |= {"scheme": accepted["scheme"], "network": accepted["network"]} | changes
    return base64.b64encode(json.dumps(document).encode()).decode()


async def test_a_payment_without_accepted_pays_the_offer_of_its_scheme_and_network(
    shop: Shop,
) -> None:
    asked: list[Any] = []

    async def kept(request: Request) -> Response:
        asked.append(await request.json())
        return JSONResponse({"isValid": True}) if "verify" in request.url.path else settled()

    shop.world.bend = kept
    answer = await shop.buy(unaccepted())
    assert answer.status_code == 200, answer.text
    assert (await shop.buy(unaccepted())).content == answer.content
    assert shop.world.computed == 1
    (offer,) = (await shop.buy()).json()["accepts"]
    assert len(asked) == 2
    for sent in asked:
        assert sent["paymentPayload"]["accepted"] == offer
        assert sent["paymentPayload"].keys() == {"x402Version", "accepted", "payload"}
        assert sent["paymentRequirements"] == offer


async def test_with_and_without_accepted_it_is_one_payment(shop: Shop) -> None:
    first = await shop.buy(unaccepted())
    again = await shop.buy(payment())
    assert (again.status_code, again.content) == (200, first.content)
    assert shop.world.calls["settle"] == 1


@pytest.mark.parametrize(
    "changes", [{"network": "eip155:1"}, {"scheme": "upto"}, {"network": None}, {"scheme": 1}]
)
async def test_a_payment_without_accepted_that_names_no_offer_is_400(
    shop: Shop, changes: dict[str, Any]
) -> None:
    answer = await shop.buy(unaccepted(**changes))
    assert answer.status_code == 400
    assert "accepted" in answer.json()["detail"]
    assert not shop.world.calls


async def test_what_was_signed_without_accepted_is_compared_as_always(shop: Shop) -> None:
    document = json.loads(base64.b64decode(unaccepted()))
    document["payload"]["authorization"]["value"] = "1"
    header = base64.b64encode(json.dumps(document).encode()).decode()
    answer = await shop.buy(header)
    assert (answer.status_code, answer.json()["error"]) == (402, "amount_mismatch")
    assert not shop.world.calls


async def test_two_payments_in_one_request_are_400(shop: Shop) -> None:
    """Which of them pays would be a matter of taste."""
    two = [("PAYMENT-SIGNATURE", payment(1)), ("PAYMENT-SIGNATURE", payment(2))]
    answer = await shop.http.post("/v1/a", content='{"q": 1}', headers=two)
    assert answer.status_code == 400
    assert not shop.world.calls


@pytest.mark.parametrize("field", ["to", "value", "validBefore"])
async def test_a_payment_that_does_not_pay_the_offer_is_402_unasked(shop: Shop, field: str) -> None:
    wrong = {"to": "0x" + "11" * 20, "value": "1", "validBefore": str(NOW // 1000)}[field]
    answer = await shop.buy(payment(signed={field: wrong}))
    assert answer.status_code == 402
    assert "PAYMENT-REQUIRED" in answer.headers
    assert not shop.world.calls


async def test_a_refused_payment_gives_its_claim_back(shop: Shop) -> None:
    shop.world.verify = lambda: JSONResponse(
        {"isValid": False, "invalidReason": "insufficient_funds"}
    )
    answer = await shop.buy(payment())
    assert answer.status_code == 402
    assert answer.json()["error"] == "insufficient_funds"
    assert shop.world.computed == 0
    shop.world.verify = None
    assert (await shop.buy(payment(), body={"q": 5})).json() == {"answer": 5}


async def test_a_nonce_that_is_signed_again_is_held_to_what_is_signed_now(shop: Shop) -> None:
    """A chain that is asked about the terms of before would call the payment another transfer."""
    shop.world.verify = lambda: JSONResponse({"isValid": False})
    assert (await shop.buy(payment())).status_code == 402
    shop.world.verify = None
    until = NOW // 1000 + 200
    again = payment(signed={"validBefore": str(until), "value": "20000"})
    assert (await shop.buy(again, path="/v1/dear")).status_code == 200
    row = await shop.row(again)
    assert (row.authorization.value, row.valid_before_s, row.amount) == (20_000, until, 20_000)


async def test_of_a_rejected_payment_no_header_is_kept_and_after_a_day_nothing(shop: Shop) -> None:
    """Anyone may send any number of them, of 16 KB each."""
    shop.world.verify = lambda: JSONResponse({"isValid": False})
    await shop.buy(payment(1))
    assert (await shop.row(payment(1))).header == ""
    shop.world.verify = None
    await shop.buy(payment(2))
    shop.world.verify = lambda: JSONResponse({"isValid": False})
    shop.world.now += KEEP_REJECTED_MS + 1
    await shop.buy(payment(3, signed={"validBefore": str(shop.world.now // 1000 + 300)}))
    async with shop.store.write() as tx:
        assert await payments.forget_rejected(tx, now=shop.world.now) == 1
        kept = await payments.latest(tx, limit=5)
        counted = await tx.execute(payments.payment_attempt.select())
    assert {row.nonce[-1] for row in kept} == {"2", "3"}
    assert {row["payment_id"] for row in counted.mappings()} == {row.id for row in kept}


async def test_a_silent_facilitator_is_our_fault_and_costs_nothing(shop: Shop) -> None:
    shop.world.verify = lambda: Response("<html>", status_code=502)
    answer = await shop.buy(payment())
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers
    assert shop.world.computed == 0
    shop.world.verify = None
    assert (await shop.buy(payment())).status_code == 200


async def test_a_handler_that_fails_charges_nothing_and_frees_the_payment(shop: Shop) -> None:
    async def fail() -> None:
        raise Problem(503, "probe-failed-here", "ours")

    shop.world.compute = fail
    assert (await shop.buy(payment())).status_code == 503
    assert shop.world.calls["settle"] == 0
    shop.world.compute = None
    assert (await shop.buy(payment())).status_code == 200


async def test_a_handler_that_crashes_charges_nothing_and_frees_the_payment(shop: Shop) -> None:
    async def crash() -> None:
        raise RuntimeError("a bug")

    shop.world.compute = crash
    assert (await shop.buy(payment())).status_code == 500
    assert shop.world.calls["settle"] == 0
    shop.world.compute = None
    assert (await shop.buy(payment())).status_code == 200


def black_hole() -> Any:
    async def wait() -> Response:
        await asyncio.sleep(2)
        return settled()

    return wait()


UNCLEAR = {
    "500": lambda: JSONResponse({"error": "x"}, status_code=500),
    "html": lambda: Response("<html>", media_type="text/html"),
    "truncated": lambda: Response('{"success": tr', media_type="application/json"),
    "says no": lambda: settled(success=False, errorReason="nonce_used", transaction=""),
    "pending": lambda: settled(success=False, errorReason="settlement_pending"),
    "no transaction": lambda: settled(transaction=""),
    "other network": lambda: settled(network="eip155:1"),
    "black hole": black_hole,
}


@pytest.mark.parametrize("kind", UNCLEAR)
async def test_an_unclear_settlement_is_503_and_never_402(shop: Shop, kind: str) -> None:
    shop.world.settle = UNCLEAR[kind]
    answer = await shop.buy(payment())
    assert answer.status_code == 503
    assert answer.json()["code"] == "payment-pending"
    assert answer.json()["paymentId"] == (await shop.row(payment())).id
    assert "Retry-After" in answer.headers
    assert "answer" not in answer.json()
    assert (await shop.row(payment())).state is State.UNKNOWN
    shop.world.settle = None
    again = await shop.buy(payment())
    assert again.status_code == 200
    assert shop.world.computed == 1


async def test_a_payment_that_a_dead_worker_claimed_is_taken_over(shop: Shop) -> None:
    await abandon(shop, State.CLAIMED)
    assert (await shop.buy(payment())).status_code == 503, "its lease still runs"
    shop.world.now += LEASE_MS + 1
    assert (await shop.buy(payment())).json() == {"answer": 1}


async def test_a_settlement_that_a_dead_worker_began_is_asked_about_again(shop: Shop) -> None:
    await abandon(shop, State.SETTLING)
    assert (await shop.buy(payment())).status_code == 503
    shop.world.now += SETTLE_LEASE_MS + LEASE_MS
    assert (await shop.buy(payment())).json() == {"stored": True}
    assert shop.world.computed == 0


async def test_a_payer_whose_answers_stay_unpaid_is_made_no_more_of_them(shop: Shop) -> None:
    shop.world.settle = UNCLEAR["says no"]
    for nonce in range(payer_limit.MOST):
        assert (await shop.buy(payment(nonce))).status_code == 503
    refused = await shop.buy(payment(99))
    assert (refused.status_code, refused.json()["code"]) == (429, "payer-unpaid")
    assert 0 < int(refused.headers["Retry-After"]) <= 3_600
    assert shop.world.computed == payer_limit.MOST
    other = payment(1, signed={"from": "0x" + "ef" * 20})
    assert (await shop.buy(other)).status_code == 503, "another payer has nothing to do with it"
    shop.world.settle = None
    assert (await shop.buy(payment(0))).status_code == 200, "what was made can still be paid"
    assert (await shop.buy(payment(99))).status_code == 200, "and then there is room again"


async def test_an_unpaid_answer_counts_for_an_hour(shop: Shop) -> None:
    shop.world.settle = UNCLEAR["says no"]
    for nonce in range(payer_limit.MOST):
        await shop.buy(payment(nonce))
    refused = await shop.buy(payment(99))
    shop.world.now += int(refused.headers["Retry-After"]) * 1000
    shop.world.settle = None
    later = {"validBefore": str(shop.world.now // 1000 + 300)}
    assert (await shop.buy(payment(99, signed=later))).status_code == 200


@pytest.mark.parametrize(("status", "last"), [(422, 429), (404, 404), (503, 503)])
async def test_work_that_a_request_makes_vain_counts_and_ours_does_not(
    shop: Shop, status: int, last: int
) -> None:
    async def fail() -> None:
        raise Problem(status, "destination-failed", "x")

    shop.world.compute = fail
    for _ in range(payer_limit.MOST):
        assert (await shop.buy(payment())).status_code == status
    assert (await shop.buy(payment())).status_code == last


async def test_a_caller_waits_no_longer_than_a_proxy_does(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the sale that they waited for goes on."""
    gone_on = asyncio.Event()
    shop.world.compute = gone_on.wait
    monkeypatch.setattr(gate_module, "ANSWER_S", 0.1)
    answer = await shop.buy(payment())
    assert (answer.status_code, answer.json()["code"]) == (503, "payment-pending")
    assert answer.json()["paymentId"] == decode(payment()).id
    gone_on.set()
    monkeypatch.setattr(gate_module, "ANSWER_S", 60.0)
    monkeypatch.setattr(gate_module, "WAITS_S", (0.1,) * 600)
    assert (await shop.buy(payment())).status_code == 200
    assert shop.world.computed == 1


async def test_a_copy_that_waits_is_not_given_the_answer_of_another_request(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payment that it waits for is rejected, and then pays for something else."""
    began = asyncio.Event()

    class Waits:
        def __iter__(self) -> Iterator[float]:
            began.set()
            yield from (0.05,) * 600

    monkeypatch.setattr(gate_module, "WAITS_S", Waits())
    await abandon(shop, State.CLAIMED)
    waiting = asyncio.create_task(shop.buy(payment()))
    await began.wait()
    async with shop.store.write() as tx:
        held = await payments.get(tx, decode(payment()).id)
        assert held is not None
        await payments.move(tx, held, State.REJECTED, now=NOW)
        claim = await payments.claim(
            tx,
            decode(payment()),
            sale(shop.world, "/v1/a").offer,
            digest="of another request",
            owner="other",
            now=NOW,
            lease_ms=LEASE_MS,
        )
        answer = payments.StoredAnswer(status=200, body=b"{}")
        made = await payments.move(tx, claim.row, State.SETTLING, now=NOW, answer=answer)
        assert made is not None
        await payments.conclude(
            tx, made, State.SETTLED, now=NOW, transaction=TX, reason="paid", lease_ms=0
        )
    assert (await waiting).status_code == 409


async def abandon(shop: Shop, state: State) -> None:
    """Leave a payment as a worker that died in `state` would."""
    from tollgauge.core.payment import canonical_body, request_digest

    digest = request_digest("POST", "/v1/a", canonical_body({"q": 1}))
    async with shop.store.write() as tx:
        claim = await payments.claim(
            tx,
            decode(payment()),
            sale(shop.world, "/v1/a").offer,
            digest=digest,
            owner="dead",
            now=NOW,
            lease_ms=LEASE_MS,
        )
        row = claim.row
        if state is not State.CLAIMED:
            answer = payments.StoredAnswer(status=200, body=b'{"stored": true}')
            moved = await payments.move(
                tx, row, state, now=NOW, answer=answer, lease_ms=SETTLE_LEASE_MS
            )
            row = moved or row
    assert row.state is state


async def test_nothing_is_settled_before_its_answer_is_stored(shop: Shop) -> None:
    await abandon(shop, State.CLAIMED)
    held = await shop.store.reading(payments.get, decode(payment()).id)
    assert held is not None
    with pytest.raises(ValueError, match="answer"):
        await shop.store.writing(payments.move, held, State.SETTLING, now=NOW)


async def test_a_worker_that_lost_its_lease_cannot_write(shop: Shop) -> None:
    await abandon(shop, State.CLAIMED)
    stale = await shop.row(payment())
    shop.world.now += LEASE_MS + 1
    await shop.buy(payment())
    async with shop.store.write() as tx:
        assert await payments.move(tx, stale, State.REJECTED, now=shop.world.now) is None
    assert (await shop.row(payment())).state is State.SETTLED


async def test_no_move_leaves_the_table_of_states(shop: Shop) -> None:
    await abandon(shop, State.CLAIMED)
    row = await shop.row(payment())
    async with shop.store.write() as tx:
        with pytest.raises(ValueError, match="cannot go"):
            await payments.move(tx, row, State.SETTLED, now=NOW)


async def test_every_attempt_is_recorded(shop: Shop) -> None:
    shop.world.settle = UNCLEAR["500"]
    await shop.buy(payment())
    shop.world.settle = None
    await shop.buy(payment())
    async with shop.store.read() as tx:
        rows = (
            await tx.execute(
                payments.payment_attempt.select().order_by(payments.payment_attempt.c.id)
            )
        ).mappings()
        found = [(row["kind"], row["outcome"]) for row in rows]
    assert [kind for kind, _ in found] == ["verify", "intent", "settle", "intent", "settle"]
    assert found[-1] == ("settle", "settled")
