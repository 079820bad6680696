"""The first payment of a purchase stays the only one: what a node, time and the owner decide."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from guard.cases.sample_bundle import Row
from tests.support.guard_seller import Answer, Seller, receipt
from tests.support.paying_clients import payer_of
from x402 import x402Client

from tollgauge.demo.chain import ACCOUNTS, NETWORK, Chain, run_chain
from tollgauge_guard import GuardedClient, PaymentRefusedError, PaymentUnresolved, guarded
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.decision import Code
from tollgauge_guard.entry import Outcome

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


async def unresolved(http: GuardedClient, url: str) -> PaymentUnresolved:
    with pytest.raises(PaymentUnresolved) as caught:
        await http.get(url)
    return caught.value


def pending(_call: object) -> Answer:
    """A 402 as the official SDK answers where a settlement takes long."""
    return Answer(402, {"PAYMENT-RESPONSE": "e30="}, b'{"error":"settlement_pending"}')


async def test_a_payment_of_one_wallet_is_never_sent_for_another(
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
async def test_no_answer_but_a_good_one_makes_way_for_a_second_payment(
    seller: Seller, opened: Open, status: int
) -> None:
    seller.answer = pending if status == 402 else lambda _call: Answer(status)
    async with opened() as http:
        for _ in range(3):
            assert (await http.get(f"{seller.url}/data")).status_code == status
        seller.answer = lambda _call: receipt()
        assert (await http.get(f"{seller.url}/data")).status_code == 200
    assert len(seller.payments) == 4
    assert all(paid == seller.payments[0] for paid in seller.payments)


async def test_without_a_node_an_expired_payment_is_unresolved_until_its_purchase_ends(
    seller: Seller, opened: Open
) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        await http.get(f"{seller.url}/data")
        (entry,) = http.guard.unresolved()
    clock = [float(entry.valid_before)]
    async with opened() as http:
        object.__setattr__(http.guard, "clock", lambda: clock[0])
        error = await unresolved(http, f"{seller.url}/data")
        assert (error.code, error.nonce) == (Code.PAYMENT_UNRESOLVED, entry.nonce)
        assert (error.state, error.network) == (Outcome.OPEN, entry.network)
        assert "tollgauge-guard resolve" in str(error)
        clock[0] = entry.ends_at - 1
        await unresolved(http, f"{seller.url}/data")
        clock[0] = entry.ends_at
        with pytest.raises(PaymentRefusedError) as refused:  # what is signed now is not of then
            await http.get(f"{seller.url}/data")
        assert refused.value.code == Code.SIGNED_DIFFERS
        lapsed = http.guard.journal.entry(entry.id)
    assert lapsed is not None
    assert lapsed.outcome == Outcome.LAPSED
    assert len(seller.payments) == 1


async def test_a_node_that_shows_a_payment_taken_ends_the_signing(
    seller: Seller, opened: Open, chain: Chain
) -> None:
    """The owner alone lets the guard pay for that purchase again."""
    seller.answer = lambda _call: Answer(503)
    async with opened(nodes={NETWORK: chain.rpc_url}) as http:
        await http.get(f"{seller.url}/data")
        (paid,) = seller.payments
        await chain.mint(ACCOUNTS[1].address, 1_000_000)
        await settle(chain, paid)
        (entry,) = http.guard.unresolved()
        later = replace(http.guard, clock=lambda: float(entry.valid_before))
        found = await asyncio.to_thread(later.resolve, entry.nonce)
        assert found.outcome == Outcome.PAID_UNANSWERED
        error = await unresolved(http, f"{seller.url}/data")
        assert error.state == Outcome.PAID_UNANSWERED
        assert "--write-off" in str(error)
        written_off = await asyncio.to_thread(later.resolve, entry.nonce, write_off=True)
        assert written_off.outcome == Outcome.WRITTEN_OFF
        seller.answer = lambda _call: receipt()
        assert (await http.get(f"{seller.url}/data")).status_code == 200
    assert len({paid["payload"]["authorization"]["nonce"] for paid in seller.payments}) == 2


async def test_a_node_that_shows_a_payment_dead_makes_way_for_the_next(
    seller: Seller, opened: Open, chain: Chain
) -> None:
    """Dead is what is unused at a block after its validity, with twelve blocks on top of it."""
    seller.answer = lambda _call: Answer(503)
    async with opened(nodes={NETWORK: chain.rpc_url}) as http:
        await http.get(f"{seller.url}/data")
        (entry,) = http.guard.unresolved()
        ahead = max(0, entry.valid_before - int(time.time())) + 5
        await chain.rpc("evm_increaseTime", ahead)
        await chain.rpc("anvil_mine", hex(1))
        fresh = await asyncio.to_thread(http.guard.resolve, entry.nonce)
        assert fresh.outcome == Outcome.OPEN, "too few blocks"
        await chain.rpc("anvil_mine", hex(12))
        dead = await asyncio.to_thread(http.guard.resolve, entry.nonce)
        assert dead.outcome == Outcome.DEAD
        seller.answer = lambda _call: receipt()
        assert (await http.get(f"{seller.url}/data")).status_code == 200
    assert len({paid["payload"]["authorization"]["nonce"] for paid in seller.payments}) == 2


async def test_a_kept_payment_is_judged_again_before_it_is_sent(
    seller: Seller, opened: Open, known: Callable[..., Row], bundle_of: Callable[..., Bundle]
) -> None:
    seller.answer = lambda _call: Answer(503)
    async with opened() as http:
        await http.get(f"{seller.url}/data")
    avoided = FixedBundle(bundle_of({f"{seller.url}/data": known("avoid")}))
    async with opened() as http:
        object.__setattr__(http.guard, "bundles", avoided)
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
    assert refused.value.code == Code.AVOID
    assert len(seller.payments) == 1


async def settle(chain: Chain, paid: dict[str, Any]) -> None:
    """Take the money of a payment, as anyone can who holds it."""
    from tests.guard.test_typescript import settle as take
    from x402.schemas import PaymentPayload

    await take(chain, PaymentPayload.model_validate(paid))
