"""Never twice: a purchase has one payment until the chain or the owner decides."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from guard.cases.sample_bundle import PAYEE, Row
from opentelemetry import trace
from tests.support.guard_seller import OTHER_PAYEE, Answer, Seller, receipt
from tests.support.paying_clients import payer_of
from x402 import x402Client
from x402.http.clients.httpx import PaymentError

from tollgauge.demo.chain import ACCOUNTS, NETWORK, Chain, run_chain
from tollgauge_guard import (
    Ask,
    GuardedClient,
    PaymentRefusedError,
    PaymentUnresolved,
    Policy,
    guarded,
    paying,
)
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.codes import Code
from tollgauge_guard.nodes import NodeReader, Reading
from tollgauge_guard.opinion import Preflight
from tollgauge_guard.payment import Evidence, Payment, State

pytestmark = pytest.mark.asyncio(loop_scope="module")
Open = Callable[..., GuardedClient]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chain() -> AsyncIterator[Chain]:
    async with run_chain() as running:
        yield running


@pytest.fixture
def opened(
    seller: Seller,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
    tmp_path: Any,
) -> Open:
    def make(payer: x402Client | None = None, **options: Any) -> GuardedClient:
        usual: dict[str, Any] = {
            "journal": str(tmp_path / "journal.sqlite"),
            "transport": httpx.AsyncHTTPTransport(verify=False),
        }
        bundle = FixedBundle(bundle_of({f"{seller.url}/data": known()}))
        return guarded(payer or payer_of(ACCOUNTS[1]), bundle=bundle, **usual | options)

    return make


async def read_unresolved(http: GuardedClient, url: str) -> PaymentUnresolved:
    with pytest.raises(PaymentUnresolved) as caught:
        await http.get(url)
    return caught.value


def answer_later(_call: object) -> Answer:
    """A 402 as the official SDK answers while a settlement is pending."""
    return Answer(402, {"PAYMENT-RESPONSE": "e30="}, b'{"error":"settlement_pending"}')


async def test_payment_of_one_wallet_is_never_sent_for_another(
    seller: Seller, opened: Open
) -> None:
    """They share a journal, as all programs of a user do."""
    seller.answer = lambda _call: Answer(503)
    async with opened(payer_of(ACCOUNTS[1])) as first, opened(payer_of(ACCOUNTS[2])) as second:
        await first.get(f"{seller.url}/data")
        seller.answer = lambda _call: receipt()
        assert (await second.get(f"{seller.url}/data")).status_code == 200
        (open_one,) = first.guard.unresolved()
        assert open_one.payer == ACCOUNTS[1].address.lower()
        assert second.guard.unresolved() == ()
    payers = [paid["payload"]["authorization"]["from"].lower() for paid in seller.payments]
    assert payers == [ACCOUNTS[1].address.lower(), ACCOUNTS[2].address.lower()]


@pytest.mark.parametrize("status", [400, 402, 409, 500])
async def test_only_complete_2xx_permits_a_second_payment(
    seller: Seller, opened: Open, status: int
) -> None:
    seller.answer = answer_later if status == 402 else lambda _call: Answer(status)
    async with opened() as http:
        for _ in range(3):
            assert (await http.get(f"{seller.url}/data")).status_code == status
        seller.answer = lambda _call: receipt()
        assert (await http.get(f"{seller.url}/data")).status_code == 200
    assert len(seller.payments) == 4
    assert all(paid == seller.payments[0] for paid in seller.payments)


async def test_expired_payment_is_unresolved_without_node_until_purchase_ends(
    seller: Seller, opened: Open
) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        await http.get(f"{seller.url}/data")
        (payment,) = http.guard.unresolved()
    clock = [float(payment.valid_before)]
    async with opened() as http:
        http.guard.clock = lambda: clock[0]
        error = await read_unresolved(http, f"{seller.url}/data")
        assert (error.code, error.nonce) == (Code.PAYMENT_UNRESOLVED, payment.nonce)
        assert (error.state, error.network) == (State.OPEN, payment.network)
        assert (error.handle, error.retry_until) == (payment.handle, payment.valid_before - 6)
        assert f"tollgauge-guard unresolved --journal {http.guard.journal.path}" in error.remedy
        clock[0] = payment.ends_at - 1
        await read_unresolved(http, f"{seller.url}/data")
        clock[0] = payment.ends_at
        with pytest.raises(PaymentRefusedError) as refused:  # the SDK signs by the real clock
            await http.get(f"{seller.url}/data")
        assert refused.value.code == Code.SIGNED_DIFFERS
        lapsed = http.guard.journal.payment(payment.id)
    assert lapsed is not None
    assert lapsed.state == State.LAPSED
    assert len(seller.payments) == 1


async def test_given_purchase_never_ends(seller: Seller, opened: Open) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        with paying(purchase="order-42"):
            await http.get(f"{seller.url}/data")
            (payment,) = http.guard.unresolved()
            http.guard.clock = lambda: payment.ends_at + 10**6
            await read_unresolved(http, f"{seller.url}/data?other=1")
        (payment,) = http.guard.unresolved()
    assert (payment.purchase, payment.state) == ("key:order-42", State.OPEN)
    assert len(seller.payments) == 1


async def test_another_purchase_of_same_url_is_paid(seller: Seller, opened: Open) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        for order in ("1", "2"):
            with paying(purchase=order):
                await http.get(f"{seller.url}/data")
        assert len(http.guard.unresolved()) == 2


async def test_values_of_a_call_tighten(seller: Seller, opened: Open) -> None:
    async with opened() as http:
        with paying(max_amount=4_999), pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
        assert refused.value.code == Code.OVER_CALL_CAP
        with paying(expect_pay_to=OTHER_PAYEE), pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
        assert refused.value.code == Code.PAYTO_UNEXPECTED
        with paying(max_amount=5_000, expect_pay_to=PAYEE):
            assert (await http.get(f"{seller.url}/data")).status_code == 200
    assert len(seller.payments) == 1


async def test_node_that_shows_a_payment_used_ends_the_signing(
    seller: Seller, opened: Open, chain: Chain
) -> None:
    """Only the owner lets the guard pay for that purchase again."""
    seller.answer = lambda _call: Answer(503)
    async with opened(nodes={NETWORK: chain.rpc_url}) as http:
        await http.get(f"{seller.url}/data")
        (paid,) = seller.payments
        await chain.mint(ACCOUNTS[1].address, 1_000_000)
        await settle(chain, paid)
        (payment,) = http.guard.unresolved()
        http.guard.clock = lambda: float(payment.valid_before)
        found = await asyncio.to_thread(http.guard.resolve, payment.handle)
        assert found.state == State.PAID_UNANSWERED
        error = await read_unresolved(http, f"{seller.url}/data")
        assert error.state == State.PAID_UNANSWERED
        assert "pay-again" in error.remedy
        closed = await asyncio.to_thread(http.guard.resolve, payment.handle, write_off=True)
        assert closed.state == State.WRITTEN_OFF
        http.guard.clock = time.time
        seller.answer = lambda _call: receipt()
        assert (await http.get(f"{seller.url}/data")).status_code == 200
        (_, second) = http.guard.journal.payments()
    assert second.replaces == payment.id
    assert len({paid["payload"]["authorization"]["nonce"] for paid in seller.payments}) == 2


async def test_node_that_shows_a_payment_dead_makes_way_for_the_next(
    seller: Seller, opened: Open, chain: Chain
) -> None:
    """Dead: unused at a block after its validity, with twelve blocks on top of it."""
    seller.answer = lambda _call: Answer(503)
    async with opened(nodes={NETWORK: chain.rpc_url}) as http:
        await http.get(f"{seller.url}/data")
        (payment,) = http.guard.unresolved()
        ahead = max(0, payment.valid_before - int(time.time())) + 5
        await chain.rpc("evm_increaseTime", ahead)
        await chain.rpc("anvil_mine", hex(1))
        fresh = await asyncio.to_thread(http.guard.resolve, payment.handle)
        assert fresh.state == State.OPEN, "too few blocks"
        await chain.rpc("anvil_mine", hex(12))
        dead = await asyncio.to_thread(http.guard.resolve, str(payment.nonce))
        assert (dead.state, dead.exposure) == (State.DEAD, 0)
        seller.answer = lambda _call: receipt()
        assert (await http.get(f"{seller.url}/data")).status_code == 200
    assert len({paid["payload"]["authorization"]["nonce"] for paid in seller.payments}) == 2


@pytest.mark.parametrize("answer", [True, False])
async def test_consent_is_required_before_a_lost_purchase_is_paid_again(
    seller: Seller, opened: Open, answer: bool
) -> None:
    questions: list[Code] = []

    def ask(question: Ask, _url: str) -> bool:
        questions.append(question.code)
        return answer

    seller.answer = lambda _call: Answer(503)
    async with opened(ask=ask) as http:
        await http.get(f"{seller.url}/data")
        (payment,) = http.guard.unresolved()
        used = NodesThatShow(Evidence.USED)
        http.guard.nodes = used
        seller.pay_to = OTHER_PAYEE  # the payment must not be sent again for another offer
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
        found = http.guard.journal.payment(payment.id)
    assert found is not None
    assert questions == [Code.PAY_AGAIN]
    assert found.state == (State.WRITTEN_OFF if answer else State.PAID_UNANSWERED)
    assert refused.value.code == (Code.PAYTO_UNKNOWN if answer else Code.PAYMENT_UNRESOLVED)


async def test_reorganisation_opens_a_paid_payment_again(seller: Seller, opened: Open) -> None:
    changes: list[State] = []
    seller.answer = lambda _call: Answer(503)
    async with opened(on_change=lambda payment, _event: changes.append(payment.state)) as http:
        await http.get(f"{seller.url}/data")
        (payment,) = http.guard.unresolved()
        for evidence in (Evidence.USED, Evidence.UNUSED, Evidence.UNKNOWN, Evidence.DEAD):
            http.guard.nodes = NodesThatShow(evidence)
            http.guard.resolve(payment.handle)
    assert changes == [
        *(State.OPEN, State.PAID_UNANSWERED, State.OPEN, State.OPEN, State.DEAD),
    ]


async def test_loss_budget_asks_for_payments_at_that_host(seller: Seller, opened: Open) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        for number in range(3):
            await http.get(f"{seller.url}/data?{number}")
        for payment in http.guard.unresolved():
            http.guard.resolve(payment.handle, write_off=True)
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data?next")
    assert refused.value.code == Code.OVER_LOSS_BUDGET
    assert len(seller.payments) == 3


async def test_stopped_guard_refuses_everything(seller: Seller, opened: Open) -> None:
    async with opened() as http:
        assert (await http.get(f"{seller.url}/data")).status_code == 200
        http.guard.stop()
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
    assert refused.value.code == Code.STOPPED
    assert len(seller.payments) == 1


@pytest.mark.parametrize("is_good", [True, False])
async def test_owner_decides_what_answers_a_purchase(
    seller: Seller, opened: Open, is_good: bool
) -> None:
    seen: list[tuple[int, bytes]] = []

    def is_answer(status: int, _headers: Mapping[str, str], body: bytes) -> bool:
        seen.append((status, body))
        return is_good

    async with opened(is_answer=is_answer) as http:
        answer = await http.get(f"{seller.url}/data")
        assert answer.json() == {"ok": True}
        payment = http.guard.payment(answer)
    assert seen == [(200, b'{"ok": true}')]
    assert payment is not None
    assert payment.state == (State.DELIVERED if is_good else State.OPEN)


async def test_callback_that_fails_changes_nothing(seller: Seller, opened: Open) -> None:
    def fail(_payment: Payment, _event: object) -> None:
        raise RuntimeError("broken")

    async with opened(on_change=fail) as http:
        answer = await http.get(f"{seller.url}/data")
        payment = http.guard.payment(answer)
    assert payment is not None
    assert payment.state == State.DELIVERED


async def test_function_that_fails_leaves_the_payment_open(seller: Seller, opened: Open) -> None:
    def fail(_status: int, _headers: Mapping[str, str], _body: bytes) -> bool:
        raise RuntimeError("broken")

    async with opened(is_answer=fail) as http:
        answer = await http.get(f"{seller.url}/data")
        payment = http.guard.payment(answer)
    assert answer.json() == {"ok": True}
    assert payment is not None
    assert payment.state == State.OPEN


async def test_open_payment_is_judged_again_before_it_is_sent(
    seller: Seller, opened: Open, known: Callable[..., Row], bundle_of: Callable[..., Bundle]
) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        await http.get(f"{seller.url}/data")
    async with opened() as http:
        http.guard.bundles = FixedBundle(bundle_of({f"{seller.url}/data": known("avoid")}))
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
    assert refused.value.code == Code.AVOID
    assert len(seller.payments) == 1


async def test_first_allowed_offer_is_paid_in_the_seller_s_order(
    seller: Seller, opened: Open
) -> None:
    def add(required: dict[str, Any]) -> None:
        (offer,) = required["accepts"]
        required["accepts"] = [
            offer | {"payTo": OTHER_PAYEE, "amount": "1"},
            offer | {"amount": "6000"},
            offer,
        ]

    seller.change = add
    async with opened() as http:
        assert (await http.get(f"{seller.url}/data")).status_code == 200
        assert http.guard.journal.refusals() == ()
    (paid,) = seller.payments
    assert paid["payload"]["authorization"]["value"] == "6000"


async def test_refusal_of_the_best_offer_is_raised_and_recorded(
    seller: Seller, opened: Open
) -> None:
    def add(required: dict[str, Any]) -> None:
        (offer,) = required["accepts"]
        required["accepts"] = [offer | {"payTo": OTHER_PAYEE}, offer | {"maxTimeoutSeconds": 9_999}]

    seller.change = add
    async with opened() as http:
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
        (recorded,) = http.guard.journal.refusals()
    assert refused.value.code == recorded.code == Code.PAYTO_UNKNOWN
    assert refused.value.remedy
    assert recorded.host == "127.0.0.1"


async def test_refusal_of_the_sdk_is_recorded(seller: Seller, opened: Open) -> None:
    payer = payer_of(ACCOUNTS[1])
    payer.set_spend_controls({"max_amount_per_payment": "$0.001"})
    async with opened(payer) as http:
        with pytest.raises(PaymentError, match="spend_controls"):
            await http.get(f"{seller.url}/data")
        (recorded,) = http.guard.journal.refusals()
    assert recorded.code == Code.SDK_REFUSED


async def test_purchase_is_named_to_a_seller_that_wants_an_identifier(
    seller: Seller, opened: Open
) -> None:
    def declare(required: dict[str, Any]) -> None:
        info, schema = {"required": False}, {"type": "object"}
        required["extensions"] = {"payment-identifier": {"info": info, "schema": schema}}

    seller.change, seller.answer = declare, lambda _call: Answer(503)
    async with opened() as http:
        for _ in range(2):
            await http.get(f"{seller.url}/data")
        seller.answer = lambda _call: receipt()
        for _ in range(2):
            await http.get(f"{seller.url}/data")
    names = [paid["extensions"]["payment-identifier"]["info"]["id"] for paid in seller.payments]
    assert names[0] == names[1] == names[2]
    assert names[3] != names[0]


class Spans:
    """A tracer that keeps the attributes of its spans."""

    def __init__(self) -> None:
        self.kept: list[dict[str, object]] = []

    @contextlib.contextmanager
    def start_as_current_span(self, name: str) -> Iterator[Any]:
        attributes: dict[str, object] = {"name": name}
        self.kept.append(attributes)
        yield SimpleNamespace(set_attribute=attributes.__setitem__)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"decision": "allow", "code": None}, None),
        ({"decision": "refuse", "code": "avoid"}, Code.AVOID),
        ({"decision": "ask", "code": "unknown-resource"}, Code.UNKNOWN_RESOURCE),
        ({"decision": "refuse", "code": "of a later version"}, Code.UNKNOWN_RESOURCE),
        ([], Code.UNKNOWN_RESOURCE),
        (None, Code.UNKNOWN_RESOURCE),
    ],
    ids=str,
)
async def test_service_gives_a_second_opinion_if_the_owner_wants_it(
    seller: Seller, opened: Open, answer: object, code: Code | None
) -> None:
    asked: list[httpx.QueryParams] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params)
        return httpx.Response(200 if answer is not None else 500, json=answer)

    seller.amount = "20000"
    service = Preflight("https://trust.example.com/x", transport=httpx.MockTransport(respond))
    for wanted in (False, True):
        async with opened(policy=Policy(second_opinion=wanted)) as http:
            http.guard.preflight = service
            try:
                await http.get(f"{seller.url}/other?secret=1")
                found = None
            except PaymentRefusedError as error:
                found = error.code
        assert found == (code if wanted else Code.UNKNOWN_RESOURCE)
    (query,) = asked
    assert dict(query) == {
        "resource": f"{seller.url}/other",
        "payTo": PAYEE,
        "amount": "20000",
        "network": NETWORK,
    }


async def test_payments_and_refusals_are_spans(
    seller: Seller, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = Spans()
    monkeypatch.setattr(trace, "get_tracer", lambda _name: spans)
    async with opened() as http:
        await http.get(f"{seller.url}/data?secret=1")
        (payment,) = http.guard.journal.payments()
        seller.pay_to = OTHER_PAYEE
        with pytest.raises(PaymentRefusedError):
            await http.get(f"{seller.url}/data?secret=2")
    paid, refused = spans.kept
    assert (paid["name"], paid["server.address"]) == ("tollgauge_guard.pay", "127.0.0.1")
    assert (paid["tollgauge.handle"], paid["tollgauge.exposure"]) == (payment.handle, 5_000)
    assert (refused["tollgauge.decision"], refused["tollgauge.code"]) == ("refuse", "payto-unknown")
    assert "secret" not in str(spans.kept)


class NodesThatShow(NodeReader):
    """Nodes that show the same of every payment."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__()
        self._evidence = evidence

    def read(self, _payment: Payment) -> Reading:
        return Reading(self._evidence)


async def settle(chain: Chain, paid: dict[str, Any]) -> None:
    """Take the money of a payment, as anyone can who holds it."""
    from tests.guard.test_typescript import settle as take
    from x402.schemas import PaymentPayload

    await take(chain, PaymentPayload.model_validate(paid))
