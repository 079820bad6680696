"""Schemes: what each asks in `extra`, told as the two official clients tell it.

Both clients get every variation of a good entry, field by field. They must sign every entry that
the linter calls payable. If the linter refuses an entry that they sign, the rule that refuses is
one of `STRICTER`, with the reason.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.lint_envelopes import (
    MISSING,
    PAYEE,
    URL,
    USDC,
    V1,
    V2,
    change_envelope,
    fired_rules,
    lint_answer,
    wheres,
)
from tests.support.official_clients import ask_typescript, python_client, python_refusal, question
from x402.mechanisms.evm import constants
from x402.mechanisms.evm.batch_settlement import constants as channels

from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.lint.scheme import ESCROWS, WITHDRAW_DELAY
from tollgauge.core.lint.token import X402_CONTRACTS
from tollgauge.core.probe.exchange import Lint, Severity

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
ENVELOPES = {**GOOD, "v1": V1}
"""That of version 1 is sent as a body, the others in a header."""


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
        assert not result.payable


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


def test_contracts_and_bounds_are_those_of_the_installed_sdks() -> None:
    named = {
        constants.PERMIT2_ADDRESS,
        constants.X402_EXACT_PERMIT2_PROXY_ADDRESS,
        constants.X402_UPTO_PERMIT2_PROXY_ADDRESS,
        channels.BATCH_SETTLEMENT_ADDRESS,
    }
    assert {address.lower() for address in named} == X402_CONTRACTS
    bounds = (channels.MIN_WITHDRAW_DELAY, channels.MAX_WITHDRAW_DELAY)
    assert bounds == (WITHDRAW_DELAY[0], WITHDRAW_DELAY[-1])


@pytest.mark.node
def test_escrows_of_auth_capture_are_those_of_the_installed_sdk() -> None:
    module = Path(__file__).parents[3] / "node_modules/@x402/evm/dist/cjs/auth-capture/client"
    source = (module / "index.js").read_text(encoding="utf-8")
    addresses = re.findall(r'AUTH_CAPTURE_ESCROW_V\w+ = "(0x[0-9a-fA-F]{40})"', source)
    assert {address.lower() for address in addresses} == ESCROWS


ADDRESSES = [
    *(PAYEE, PAYEE.lower(), "0x" + PAYEE[2:].upper(), "0X" + PAYEE[2:], PAYEE[2:], PAYEE[:-1]),
    *(BAD_CHECKSUM, "0x" + "0" * 40, USDC, "USDC", "0xYOUR_WALLET", "seller.eth", f" {PAYEE}"),
]
ODD: list[Any] = [MISSING, None, "", [], {}, True, 0, 5, -1, 1.5, "x"]
NUMBERS: list[Any] = [
    *("10000", "0", "1", "010", "-1", "+1", "1.0", "0.01", "1e4", "0x10", " 1", "1 ", "1_000"),
    *("$1", "1,000", str(2**119), str(2**127), str(2**255), str(2**256), 10_000, 10_000.0),
]
VALUES: dict[str, list[Any]] = {
    "scheme": ["exact", "Exact", "upto", "batch-settlement", "auth-capture", "exact "],
    "network": [
        *("eip155:8453", "eip155:1", "eip155:0", "eip155:08453", "eip155:x", "EIP155:8453"),
        *("eip155", "eip155:", "eip155:8453:1", "eip155:9007199254740992", "eip155:1e3", "base"),
        *("Base", "monad", "sepolia", "bsc", "arbitrum", "story", "8453", "solana:mainnet"),
    ],
    "amount": NUMBERS,
    "maxAmountRequired": NUMBERS,
    "asset": [USDC, USDC.lower(), *ADDRESSES],
    "payTo": ADDRESSES,
    "maxTimeoutSeconds": [60, "60", 60.0, 60.5, 5, 6, 2**53, 2**60, 10**30],
    "resource": [URL, {"url": URL}],
    "description": ["Weather"],
    "mimeType": ["text/plain"],
    "outputSchema": [{"input": {}}, "x"],
    "extra": [DOMAIN, [DOMAIN], json.dumps(DOMAIN)],
}
EXTRA: dict[str, list[Any]] = {
    "name": ["USD Coin", "USDC", "usd coin"],
    "version": ["2", "1", 2],
    "assetTransferMethod": ["eip3009", "permit2", "erc7710", "EIP3009", "default"],
    "paymentFlow": ["authorization", "upfront", "escrow", "later"],
    "facilitatorAddress": ADDRESSES,
    "receiverAuthorizer": ADDRESSES,
    "withdrawDelay": [900, 899, 2_592_000, 2_592_001, "900", 900.5],
    "minDeposit": ["1000000", 1, "x"],
    "captureAuthorizer": ADDRESSES,
    "feeRecipient": ADDRESSES,
    "captureDeadline": [1_900_000_000, 1.5, "1900000000", 2**48, 1],
    "refundDeadline": [1_900_086_400, 1, 2**48, 2**48 - 1],
    "minFeeBps": [0, 100, 101, 70_000],
    "maxFeeBps": [0, 10_000, 10_001, "100"],
    "authCaptureEscrow": ["0xf96815976523E00e65Be8f34cA5e64b4f41EB19c", *ADDRESSES],
    "receiverAuthority": ["x"],
}
TOP: dict[str, list[Any]] = {
    "x402Version": [1, 2, 3, "2", "1", 2.0, 2.5],
    "error": ["Payment required"],
    "resource": [{"url": URL}, URL, {}, {"url": ""}, {"url": 5}, {"url": URL, "tags": "a"}],
    "accepts": [{}, ["exact"], [[]], [None]],
    "extensions": [{}, {"bazaar": None}],
}


def with_member(document: Document, holder: str, key: str, value: Any) -> Document:
    """A copy with one member set or, for MISSING, left out."""
    copied: Document = json.loads(json.dumps(document))
    at: Any = copied
    for part in filter(None, holder.split(".")):
        at = at[int(part) if part.isdigit() else part]
    at.pop(key, None)
    if value is not MISSING:
        at[key] = value
    return copied


def variations(document: Document) -> list[Document]:
    """Every member of an envelope, its entry and its `extra`, missing and with every odd value."""
    return [
        with_member(document, holder, key, value)
        for holder, table in (("", TOP), ("accepts.0", VALUES), ("accepts.0.extra", EXTRA))
        for key, values in table.items()
        for value in itertools.chain(ODD, values)
    ]


@pytest.fixture(scope="module")
def refusals() -> dict[str, list[str]]:
    """Why the official TypeScript client does not pay each variation of an envelope; empty where it
    does. One process answers for all envelopes.
    """
    questions = [
        question(document, header=name != "v1")
        for name, envelope in ENVELOPES.items()
        for document in variations(envelope)
    ]
    answers = iter(ask_typescript(questions))
    return {
        name: [next(answers) for _ in variations(envelope)] for name, envelope in ENVELOPES.items()
    }


PYTHON_LACKS = frozenset({"auth-capture"})
"""Schemes that the installed Python client has not."""
DIVIDED = frozenset({"sepolia", "story"})
"""Networks of version 1 that the two clients do not agree on."""
STRICTER = {
    "version-form": "a text or a fraction; the Python client does not look",
    "scheme-form": "one of the two compares exactly",
    "scheme-unknown": "both sign an EIP-3009 authorization where ERC-7710 is asked",
    "network-chain": "the other text for a chain is another network to a facilitator",
    "amount-form": "clients sign numbers and odd texts that facilitators compare as they are",
    "timeout-form": "one of the two signs a date that is none",
    "timeout-too-short": "a facilitator wants six seconds",
    "asset-form": "the Python client takes hex without 0x",
    "payto-form": "the Python client takes hex without 0x",
    "address-zero": "tokens refuse the zero address",
    "payto-asset": "the token refuses itself",
    "address-strict": "the Python client corrects the letters",
    "domain-missing": "the Python client has names of its own",
    "domain-wrong": "the signature is invalid for this token",
    "upto-facilitator": "no facilitator has the zero address",
    "batch-authorizer": "the Python client takes hex without 0x",
    "batch-delay": "clients fill in a delay that the seller's facilitator does not expect",
    "capture-account": "a token refuses the zero address",
    "capture-terms": "the escrow refuses it",
    "error-text": "the Python client refuses it",
    "resource-shape": "the Python client refuses it",
    "extensions-object": "the Python client refuses it",
    "extra-object": "the Python client refuses it",
    "flow-unknown": "both drop it in version 2, one in version 1",
    "entry-object": "the Python client refuses it",
    "v1-resource": "the Python client refuses it",
    "v1-texts": "the Python client refuses it",
    "network-form": "one of the two compares exactly",
    "network-unknown": "one of the two compares exactly",
}
FATAL = frozenset(rule.slug for rule in ALL_RULES if rule.fatal)


def first_entry(document: Document) -> Document:
    accepts = document.get("accepts")
    entry = accepts[0] if isinstance(accepts, list) and accepts else None
    return entry if isinstance(entry, dict) else {}


@pytest.mark.node
@pytest.mark.parametrize("name", ENVELOPES)
def test_both_official_clients_sign_payable_entries(
    name: str, refusals: dict[str, list[str]]
) -> None:
    header = name != "v1"
    client = python_client()
    wrong: list[tuple[object, ...]] = []
    for document, refusal in zip(variations(ENVELOPES[name]), refusals[name], strict=True):
        result = lint_answer(document) if header else lint_answer(body=document)
        entry = first_entry(document)
        scheme, network = entry.get("scheme"), entry.get("network")
        python = str(scheme) in PYTHON_LACKS or not python_refusal(client, document, header=header)
        agreed = (python and not refusal) or str(network) in DIVIDED
        reasons = fired_rules(result) & FATAL
        if result.payable and not agreed:
            wrong.append(("payable", entry, document.keys(), python, refusal[:90]))
        if not result.payable and python and not refusal and not reasons & STRICTER.keys():
            wrong.append(("refused", entry, sorted(reasons)))
    assert wrong == []
