"""Hooks of others, in the order in which the SDK runs them: none gets a changed offer paid."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from guard.cases.sample_bundle import PAYEE, Row
from tests.support.guard_payments import exposure
from tests.support.guard_seller import ACCOUNT, OTHER_PAYEE, USDC, Answer, Call, Seller
from x402 import x402Client
from x402.http.clients.httpx import PaymentError, x402AsyncTransport
from x402.http.utils import decode_payment_required_header
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.schemas import (
    AbortResult,
    PaymentPayload,
    PaymentRequired,
    RecoveredPayloadResult,
)

from tollgauge_guard import Code, Guard, PaymentRefusedError, Policy
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.http_clients import GuardedHTTPClient
from tollgauge_guard.httpx_client import GuardedClient
from tollgauge_guard.journal import Journal
from tollgauge_guard.payment import State
from tollgauge_guard.request import Attempt, set_current

OTHER_TOKEN = "0x6B175474E89094C44Da98b954EedeAC495271d0F"


@pytest.fixture
def guard(seller: Seller, known: Callable[..., Row], bundle_of: Callable[..., Bundle]) -> Guard:
    bundle = bundle_of({f"{seller.url}/data": known()})
    return Guard(bundles=FixedBundle(bundle), policy=Policy(), journal=Journal())


def set_to(name: str, value: object) -> Callable[[Any], None]:
    def change(context: Any) -> None:
        setattr(context.selected_requirements, name, value)

    return change


CHANGES = {
    "payTo": set_to("pay_to", OTHER_PAYEE),
    "amount": set_to("amount", "999999"),
    "asset": set_to("asset", OTHER_TOKEN),
    "network": set_to("network", "eip155:84532"),
    "validity": set_to("max_timeout_seconds", 10**9),
    "domain": set_to("extra", {"name": "Other Token", "version": "2"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_offer_changed_by_later_hook_is_not_sent(
    change: Callable[[Any], None], seller: Seller, payer: x402Client, guard: Guard
) -> None:
    async with GuardedClient(guard, payer) as http:
        payer.on_before_payment_creation(change)
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
    assert refused.value.code == Code.SIGNED_DIFFERS
    assert not seller.payments
    assert guard.journal.payments() == ()


async def test_token_changed_only_in_the_signature_is_not_sent(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    payer.on_after_payment_creation(set_to("asset", USDC))  # before the guard looks
    async with GuardedClient(guard, payer) as http:
        payer.on_before_payment_creation(set_to("asset", OTHER_TOKEN))
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
    assert refused.value.code == Code.SIGNED_DIFFERS
    assert not seller.payments


async def test_payload_changed_after_signing_is_not_sent(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    def change(context: Any) -> None:
        context.payment_payload.payload["authorization"]["to"] = OTHER_PAYEE

    async with GuardedClient(guard, payer) as http:
        payer.on_after_payment_creation(change)
        with pytest.raises(PaymentRefusedError):
            await http.get(f"{seller.url}/data")
    assert not seller.payments
    assert guard.journal.payments() == ()
    assert spent_today(guard) == 0


async def test_unsent_payment_does_not_count_as_spent(
    seller: Seller, payer: x402Client, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> dict[str, str]:
        raise RuntimeError("no header")

    monkeypatch.setattr(GuardedHTTPClient, "encode_payment_signature_header", fail)
    async with GuardedClient(guard, payer) as http:
        with pytest.raises(PaymentError, match="no header"):
            await http.get(f"{seller.url}/data")
    (entry,) = guard.journal.payments()
    assert entry.state == State.DEAD
    assert spent_today(guard) == 0


async def test_payload_of_an_extension_is_not_sent(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    class Extension:
        key = "stranger"

        def enrich_payment_payload(
            self, payload: PaymentPayload, _required: object
        ) -> PaymentPayload:
            signed = dict(payload.payload["authorization"], nonce="0x" + "77" * 32)
            return payload.model_copy(
                update={"payload": payload.payload | {"authorization": signed}}
            )

    payer.register_extension(Extension())  # type: ignore[arg-type]  # has the methods that the SDK calls
    async with GuardedClient(guard, payer) as http:
        with pytest.raises(PaymentRefusedError):
            await http.get(f"{seller.url}/data")
    assert not seller.payments


async def test_payload_that_was_not_recorded_is_not_sent(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    """An extension brings another authorization for the same terms, signed by the same wallet."""
    signer = register_exact_evm_client(x402Client(), ACCOUNT)

    class Extension:
        key = "stranger"

        async def enrich_payment_payload(
            self, payload: PaymentPayload, required: PaymentRequired
        ) -> PaymentPayload:
            other = await signer.create_payment_payload(required)
            return payload.model_copy(update={"payload": other.payload})

    payer.register_extension(Extension())  # type: ignore[arg-type]  # has the methods that the SDK calls
    async with GuardedClient(guard, payer) as http:
        with pytest.raises(PaymentRefusedError):
            await http.get(f"{seller.url}/data")
    assert not seller.payments


async def test_402_from_another_url_than_the_request_s_is_not_paid(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    client = GuardedHTTPClient(guard, payer)
    url = f"{seller.url}/data"
    with set_current(Attempt(owner=client, url=url, key="")) as attempt:
        required = decode_payment_required_header(
            seller.payment_required(Call("GET", "/data", url[7:-5], b"", None)).headers[
                "PAYMENT-REQUIRED"
            ]
        )
        await client.handle_payment_required(required, f"{seller.url}/other")
        with pytest.raises(PaymentRefusedError, match="resource-mismatch"):
            await client.create_payment_payload(required)
        assert attempt.header is None


def test_sealed_payment_is_sent_only_to_its_url(guard: Guard) -> None:
    attempt = Attempt(owner=None, url="https://api.example.com/a", key="", header="sealed")
    with pytest.raises(PaymentRefusedError, match="another URL"):
        guard.check_leaving(attempt, "https://api.example.com/b", ["sealed"])


async def test_payload_of_a_failure_hook_is_not_sent(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    stolen: list[PaymentPayload] = []

    def steal(context: Any) -> None:
        stolen.append(context.payment_payload)
        raise RuntimeError

    payer.on_after_payment_creation(steal)
    payer.on_payment_creation_failure(lambda _context: RecoveredPayloadResult(stolen[0]))
    async with GuardedClient(guard, payer) as http:
        payer.on_before_payment_creation(set_to("pay_to", OTHER_PAYEE))
        with pytest.raises(PaymentRefusedError):
            await http.get(f"{seller.url}/data")
    assert stolen
    assert not seller.payments


async def test_payment_header_of_the_caller_is_not_sent(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    async with GuardedClient(guard, payer) as http:
        for name in ("Payment-Signature", "x-payment"):
            with pytest.raises(PaymentRefusedError):
                await http.get(f"{seller.url}/data", headers={name: "e30="})
    assert not seller.calls


async def test_raising_hook_refuses_and_releases_the_reservation(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    def fail(_context: object) -> None:
        raise RuntimeError("broken")

    async with GuardedClient(guard, payer) as http:
        payer.on_before_payment_creation(fail)
        with pytest.raises(PaymentError):
            await http.get(f"{seller.url}/data")
    assert not seller.payments
    assert spent_today(guard) == 0


async def test_hook_that_loses_the_answer_leaves_the_payment_open(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    def fail(_context: object) -> None:
        raise RuntimeError("broken")

    payer.on_payment_response(fail)
    async with GuardedClient(guard, payer) as http:
        with pytest.raises(PaymentError, match="broken"):
            await http.get(f"{seller.url}/data")
    (payment,) = guard.journal.payments()
    assert payment.state == State.OPEN


async def test_aborting_later_hook_releases_the_reservation(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    async with GuardedClient(guard, payer) as http:
        payer.on_before_payment_creation(lambda _context: AbortResult("not today"))
        with pytest.raises(PaymentError, match="not today"):
            await http.get(f"{seller.url}/data")
    assert not seller.payments
    assert spent_today(guard) == 0


async def test_client_without_guarded_transport_pays_nothing(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    GuardedHTTPClient(guard, payer)
    with pytest.raises(PaymentError, match="cannot see which URL"):
        await get(x402AsyncTransport(payer), f"{seller.url}/data")
    assert not seller.payments


async def test_sdk_transport_makes_allowed_payments_with_guarded_client(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    transport = x402AsyncTransport(GuardedHTTPClient(guard, payer))
    answer = await get(transport, f"{seller.url}/data")
    assert answer.status_code == 200
    seller.pay_to = OTHER_PAYEE
    with pytest.raises(PaymentError, match="payto-unknown"):
        await get(transport, f"{seller.url}/data")
    assert [payment["payload"]["authorization"]["to"].lower() for payment in seller.payments] == [
        PAYEE
    ]
    (entry,) = guard.journal.payments()
    assert (entry.state, entry.status) == (State.DELIVERED, 200)


async def test_payment_by_the_sdk_s_own_transport_stays_the_only_one_until_it_is_answered(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    transport = x402AsyncTransport(GuardedHTTPClient(guard, payer))
    seller.answer = lambda _call: Answer(500)
    for _ in range(2):
        assert (await get(transport, f"{seller.url}/data")).status_code == 500
    (entry,) = guard.unresolved()
    assert (entry.state, entry.status) == (State.OPEN, 500)
    assert seller.payments[0] == seller.payments[1]


async def test_url_of_an_earlier_request_pays_for_no_other(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    paying = GuardedHTTPClient(guard, payer)
    await get(x402AsyncTransport(paying), f"{seller.url}/data")
    with pytest.raises(PaymentError, match="cannot see which URL"):
        await get(x402AsyncTransport(payer), f"{seller.url}/data")
    assert len(seller.payments) == 1


async def test_cancelled_request_is_recorded_as_unknown(
    seller: Seller, payer: x402Client, guard: Guard
) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    class Slow(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if "payment-signature" in request.headers:
                started.set()
                await go.wait()
            return await super().handle_async_request(request)

    async with GuardedClient(guard, payer, transport=Slow()) as http:
        task = asyncio.create_task(http.get(f"{seller.url}/data"))
        await started.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    (entry,) = guard.unresolved()
    assert entry.state == State.OPEN


def spent_today(guard: Guard) -> int:
    payer = ACCOUNT.address.lower()
    return guard.journal.sum_spent(exposure(guard.now, payer, "127.0.0.1")).day


async def get(transport: httpx.AsyncBaseTransport, url: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=transport) as http:
        return await http.get(url)
