"""The guard inside the official httpx client, against a real server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from guard.cases.sample_bundle import PAYEE, Row
from tests.support.guard_payments import purchase
from tests.support.guard_seller import ACCOUNT, OTHER_PAYEE, USDC, Answer, Call, Seller, receipt
from x402 import x402Client
from x402.http.clients.httpx import PaymentError, x402AsyncTransport
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from tollgauge.demo.serving import closed_port
from tollgauge_guard import (
    MEMORY,
    Ask,
    Asset,
    GuardedClient,
    PaymentRefusedError,
    Policy,
    Unknown,
    guarded,
    paying,
)
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.codes import REMEDIES, Code
from tollgauge_guard.guard import HANDLE
from tollgauge_guard.httpx_client import GuardedTransport
from tollgauge_guard.journal import Journal, Reserved
from tollgauge_guard.payment import State

Open = Callable[..., GuardedClient]


@pytest.fixture
def opened(
    seller: Seller,
    payer: x402Client,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
) -> Open:
    def make(record: Row | None = None, **options: Any) -> GuardedClient:
        bundle = bundle_of({f"{seller.url}/data": record or known()})
        # TLS is not used, and loading the authorities takes longer than the rest of the test.
        usual: dict[str, Any] = {
            "journal": MEMORY,
            "transport": httpx.AsyncHTTPTransport(verify=False),
        }
        return guarded(payer, bundle=FixedBundle(bundle), **usual | options)

    return make


async def test_good_seller_is_paid_and_recorded(seller: Seller, opened: Open) -> None:
    async with opened() as http:
        answer = await http.post(f"{seller.url}/data?q=1", json={"a": 1})
        assert answer.status_code == 200
        (entry,) = http.guard.journal.payments()
    (payment,) = seller.payments
    assert payment["payload"]["authorization"]["nonce"].lower() == entry.nonce
    assert entry.state == State.DELIVERED
    assert (entry.status, entry.settlement) == (200, "0x" + "ab" * 32)
    assert entry.resource == f"{seller.url}/data"


async def test_another_payee_is_refused_before_anything_is_signed(
    seller: Seller, opened: Open
) -> None:
    seller.pay_to = OTHER_PAYEE
    async with opened() as http:
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
        assert http.guard.journal.payments() == ()
    assert refused.value.code == Code.PAYTO_UNKNOWN
    assert not seller.payments


async def test_allowed_token_is_accepted_in_any_case_of_its_address(
    seller: Seller, opened: Open, payer: x402Client
) -> None:
    token = "0x6B175474E89094C44Da98b954EedeAC495271d0F"
    seller.ask = lambda offer: offer.update(asset=token.lower())
    payer.set_spend_controls(False)
    async with opened(policy=Policy(assets=(Asset("eip155:8453", token),))) as http:
        assert await status(http, f"{seller.url}/data") == 200
        seller.pay_to = token.lower()
        assert await status(http, f"{seller.url}/data?2") == Code.PAYTO_MALFORMED


async def test_refusal_has_reason_and_remedy(seller: Seller, opened: Open) -> None:
    seller.amount = "10001"
    async with opened() as http:
        with pytest.raises(PaymentRefusedError, match=r"price-jump: \$0.010001 .* `price_factor`"):
            await http.get(f"{seller.url}/data")
    assert set(REMEDIES) == set(Code)


async def test_redirect_is_decided_by_record_of_its_target(seller: Seller, opened: Open) -> None:
    seller.unpaid = lambda call: (
        None
        if call.host.startswith("localhost")
        else Answer(302, {"Location": f"http://localhost:{seller.port}{call.path}"})
    )
    async with opened(follow_redirects=True, policy=Policy(unknown=Unknown.REFUSE)) as http:
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
    assert refused.value.code == Code.UNKNOWN_RESOURCE
    assert not seller.payments


async def test_redirect_on_same_host_is_paid(seller: Seller, opened: Open) -> None:
    seller.unpaid = lambda call: (
        None if call.path == "/data" else Answer(307, {"Location": f"{seller.url}/data"})
    )
    async with opened(follow_redirects=True) as http:
        assert (await http.post(f"{seller.url}/old", json={"a": 1})).status_code == 200
    assert [call.path for call in seller.calls] == ["/old", "/data", "/data"]


async def test_redirect_after_payment_is_followed_and_not_paid_again(
    seller: Seller, opened: Open
) -> None:
    seller.answer = lambda _call: Answer(307, {"Location": "/data?again"})
    async with opened(follow_redirects=True) as http:
        assert await status(http, f"{seller.url}/data") == 402
        assert len(seller.payments) == 1
        seller.unpaid = lambda call: Answer() if call.path == "/data?again" else None
        assert await status(http, f"{seller.url}/data") == 200
    assert [call.path for call in seller.calls if call.payment] == ["/data"] * 2


async def test_transport_in_a_plain_client_does_not_pay_after_a_redirect(
    seller: Seller, opened: Open, payer: x402Client
) -> None:
    """httpx copies the extensions of a request to its redirects, and with them the call."""
    seller.answer = lambda _call: Answer(307, {"Location": "/data?again"})
    async with opened() as guarded_http:
        transport = GuardedTransport(guarded_http.guard, payer, httpx.AsyncHTTPTransport())
        async with httpx.AsyncClient(transport=transport, follow_redirects=True) as http:
            assert (await http.get(f"{seller.url}/data")).status_code == 402
        (payment,) = guarded_http.guard.journal.payments()
    assert [call.path for call in seller.calls] == ["/data", "/data", "/data?again"]
    assert payment.state == State.OPEN


async def test_more_than_ten_redirects_are_not_followed(seller: Seller, opened: Open) -> None:
    numbers = itertools.count()
    seller.unpaid = lambda _call: Answer(302, {"Location": f"/{next(numbers)}"})
    async with opened(follow_redirects=True) as http:
        with pytest.raises(httpx.TooManyRedirects):
            await http.get(f"{seller.url}/data")
    assert len(seller.calls) == 11


async def test_request_object_that_is_sent_twice_is_two_calls(seller: Seller, opened: Open) -> None:
    async with opened() as http:
        request = http.build_request("GET", f"{seller.url}/data")
        for _ in range(2):
            assert (await http.send(request)).status_code == 200
    assert len(seller.payments) == 2


async def test_402_that_names_another_host_is_a_warning_if_payto_and_price_are_known(
    seller: Seller, opened: Open, log_records: list[logging.LogRecord]
) -> None:
    seller.change = lambda required: required["resource"].update(url="https://other.example.com/")
    async with opened() as http:
        assert await status(http, f"{seller.url}/data") == 200
        warnings = [record for record in log_records if record.levelno == logging.WARNING]
        assert any("payment.resource_mismatch" in record.getMessage() for record in warnings)
        assert await status(http, f"{seller.url}/unknown") == Code.RESOURCE_MISMATCH
        seller.pay_to = OTHER_PAYEE
        assert await status(http, f"{seller.url}/data?2") == Code.RESOURCE_MISMATCH
    assert len(seller.payments) == 1


@pytest.mark.usefixtures("one_day")
async def test_fifty_concurrent_calls_do_not_exceed_a_budget(seller: Seller, opened: Open) -> None:
    limits = Policy(max_host_day=50_000)
    async with opened(policy=limits, timeout=60) as http:
        calls = [http.get(f"{seller.url}/data") for _ in range(50)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [result.code for result in results if isinstance(result, PaymentRefusedError)]
    assert refusals == [Code.OVER_HOST_BUDGET] * 40
    nonces = {payment["payload"]["authorization"]["nonce"] for payment in seller.payments}
    assert len(nonces) == len(seller.payments) == 10


async def test_hundred_parallel_calls_with_keys_are_all_paid(seller: Seller, opened: Open) -> None:
    async def buy(http: GuardedClient, number: int) -> int:
        with paying(purchase=f"order-{number}"):
            return (await http.get(f"{seller.url}/data")).status_code

    async def respond(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.01)
        text = request.headers.get("PAYMENT-SIGNATURE")
        payment = json.loads(base64.b64decode(text)) if text else None
        call = Call("GET", "/data", seller.url.removeprefix("http://"), b"", payment)
        answer = seller.respond(call)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)

    # In process: the seller's socket does not queue a hundred connections.
    async with opened(transport=httpx.MockTransport(respond)) as http:
        assert await asyncio.gather(*(buy(http, number) for number in range(100))) == [200] * 100
    assert len({paid["payload"]["authorization"]["nonce"] for paid in seller.payments}) == 100


async def test_polled_endpoint_is_paid_each_time(seller: Seller, opened: Open) -> None:
    async with opened() as http:
        for _ in range(20):
            assert (await http.get(f"{seller.url}/data")).status_code == 200
    assert len({paid["payload"]["authorization"]["nonce"] for paid in seller.payments}) == 20


async def test_seller_that_asks_again_and_again_gets_one_payment(
    seller: Seller, opened: Open
) -> None:
    seller.answer = seller.payment_required
    async with opened() as http:
        for _ in range(5):
            assert (await http.get(f"{seller.url}/data")).status_code == 402
        (entry,) = http.guard.unresolved()
    assert (entry.state, entry.status) == (State.OPEN, 402)
    assert len(seller.payments) == 5
    assert all(payment == seller.payments[0] for payment in seller.payments)


def redirect_to(seller: Seller) -> Callable[[Call], Answer | None]:
    """Redirect each request for /data to another URL."""
    numbers = itertools.count()

    def unpaid(call: Call) -> Answer | None:
        location = f"{seller.url}/data?{next(numbers)}"
        return Answer(302, {"Location": location}) if call.path == "/data" else None

    return unpaid


async def test_answered_calls_are_limited_by_the_budgets_only(seller: Seller, opened: Open) -> None:
    seller.unpaid, seller.answer = redirect_to(seller), lambda _call: Answer(200)
    async with opened(follow_redirects=True) as http:
        paid = [await status(http, f"{seller.url}/data") for _ in range(6)]
    assert paid == [200] * 6
    assert len(seller.payments) == 6


async def test_fragment_does_not_make_another_purchase(seller: Seller, opened: Open) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        for number in range(4):
            assert await status(http, f"{seller.url}/data#{number}") == 503
        assert len(http.guard.journal.payments()) == 1


async def test_lost_payment_is_sent_again_only_to_the_url_that_it_was_signed_for(
    seller: Seller, opened: Open
) -> None:
    target = "/data?1"

    def unpaid(call: Call) -> Answer | None:
        return Answer(302, {"Location": f"{seller.url}{target}"}) if call.path == "/data" else None

    seller.unpaid, seller.answer = unpaid, lambda _call: Answer(503)
    async with opened(follow_redirects=True) as http:
        assert await status(http, f"{seller.url}/data") == 503
        seller.answer, target = (lambda _call: receipt()), "/data?2"
        assert await status(http, f"{seller.url}/data") == Code.PAYMENT_UNRESOLVED
        target = "/data?1"
        assert await status(http, f"{seller.url}/data") == 200
    assert seller.payments[0] == seller.payments[1]
    assert len(seller.payments) == 2


async def test_open_payment_is_neither_sent_nor_followed_by_another_one_for_another_offer(
    seller: Seller, opened: Open
) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        await http.get(f"{seller.url}/data")
        seller.pay_to = OTHER_PAYEE
        assert await status(http, f"{seller.url}/data") == Code.PAYMENT_UNRESOLVED
        seller.pay_to, seller.amount = PAYEE, "4000"
        assert await status(http, f"{seller.url}/data") == Code.PAYMENT_UNRESOLVED
        seller.amount = "5000"
        seller.answer = lambda _call: receipt()
        assert await status(http, f"{seller.url}/data") == 200
    assert len(seller.payments) == 2
    assert seller.payments[0] == seller.payments[1]


async def test_lost_payment_is_not_repeated_when_seller_returns_402_again(
    seller: Seller, opened: Open
) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        assert await status(http, f"{seller.url}/data") == 503
        seller.answer = seller.payment_required
        assert await status(http, f"{seller.url}/data") == 402
        seller.answer = lambda _call: receipt()
        assert await status(http, f"{seller.url}/data") == 200
    first, *others = seller.payments
    assert others == [first, first]


async def test_paid_answer_is_returned_even_if_it_cannot_be_recorded(
    seller: Seller, opened: Open, tmp_path: Path
) -> None:
    file = tmp_path / "journal.sqlite"
    refusing = (
        "CREATE TRIGGER full BEFORE UPDATE ON payments BEGIN SELECT RAISE(ABORT, 'full'); END"
    )

    def answer(_call: Call) -> Answer:
        with contextlib.closing(sqlite3.connect(file)) as rows:
            rows.execute(refusing)
        return receipt()

    seller.answer = answer
    async with opened(journal=file) as http:
        assert await status(http, f"{seller.url}/data") == 200
        (entry,) = http.guard.unresolved()
    assert entry.state == State.IN_FLIGHT
    assert len(seller.payments) == 1


async def test_payment_is_resent_after_broken_connection_without_second_signature(
    seller: Seller, opened: Open
) -> None:
    seller.answer = lambda _call: Answer(is_cut=True)
    async with opened() as http:
        with pytest.raises(httpx.TransportError) as lost:
            await http.post(f"{seller.url}/data", content=b"order")
        (entry,) = http.guard.unresolved()
        assert getattr(lost.value, HANDLE) == entry.handle
        assert entry.state == State.OPEN
        seller.answer = lambda _call: receipt()
        assert (await http.post(f"{seller.url}/data", content=b"order")).status_code == 200
        (entry,) = http.guard.journal.payments()
        assert entry.state == State.DELIVERED
    assert len(seller.payments) == 2
    assert seller.payments[0] == seller.payments[1]


async def test_restarted_client_resends_the_earlier_payment(
    seller: Seller, opened: Open, tmp_path: Path
) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened(journal=tmp_path / "journal.sqlite") as http:
        assert (await http.get(f"{seller.url}/data")).status_code == 503
        assert len(http.guard.unresolved()) == 1
    seller.answer = lambda _call: receipt()
    async with opened(journal=tmp_path / "journal.sqlite") as http:
        assert (await http.get(f"{seller.url}/data")).status_code == 200
        assert http.guard.unresolved() == ()
    assert seller.payments[0] == seller.payments[1]


@pytest.mark.parametrize("later", [408, 425, 429])
async def test_payment_is_resent_when_seller_defers_it_without_second_signature(
    seller: Seller, opened: Open, later: int
) -> None:
    seller.answer = lambda _call: Answer(later)
    async with opened() as http:
        assert await status(http, f"{seller.url}/data") == later
        seller.answer = lambda _call: receipt()
        assert await status(http, f"{seller.url}/data") == 200
        assert len(http.guard.journal.payments()) == 1
    assert seller.payments[0] == seller.payments[1]


async def test_error_after_payment_is_recorded(seller: Seller, opened: Open) -> None:
    seller.answer = lambda _call: Answer(404)
    async with opened() as http:
        await http.get(f"{seller.url}/data")
        (entry,) = http.guard.journal.payments()
    assert (entry.state, entry.status, entry.settlement) == (State.OPEN, 404, None)


@pytest.mark.parametrize("text", ["", "e30=", "!", "W10=", "bnVsbA=="])
async def test_unreadable_receipt_is_ignored(seller: Seller, opened: Open, text: str) -> None:
    seller.answer = lambda _call: Answer(200, {"PAYMENT-RESPONSE": text})
    async with opened() as http:
        await http.get(f"{seller.url}/data")
        (entry,) = http.guard.journal.payments()
    assert entry.state == State.DELIVERED


async def test_streamed_body_is_paid_for(seller: Seller, opened: Open) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    async with opened() as http:
        answer = await http.post(f"{seller.url}/data", content=pieces())
    assert answer.status_code == 200
    assert [call.body for call in seller.calls] == [b"one two"] * 2


@pytest.mark.parametrize("answer", [True, False, None, 1, "yes"])
async def test_only_true_is_consent(seller: Seller, opened: Open, answer: object) -> None:
    seller.amount = "20000"
    questions: list[tuple[Code, str]] = []

    async def ask(question: Ask, url: str) -> bool:
        questions.append((question.code, url))
        return answer  # type: ignore[return-value]  # a careless caller may return other types

    async with opened(ask=ask) as http:
        paid = await status(http, f"{seller.url}/other")
    assert questions == [(Code.UNKNOWN_RESOURCE, f"{seller.url}/other")]
    assert paid == (200 if answer is True else Code.UNKNOWN_RESOURCE)
    assert len(seller.payments) == (answer is True)


@pytest.mark.usefixtures("one_day")
async def test_consent_goes_over_no_budget(seller: Seller, opened: Open) -> None:
    spent: list[Journal] = []
    payer = ACCOUNT.address.lower()

    def ask(question: Ask, _url: str) -> bool:
        for number in range(4):
            bought = purchase(path=f"/{number}", payer=payer)
            reserved = spent[0].reserve(bought, question.terms, payer, limits, now)
            assert isinstance(reserved, Reserved)
        return True

    seller.amount = "20000"
    limits, now = Policy(max_day=90_000), int(time.time())
    async with opened(ask=ask, policy=limits) as http:
        spent.append(http.guard.journal)
        assert await status(http, f"{seller.url}/other") == Code.OVER_DAY_BUDGET
    assert not seller.payments


async def test_raising_approver_refuses(seller: Seller, opened: Open) -> None:
    def ask(_question: Ask, _url: str) -> bool:
        raise RuntimeError("nobody is there")

    seller.amount = "20000"
    async with opened(ask=ask) as http:
        with pytest.raises(PaymentError):
            await http.get(f"{seller.url}/other")
    assert not seller.payments


async def test_version_1_is_guarded_as_well(seller: Seller, opened: Open) -> None:
    def old(pay_to: str) -> Callable[[Call], Answer]:
        def unpaid(call: Call) -> Answer:
            offer: dict[str, Any] = {
                "scheme": "exact",
                "network": "base",
                "maxAmountRequired": "5000",
            }
            offer |= {"resource": f"{seller.url}{call.path}", "description": "", "mimeType": ""}
            offer |= {"payTo": pay_to, "asset": USDC, "maxTimeoutSeconds": 60}
            offer |= {"extra": {"name": "USD Coin", "version": "2"}}
            document = {"x402Version": 1, "error": "pay", "accepts": [offer]}
            return Answer(402, {}, json.dumps(document).encode())

        return unpaid

    async with opened() as http:
        seller.unpaid = old(PAYEE)
        assert await status(http, f"{seller.url}/data") == 200
        seller.unpaid = old(OTHER_PAYEE)
        assert await status(http, f"{seller.url}/data?again") == Code.PAYTO_UNKNOWN
    assert len(seller.payments) == 1


async def test_client_pays_through_its_proxy(seller: Seller, opened: Open) -> None:
    url = "http://api.example.com/data"

    def name_itself(required: dict[str, Any]) -> None:
        required["resource"] = {"url": url}

    seller.change = name_itself
    async with opened(transport=None, verify=False, proxy=seller.url) as http:
        assert (await http.get(url)).status_code == 200
        assert [entry.resource for entry in http.guard.journal.payments()] == [url]
    assert len(seller.payments) == 1


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that names no proxy, to be changed."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


async def test_client_pays_guarded_through_proxy_of_environment(
    seller: Seller, opened: Open, no_proxies: pytest.MonkeyPatch
) -> None:
    url = f"http://api.example.com:{seller.port}/data"
    seller.change = lambda required: required.update(resource={"url": url})
    no_proxies.setenv("HTTP_PROXY", seller.url)
    async with opened(transport=None, verify=False) as http:
        assert (await http.get(url)).status_code == 200
        assert [entry.resource for entry in http.guard.journal.payments()] == [url]
        seller.amount = "20000"
        assert await status(http, url) == Code.UNKNOWN_RESOURCE
    assert len(seller.payments) == 1


async def test_no_proxy_variable_is_respected(
    seller: Seller, opened: Open, no_proxies: pytest.MonkeyPatch
) -> None:
    with closed_port() as unused:
        no_proxies.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused.getsockname()[1]}")
        async with opened(transport=None, verify=False) as http:
            with pytest.raises(httpx.ConnectError):
                await http.get(f"{seller.url}/data")
        async with opened(transport=None, verify=False, trust_env=False) as http:
            assert await status(http, f"{seller.url}/data") == 200
        no_proxies.setenv("NO_PROXY", "127.0.0.1")
        async with opened(transport=None, verify=False) as http:
            assert await status(http, f"{seller.url}/data") == 200
    assert len(seller.payments) == 2


async def test_free_answer_passes_unchanged(seller: Seller, opened: Open) -> None:
    seller.unpaid = lambda _call: Answer(200, {"X-Free": "1"}, b"free")
    async with opened() as http:
        answer = await http.get(f"{seller.url}/free")
    assert (answer.content, answer.headers["x-free"]) == (b"free", "1")


async def test_two_guards_on_one_wallet_send_only_their_payments(
    seller: Seller, opened: Open
) -> None:
    async with opened(policy=Policy(max_call=1)) as mean, opened() as kind:
        assert await status(mean, f"{seller.url}/data") == Code.OVER_CALL_CAP
        assert await status(kind, f"{seller.url}/data") == 200
        assert len(kind.guard.journal.payments()) == 1
        assert mean.guard.journal.payments() == ()


@pytest.mark.parametrize("is_guarded", [False, True])
async def test_approver_can_pay_only_through_the_guard(
    seller: Seller,
    opened: Open,
    known: Callable[..., Row],
    payer: x402Client,
    is_guarded: bool,
) -> None:
    open_network = httpx.AsyncHTTPTransport(verify=False)
    raw = httpx.AsyncClient(transport=x402AsyncTransport(payer, open_network))

    questions: list[str] = []

    async def ask(_question: Ask, url: str) -> bool:
        questions.append(url)
        if len(questions) == 1:
            await (http if is_guarded else raw).get(f"{seller.url}/other")
        return True

    async with raw, opened(known("caution"), ask=ask) as http:
        if is_guarded:
            assert await status(http, f"{seller.url}/data") == 200
        else:
            with pytest.raises(PaymentError):
                await http.get(f"{seller.url}/data")
    assert [call.path for call in seller.calls if call.payment] == (
        ["/other", "/data"] if is_guarded else []
    )


async def test_client_of_another_guard_pays_nothing_during_a_call(
    seller: Seller,
    opened: Open,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
) -> None:
    other = register_exact_evm_client(x402Client(), ACCOUNT)
    open_network = httpx.AsyncHTTPTransport(verify=False)
    bundle = FixedBundle(bundle_of({f"{seller.url}/data": known()}))
    guarded(other, bundle=bundle, journal=MEMORY, transport=open_network)

    async def ask(_question: Ask, _url: str) -> bool:
        transport = x402AsyncTransport(other, open_network)
        async with httpx.AsyncClient(transport=transport) as http:
            return (await http.get(f"{seller.url}/data")).is_success

    async with opened(known("caution"), ask=ask) as http:
        with pytest.raises(PaymentError):
            await http.get(f"{seller.url}/data")
    assert not seller.payments


async def status(http: GuardedClient, url: str) -> int | Code:
    """The status of the answer, or the rule that refused."""
    try:
        return (await http.get(url)).status_code
    except PaymentRefusedError as error:
        return error.code
