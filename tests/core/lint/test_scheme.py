"""Rules about the members of `extra` that each scheme requires."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.lint_envelopes import (
    MISSING,
    PAYEE,
    USDC,
    V1,
    V2,
    change_envelope,
    fired_rules,
    lint_answer,
    wheres,
)

from tollgauge.core.probe.exchange import Lint, OfficialClient, Severity

Document = dict[str, Any]
ENTRY = "accepts.0."
SOMEBODY = "0x93053f1e7A5eFEDa532Fe69CbbE43cBEc3A0F13f"
BAD_CHECKSUM = "0x209693bC6afc0C5328bA36FaF03C514EF312287C"
MEGA_USD = "0xFAfDdbb3FC7688494971a79cc65DCa3EF82079E7"
DOMAIN = {"name": "USD Coin", "version": "2"}


def make_offer(scheme: str, extra: Document) -> Document:
    """The good envelope with another scheme and `extra`."""
    return change_envelope(change_envelope(V2, ENTRY + "scheme", scheme), ENTRY + "extra", extra)


EXACT = make_offer("exact", DOMAIN)
PERMIT2 = make_offer("exact", {"assetTransferMethod": "permit2"})
UPTO = make_offer("upto", {**DOMAIN, "facilitatorAddress": SOMEBODY})
BATCH = make_offer(
    "batch-settlement", {**DOMAIN, "receiverAuthorizer": SOMEBODY, "withdrawDelay": 86_400}
)
CAPTURE = make_offer(
    "auth-capture",
    {
        **DOMAIN,
        "captureAuthorizer": SOMEBODY,
        "feeRecipient": SOMEBODY,
        "captureDeadline": 1_900_000_000,
        "refundDeadline": 1_900_086_400,
        "minFeeBps": 0,
        "maxFeeBps": 100,
    },
)
GOOD = {"exact": EXACT, "permit2": PERMIT2, "upto": UPTO, "batch": BATCH, "capture": CAPTURE}


def errors(result: Lint) -> set[str]:
    return {one.rule for one in result.findings if one.severity is Severity.ERROR}


@pytest.mark.parametrize("name", GOOD)
def test_good_offer_of_each_scheme_is_payable(name: str) -> None:
    result = lint_answer(GOOD[name])
    assert fired_rules(result, at_least=Severity.WARN) == set()
    assert (result.payable, result.compliant) == (True, True)


@pytest.mark.parametrize(
    ("offer", "member", "value", "rule"),
    [
        (UPTO, "facilitatorAddress", MISSING, "upto-facilitator"),
        (UPTO, "facilitatorAddress", "", "upto-facilitator"),
        (UPTO, "facilitatorAddress", "https://facilitator.example", "upto-facilitator"),
        (UPTO, "facilitatorAddress", "0x" + "0" * 40, "upto-facilitator"),
        (UPTO, "facilitatorAddress", [SOMEBODY], "upto-facilitator"),
        (BATCH, "receiverAuthorizer", MISSING, "batch-authorizer"),
        (BATCH, "receiverAuthorizer", "0xSeller", "batch-authorizer"),
        (BATCH, "receiverAuthorizer", "0x" + "0" * 40, "batch-authorizer"),
        (BATCH, "withdrawDelay", MISSING, "batch-delay"),
        (BATCH, "withdrawDelay", "86400", "batch-delay"),
        (BATCH, "withdrawDelay", 899, "batch-delay"),
        (BATCH, "withdrawDelay", 2_592_001, "batch-delay"),
        (BATCH, "withdrawDelay", 900.5, "batch-delay"),
        (BATCH, "withdrawDelay", True, "batch-delay"),
        (BATCH, "name", MISSING, "domain-missing"),
        (BATCH, "version", MISSING, "domain-missing"),
        (BATCH, "name", "USDC", "domain-wrong"),
        (BATCH, "assetTransferMethod", "erc7710", "batch-method"),
        (CAPTURE, "captureAuthorizer", MISSING, "capture-account"),
        (CAPTURE, "feeRecipient", BAD_CHECKSUM, "capture-account"),
        (CAPTURE, "captureDeadline", MISSING, "capture-terms"),
        (CAPTURE, "captureDeadline", "1900000000", "capture-terms"),
        (CAPTURE, "refundDeadline", 1_800_000_000, "capture-terms"),
        (CAPTURE, "minFeeBps", 101, "capture-terms"),
        (CAPTURE, "maxFeeBps", 10_001, "capture-terms"),
        (CAPTURE, "authCaptureEscrow", SOMEBODY, "capture-escrow"),
        (CAPTURE, "name", MISSING, "domain-missing"),
    ],
)
def test_members_that_a_scheme_requires_in_extra_are_checked(
    offer: Document, member: str, value: Any, rule: str
) -> None:
    extra = dict(offer["accepts"][0]["extra"])
    extra.pop(member, None)
    result = lint_answer(
        change_envelope(
            offer, ENTRY + "extra", extra if value is MISSING else {**extra, member: value}
        )
    )
    assert rule in errors(result)
    assert not result.payable


def test_upto_without_the_domain_of_the_token_is_payable_and_warned() -> None:
    result = lint_answer(make_offer("upto", {"facilitatorAddress": SOMEBODY}))
    assert wheres(result, "upto-domain") == {"accepts[0].extra.name", "accepts[0].extra.version"}
    assert (result.payable, result.compliant) == (True, True)


@pytest.mark.parametrize("domain", [{}, DOMAIN])
def test_erc7710_is_not_payable_as_an_unknown_scheme_is_not(domain: Document) -> None:
    result = lint_answer(make_offer("exact", {**domain, "assetTransferMethod": "erc7710"}))
    assert fired_rules(result, at_least=Severity.WARN) == {"scheme-unknown"}
    assert wheres(result, "scheme-unknown") == {"accepts[0].extra.assetTransferMethod"}
    assert (result.payable, result.compliant) == (False, True)


def test_version_1_clients_sign_eip3009_for_any_method() -> None:
    for method in ("permit2", "erc7710"):
        result = lint_answer(
            body=change_envelope(V1, ENTRY + "extra", {"assetTransferMethod": method})
        )
        assert "domain-missing" in errors(result)
        assert result.payable_by == {OfficialClient.PYTHON}


def test_permit2_only_token_must_be_offered_with_permit2() -> None:
    domain = {"name": "MegaUSD", "version": "1"}
    mega = change_envelope(
        change_envelope(V2, ENTRY + "network", "eip155:4326"), ENTRY + "asset", MEGA_USD
    )
    bare = lint_answer(change_envelope(mega, ENTRY + "extra", domain))
    assert ("asset-permit2" in errors(bare), bare.payable) == (True, False)
    right = {**domain, "assetTransferMethod": "permit2"}
    assert lint_answer(change_envelope(mega, ENTRY + "extra", right)).payable


def test_unknown_transfer_method_is_a_warning() -> None:
    result = lint_answer(change_envelope(V2, ENTRY + "extra.assetTransferMethod", "eip-3009"))
    assert (fired_rules(result), result.payable) == ({"transfer-method"}, True)


def test_permit2_without_sponsoring_notes_the_required_allowance() -> None:
    assert "permit2-allowance" in fired_rules(lint_answer(PERMIT2))
    for key in ("eip2612GasSponsoring", "erc20ApprovalGasSponsoring"):
        sponsored = change_envelope(PERMIT2, f"extensions.{key}", {"info": {}, "schema": {}})
        assert "permit2-allowance" not in fired_rules(lint_answer(sponsored))
    assert "permit2-allowance" not in fired_rules(lint_answer(V2))


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (ENTRY + "payTo", "0x000000000022D473030F116dDEE9F6B43aC78BA3", "payto-asset"),
        (ENTRY + "payTo", "0x402085c248EeA27D92E8b30b2C58ed07f9E20001", "payto-asset"),
        (ENTRY + "asset", "0xEeeeeEeeeEeEeeEeEeEeeEEEeeeeEeeeeeeeEEeE", "address-zero"),
        (ENTRY + "amount", str(2**256), "amount-form"),
    ],
)
def test_payment_that_can_never_settle_is_an_error(path: str, value: Any, rule: str) -> None:
    result = lint_answer(change_envelope(V2, path, value))
    assert rule in errors(result)
    assert not result.payable


def test_asset_and_payee_that_are_mixed_up_are_an_error() -> None:
    swapped = change_envelope(change_envelope(V2, ENTRY + "payTo", USDC), ENTRY + "asset", PAYEE)
    result = lint_answer(swapped)
    assert "payto-asset" in errors(result)
    assert not result.payable


@pytest.mark.parametrize(("offer", "bits"), [(BATCH, 128), (CAPTURE, 120), (EXACT, 256)])
def test_amount_fits_the_contract_of_its_scheme(offer: Document, bits: int) -> None:
    assert lint_answer(change_envelope(offer, ENTRY + "amount", str(2**bits - 1))).payable
    assert not lint_answer(change_envelope(offer, ENTRY + "amount", str(2**bits))).payable
