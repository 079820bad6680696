"""The guard inside the official httpx client, against a real server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from guard.cases.sample_bundle import Row
from tests.support.guard_seller import OTHER_PAYEE, Seller
from x402 import x402Client

from tollgauge_guard import MEMORY, GuardedClient, PaymentRefusedError, Policy, guarded
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.decision import Code
from tollgauge_guard.journal import Outcome

Open = Callable[..., GuardedClient]


@pytest.fixture
def opened(
    seller: Seller,
    payer: x402Client,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
) -> Open:
    def make(
        record: Row | None = None, policy: Policy | None = None, **options: Any
    ) -> GuardedClient:
        bundle = bundle_of({f"{seller.url}/data": record or known()})
        return guarded(payer, bundle=FixedBundle(bundle), policy=policy, journal=MEMORY, **options)

    return make


async def test_a_good_seller_is_paid_and_the_journal_says_so(seller: Seller, opened: Open) -> None:
    async with opened() as http:
        answer = await http.post(f"{seller.url}/data?q=1", json={"a": 1})
        assert answer.status_code == 200
        (entry,) = http.guard.journal.entries()
    (payment,) = seller.payments
    assert payment["payload"]["authorization"]["nonce"].lower() == entry.nonce
    assert entry.outcome == Outcome.SETTLED
    assert (entry.status, entry.settlement) == (200, "0x" + "ab" * 32)
    assert entry.resource == f"{seller.url}/data"


async def test_another_payee_is_refused_before_anything_is_signed(
    seller: Seller, opened: Open
) -> None:
    seller.pay_to = OTHER_PAYEE
    async with opened() as http:
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/data")
        assert http.guard.journal.entries() == ()
    assert refused.value.code == Code.PAYTO_UNKNOWN
    assert not seller.payments
