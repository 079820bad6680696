"""Offers that a seller signed: the shared cases, and a seller whose 402 contradicts them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from guard.cases.sample_bundle import Row
from tests.support.guard_seller import ACCOUNT, CASES_FOLDER, Seller
from x402 import x402Client
from x402.mechanisms.evm.exact import ExactEvmScheme

from tollgauge_guard import Code, PaymentRefusedError, guarded
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.signed_offers import find_contradicted, read_terms

CASES: list[dict[str, Any]] = json.loads(
    (CASES_FOLDER / "signed_offers.json").read_text(encoding="utf-8")
)


def extensions(case: dict[str, Any]) -> dict[str, Any]:
    return {"offer-receipt": {"info": {"offers": case["offers"]}, "schema": {"type": "object"}}}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_contradicted_entries_of_the_shared_table(case: dict[str, Any]) -> None:
    found = find_contradicted(extensions(case), case["accepts"], case["url"], case["did"])
    assert found == {read_terms(case["accepts"][index]) for index in case["contradicted"]}


@pytest.mark.parametrize(
    ("name", "is_paid"),
    [
        ("signed by the payTo", True),
        ("signed by an unknown account", True),
        ("the 402 has another payTo than its payTo signed", False),
        ("the 402 has another amount", False),
    ],
)
async def test_contradicted_offer_is_not_signed(
    seller: Seller,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
    name: str,
    *,
    is_paid: bool,
) -> None:
    case = next(case for case in CASES if case["name"] == name)
    seller.ask = lambda offer: offer.update(case["accepts"][0])
    seller.change = lambda required: required.update(extensions=extensions(case))
    client = x402Client()
    client.register("eip155:*", ExactEvmScheme(ACCOUNT))
    bundle = FixedBundle(bundle_of({f"{seller.url}/data": known()}))
    transport = httpx.AsyncHTTPTransport(verify=False)
    async with guarded(client, bundle=bundle, transport=transport, journal=":memory:") as http:
        if is_paid:
            assert (await http.get(f"{seller.url}/other")).status_code == 200
            return
        with pytest.raises(PaymentRefusedError) as refused:
            await http.get(f"{seller.url}/other")
    assert refused.value.code == Code.OFFER_CONTRADICTED
    assert not seller.payments
