"""Terms: forms of payment, and how people read them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from tests.support.evidences import USDC

from tollgauge.core.base.units import BASE
from tollgauge.core.endpoint.terms import (
    MAX_ENDED_OFFERS,
    MAX_FORMS,
    MAX_OFFERS,
    OFFERS_MS,
    KnownOffer,
    form_text,
    forms_of,
    list_offers,
    update_offers,
)
from tollgauge.core.lint.accepts import terms_of_accepts

SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
MINT = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"


def entry(scheme: str = "exact", network: str = BASE, **values: Any) -> dict[str, Any]:
    base = {"scheme": scheme, "network": network, "asset": USDC, "amount": "5000"}
    return base | {"payTo": "0x" + "5" * 40} | values


@pytest.mark.parametrize(
    ("offer", "form", "text"),
    [
        (entry(), "eip155:8453 eip3009", "EIP-3009 on Base"),
        (entry(extra={"assetTransferMethod": "permit2"}), "eip155:8453 permit2", "Permit2 on Base"),
        (
            entry(extra={"assetTransferMethod": "erc7710"}),
            "eip155:8453 erc7710",
            "ERC-7710 on Base",
        ),
        (entry(extra={"assetTransferMethod": "x y"}), "eip155:8453 eip3009", "EIP-3009 on Base"),
        (
            entry(extra={"name": "GatewayWalletBatched"}),
            "eip155:8453 gateway",
            "Circle Gateway on Base",
        ),
        (entry(asset="0x" + "7" * 40), "eip155:8453 other-token", "another token on Base"),
        (entry("upto"), "eip155:8453 upto", "upto on Base"),
        (
            entry("batch-settlement"),
            "eip155:8453 batch-settlement",
            "batch-settlement on Base",
        ),
        (
            entry("auth-capture", asset="0x" + "7" * 40),
            "eip155:8453 auth-capture-other-token",
            "auth-capture in another token on Base",
        ),
        (entry(network=SOLANA, asset=MINT), f"{SOLANA} exact", "exact on Solana"),
        (entry("pay me", network="a b"), "other other", "another scheme on another network"),
        (
            entry("upto", network="eip155:77"),
            "eip155:77 upto-other-token",
            "upto in another token on chain 77",
        ),
        (
            entry(asset="0x" + "7" * 40, extra={"assetTransferMethod": "permit2"}),
            "eip155:8453 other-token",
            "another token on Base",
        ),
        (
            entry(network="eip155:42220", asset="0x48065fbbe25f71c9282ddf5e1cd6d6a887483d5e"),
            "eip155:42220 other-token",
            "another token on Celo",
        ),
    ],
)
def test_offer_has_a_form_of_payment(offer: dict[str, Any], form: str, text: str) -> None:
    (found,) = forms_of(terms_of_accepts([offer], version=2))
    assert (found, form_text(found)) == (form, text)


def test_method_of_version_1_is_ignored() -> None:
    offer = entry(network="base", extra={"assetTransferMethod": "permit2"})
    assert forms_of(terms_of_accepts([offer], version=1)) == ("eip155:8453 eip3009",)


def test_forms_are_distinct_sorted_and_limited() -> None:
    offers = [entry("upto", network=f"eip155:{chain}") for chain in (*range(20, 40), 20)]
    forms = forms_of(terms_of_accepts(offers, version=2))
    assert forms == tuple(sorted(set(forms)))
    assert len(forms) == MAX_FORMS


def test_offers_are_distinct_and_limited() -> None:
    offers = [entry("upto", network=f"eip155:{chain}") for chain in (*range(20, 40), 20)]
    found = list_offers(terms_of_accepts(offers, version=2))
    assert [offer.network for offer in found] == [f"eip155:{20 + n}" for n in range(MAX_OFFERS)]


def test_offer_ends_with_the_first_envelope_without_it() -> None:
    first, second = offer_to("0xa"), offer_to("0xb")
    known = update_offers((), (first,), at=1)
    known = update_offers(known, (second,), at=5)
    assert known == (second, structs.replace(first, until=5))
    assert update_offers(known, (second,), at=9) == known
    assert update_offers(known, (first,), at=9) == (first, structs.replace(second, until=9))
    later = 5 + OFFERS_MS
    assert update_offers(known, (second,), at=later - 1) == known
    assert update_offers(known, (second,), at=later) == (second,)


def test_number_of_ended_offers_is_limited() -> None:
    known: tuple[KnownOffer, ...] = ()
    for number in range(100):
        known = update_offers(known, (offer_to(f"0x{number}"),), at=number)
    assert [offer.pay_to for offer in known] == [f"0x{99 - n}" for n in range(MAX_ENDED_OFFERS + 1)]


def offer_to(pay_to: str) -> KnownOffer:
    return KnownOffer("eip155:8453", "exact", pay_to, 1_000)
