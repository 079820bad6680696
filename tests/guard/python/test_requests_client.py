"""The guard inside the official adapter for requests, against a real server."""

from __future__ import annotations

import contextlib
import io
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from guard.cases.sample_bundle import Row
from tests.support.guard_seller import OTHER_PAYEE, Answer, Call, Seller, receipt
from x402 import x402ClientSync
from x402.http.clients.requests import PaymentError

from tollgauge_guard import MEMORY, Ask, Code, PaymentRefusedError, Policy, Unknown, guarded
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.guard import HANDLE
from tollgauge_guard.payment import State
from tollgauge_guard.requests_client import GuardedSession

Open = Callable[..., GuardedSession]


@pytest.fixture
def opened(
    seller: Seller,
    payer_sync: x402ClientSync,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
) -> Open:
    def make(**options: Any) -> GuardedSession:
        bundle = FixedBundle(bundle_of({f"{seller.url}/data": known()}))
        return guarded(payer_sync, bundle=bundle, **{"journal": MEMORY} | options)

    return make


def status(http: GuardedSession, url: str, **options: Any) -> int | Code:
    """The status of the answer, or the rule that refused."""
    try:
        return http.get(url, **options).status_code
    except PaymentRefusedError as error:
        return error.code


def test_good_seller_is_paid_and_recorded(seller: Seller, opened: Open) -> None:
    with opened() as http:
        assert status(http, f"{seller.url}/data?q=1") == 200
        (entry,) = http.guard.journal.payments()
    (payment,) = seller.payments
    assert payment["payload"]["authorization"]["nonce"].lower() == entry.nonce
    assert (entry.state, entry.status) == (State.DELIVERED, 200)


def test_another_payee_is_refused_before_anything_is_signed(seller: Seller, opened: Open) -> None:
    seller.pay_to = OTHER_PAYEE
    with opened() as http:
        assert status(http, f"{seller.url}/data") == Code.PAYTO_UNKNOWN
        assert http.guard.journal.payments() == ()
        with pytest.raises(PaymentError):  # as expected by code that only uses the SDK
            http.get(f"{seller.url}/data")
    assert not seller.payments


def test_redirect_is_decided_by_record_of_its_target(seller: Seller, opened: Open) -> None:
    seller.unpaid = lambda call: (
        None
        if call.host.startswith("localhost")
        else Answer(302, {"Location": f"http://localhost:{seller.port}{call.path}"})
    )
    with opened(policy=Policy(unknown=Unknown.REFUSE)) as http:
        assert status(http, f"{seller.url}/data") == Code.UNKNOWN_RESOURCE
    assert not seller.payments


def test_redirect_after_payment_is_followed_and_not_paid_again(
    seller: Seller, opened: Open
) -> None:
    seller.answer = lambda _call: Answer(302, {"Location": "/data?again"})
    with opened() as http:
        assert status(http, f"{seller.url}/data") == 402
        assert len(seller.payments) == 1
        seller.unpaid = lambda call: Answer() if call.path == "/data?again" else None
        assert status(http, f"{seller.url}/data") == 200
    assert [call.path for call in seller.calls if call.payment] == ["/data"] * 2


def test_answered_calls_are_limited_by_the_budgets_only(seller: Seller, opened: Open) -> None:
    numbers = itertools.count()
    seller.unpaid = lambda call: (
        Answer(302, {"Location": f"/data?{next(numbers)}"}) if call.path == "/data" else None
    )
    seller.answer = lambda _call: Answer(200)
    with opened() as http:
        paid = [status(http, f"{seller.url}/data") for _ in range(6)]
    assert paid == [200] * 6
    assert len(seller.payments) == 6


def test_paid_answer_is_returned_even_if_it_cannot_be_recorded(
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
    with opened(journal=file) as http:
        assert status(http, f"{seller.url}/data") == 200
        assert len(http.guard.unresolved()) == 1


def test_offer_changed_by_later_hook_is_not_sent(
    seller: Seller, opened: Open, payer_sync: x402ClientSync
) -> None:
    def change(context: Any) -> None:
        context.selected_requirements.pay_to = OTHER_PAYEE

    with opened() as http:
        payer_sync.on_before_payment_creation(change)
        assert status(http, f"{seller.url}/data") == Code.SIGNED_DIFFERS
        assert http.guard.journal.payments() == ()
    assert not seller.payments


def test_payment_header_of_the_caller_is_not_sent(seller: Seller, opened: Open) -> None:
    with opened() as http:
        for name in ("payment-signature", "X-Payment"):
            headers = {name: "e30="}
            assert status(http, f"{seller.url}/data", headers=headers) == Code.SIGNED_DIFFERS
    assert not seller.calls


@pytest.mark.usefixtures("one_day")
def test_fifty_threads_do_not_exceed_a_budget(seller: Seller, opened: Open) -> None:
    limits = Policy(max_host_day=50_000)
    with opened(policy=limits) as http, ThreadPoolExecutor(50) as pool:
        results = list(pool.map(lambda _: status(http, f"{seller.url}/data"), range(50)))
    assert sorted(map(str, results)) == ["200"] * 10 + [Code.OVER_HOST_BUDGET] * 40
    nonces = {payment["payload"]["authorization"]["nonce"] for payment in seller.payments}
    assert len(nonces) == len(seller.payments) == 10


def test_payment_is_resent_after_broken_connection_without_second_signature(
    seller: Seller, opened: Open
) -> None:
    seller.answer = lambda _call: Answer(is_cut=True)
    with opened() as http:
        with pytest.raises(requests.RequestException) as lost:
            http.post(f"{seller.url}/data", data="order")
        (payment,) = http.guard.unresolved()
        assert getattr(lost.value, HANDLE) == payment.handle
        seller.answer = lambda _call: receipt()
        assert http.post(f"{seller.url}/data", data="order").status_code == 200
        assert http.guard.unresolved() == ()
    assert seller.payments[0] == seller.payments[1]


def pieces() -> Iterator[bytes]:
    yield b"one "
    yield b"two"


@pytest.mark.parametrize("body", [pieces, lambda: io.BytesIO(b"one two"), lambda: "one two"])
def test_body_of_any_kind_reaches_seller_with_payment(
    seller: Seller, opened: Open, body: Callable[[], Any]
) -> None:
    with opened() as http:
        assert http.post(f"{seller.url}/data", data=body()).status_code == 200
    assert [call.body for call in seller.calls] == [b"one two"] * 2


def test_synchronous_client_rejects_asynchronous_approver(seller: Seller, opened: Open) -> None:
    async def ask(_question: Ask, _url: str) -> bool:
        return True

    seller.amount = "20000"
    with opened(ask=ask) as http:
        assert status(http, f"{seller.url}/other") == Code.UNKNOWN_RESOURCE
    with opened(ask=lambda _question, _url: True) as http:
        assert status(http, f"{seller.url}/other") == 200


def test_approver_can_pay_through_same_session(seller: Seller, opened: Open) -> None:
    def ask(_question: Ask, _url: str) -> bool:
        seller.amount = "5000"
        return status(http, f"{seller.url}/data") == 200

    seller.amount = "20000"
    with opened(ask=ask) as http:
        assert status(http, f"{seller.url}/other") == 200
    assert [call.path for call in seller.calls if call.payment] == ["/data", "/other"]


def test_adapter_works_in_another_session(seller: Seller, opened: Open) -> None:
    with opened() as http, requests.Session() as plain:
        plain.mount("http://", http.get_adapter(seller.url))
        assert plain.get(f"{seller.url}/data").status_code == 200
        assert len(http.guard.journal.payments()) == 1
