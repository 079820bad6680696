"""Published conformance cases of other projects, rebuilt from this project's envelopes.

Names and verdicts are those of the publishers: the corpus of 10x402, version 3 of 2026-08-20
(github.com/algonormative/10x402, corpus/fixtures.json), and the checks that the validator of CDP's
Bazaar reported on 2026-08-19 (audit/2026-08-19/cdp-validator-toolshed.json in the same repository).
Where the linter differs, the case states why.
"""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import dataclass
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
    exchange_with,
    fired_rules,
)

from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Exchange

ENTRY = "accepts.0."
INPUT = "extensions.bazaar.info.input"
SOLANA = {
    "network": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
    "asset": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
    "payTo": "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4",
    "extra": {"feePayer": "EwWqGE4ZFKLofuestmU4LDdK7XM1N4ALgdZccwYugwGd"},
}
LISTING_RULES = {
    *("bazaar-absent", "bazaar-shape", "bazaar-input", "bazaar-method", "bazaar-method-mismatch"),
    *("schema-mismatch", "schema-broken", "schema-external-ref", "schema-too-complex"),
}


def change_entry(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An envelope with members of its first entry changed."""
    envelope = copy.deepcopy(base)
    for name, value in changes.items():
        envelope = change_envelope(envelope, ENTRY + name, value)
    return envelope


def without(path: str) -> dict[str, Any]:
    return change_envelope(V2, path, MISSING)


def both(header: Any = V2, body: Any = V1, **answer: Any) -> Exchange:
    """A 402 with an envelope of each version."""
    return exchange_with(header, body, **answer)


def encode_raw(text: str) -> Exchange:
    return exchange_with(body=V1, raw=text)


def url_safe() -> str:
    described = change_envelope(V2, "resource.description", "Weather?" * 4)
    standard = base64.b64encode(json.dumps(described).encode()).decode()
    assert {"+", "/"} & set(standard)
    return standard.replace("+", "-").replace("/", "_").rstrip("=")


@dataclass(frozen=True)
class Case:
    """A published case. None: the corpus gives no verdict.

    `payable`: the dimensions `payment` and `client_interop` pass. `listed`: the extension of the
    dimension `discovery` passes; None also if discovery fails because of the payment's terms.
    `differs`: why the linter's result is another one.
    """

    name: str
    exchange: Exchange
    payable: bool | None = True
    listed: bool | None = True
    rule: str = ""
    differs: str = ""


WITHOUT_BAZAAR = without("extensions")
SECOND = {**V2["accepts"][0], "asset": "0x820C137fa70C8691f0e44Dc420a5e53c168921Dc"}
CASES = [
    Case("calibration-spec-canonical-402", exchange_with(WITHOUT_BAZAAR, {}), listed=False),
    Case("calibration-bazaar-spec-example", exchange_with(V2, {})),
    Case(
        "calibration-solana-spec-envelope",
        exchange_with(change_entry(WITHOUT_BAZAAR, **SOLANA), {}),
        listed=False,
    ),
    Case(
        "calibration-cloudflare-batch-settlement",
        exchange_with(
            change_entry(
                WITHOUT_BAZAAR,
                scheme="batch-settlement",
                network="cloudflare:402",
                asset="USD",
                payTo="merchant",
                extra={},
                maxTimeoutSeconds=MISSING,
            )
        ),
        listed=False,
        rule="not-evaluated",
    ),
    Case("perfect-dual-stack", both()),
    Case(
        "dual-offers-reordered",
        both(change_envelope(V2, "accepts", [SECOND, V2["accepts"][0]])),
    ),
    Case("perfect-v2-only", exchange_with(V2)),
    Case("perfect-v1-only", exchange_with(body=V1), listed=None, rule="v1-only"),
    Case(
        "v2-header-b64-urlsafe",
        encode_raw(url_safe()),
        payable=False,
        listed=None,
        rule="header-base64url",
        differs="the specification names no alphabet, so the terms are read; it is a warning",
    ),
    Case(
        "v2-header-b64-whitespace",
        encode_raw(f" {base64.b64encode(json.dumps(V2).encode()).decode()} "),
        payable=False,
        listed=None,
        rule="header-whitespace",
        differs="HTTP strips whitespace around a value; it is a warning",
    ),
    Case(
        "no-envelope-html-body",
        exchange_with(body=b"<h1>402</h1>"),
        payable=False,
        listed=None,
        rule="no-envelope",
    ),
    Case(
        "v2-network-bare-name",
        both(change_entry(V2, network="base")),
        payable=False,
        listed=None,
        rule="network-form",
    ),
    Case(
        "v1-network-caip2",
        both(body=change_entry(V1, network="eip155:8453")),
        payable=False,
        rule="body-unpayable",
        differs="clients of version 2 read the header, which is good; the body is a warning",
    ),
    Case(
        "v2-amount-uses-v1-field-name",
        both(change_entry(V2, amount=MISSING, maxAmountRequired="10000")),
        payable=False,
        listed=None,
        rule="amount-form",
    ),
    Case(
        "v2-resource-flat-string",
        both(change_envelope(V2, "resource", URL)),
        payable=False,
        listed=None,
        rule="resource-shape",
        differs="the decoder of the TypeScript client accepts it and the client signs",
    ),
    Case("v2-envelope-echoed-into-body", both(body=V2)),
    Case(
        "v2-timeout-string",
        both(change_entry(V2, maxTimeoutSeconds="60")),
        payable=False,
        rule="timeout-form",
    ),
    Case(
        "v2-timeout-absent",
        both(change_entry(V2, maxTimeoutSeconds=MISSING)),
        payable=False,
        listed=None,
        rule="timeout-form",
    ),
    Case(
        "v2-asset-ticker-not-address",
        exchange_with(change_entry(V2, asset="USDC")),
        payable=False,
        listed=None,
        rule="asset-form",
    ),
    Case(
        "extra-eip712-absent",
        both(change_entry(V2, extra=MISSING), change_entry(V1, extra=MISSING)),
        payable=False,
        rule="domain-missing",
        differs="the Python client signs for a token whose domain it knows",
    ),
    Case(
        "v2-payto-array",
        both(change_entry(V2, payTo=[PAYEE])),
        payable=False,
        listed=None,
        rule="payto-form",
    ),
    Case(
        "dual-payto-divergence",
        both(body=change_entry(V1, payTo="0x00000000000000000000000000000000000000ff")),
        rule="envelope-mismatch",
    ),
    Case(
        "dual-network-unmapped-chain",
        both(
            change_entry(
                V2, network="eip155:42161", asset="0xaf88d065e77c8cC2239327C5EDb3A432268e5831"
            ),
            change_entry(V1, network="arbitrum"),
        ),
        payable=False,
        rule="body-unpayable",
        differs="clients of version 2 read the header, which is good; the body is a warning",
    ),
    Case("solana-dual-stack", both(change_entry(V2, **SOLANA))),
    Case(
        "free-tier-200",
        exchange_with(status=200),
        payable=None,
        listed=None,
        rule="status-unpaid",
    ),
    Case(
        "redirect-instead-of-402",
        exchange_with(status=307),
        payable=None,
        listed=None,
        rule="status-redirect",
    ),
    Case("bazaar-extension-absent", both(WITHOUT_BAZAAR), listed=False, rule="bazaar-absent"),
    Case(
        "bazaar-info-schema-mismatch",
        both(change_envelope(V2, "extensions.bazaar.schema.required", ["price"])),
        listed=False,
        rule="schema-mismatch",
    ),
    Case(
        "bazaar-schema-external-ref",
        both(change_envelope(V2, "extensions.bazaar.schema.$ref", "https://a.b/s.json")),
        listed=False,
        rule="schema-external-ref",
    ),
    Case(
        "bazaar-input-no-type",
        both(change_envelope(V2, f"{INPUT}.type", MISSING)),
        listed=False,
        rule="bazaar-input",
    ),
    Case(
        "bazaar-input-method-mismatch",
        both(change_envelope(V2, f"{INPUT}.method", "DELETE")),
        listed=False,
        rule="bazaar-method-mismatch",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_the_corpus_of_10x402_or_the_difference_is_stated(case: Case) -> None:
    result = lint(case.exchange)
    rules = fired_rules(result)
    if case.rule:
        assert case.rule in rules
    if case.payable is not None:
        assert (result.payable is not case.payable) is bool(case.differs)
    if case.listed is not None:
        assert (not rules & LISTING_RULES) is case.listed


@dataclass(frozen=True)
class Check:
    """A check of CDP's validator, an answer that fails it, and the linter's rule about it."""

    name: str
    exchange: Exchange
    rule: str


MISSING_PARTS = {
    "info": "bazaar-shape",
    "info.input": "bazaar-input",
    "info.input.type": "bazaar-input",
    "info.input.method": "bazaar-method",
    "schema": "bazaar-shape",
}
CHECKS = [
    Check(
        "url_https",
        exchange_with(change_envelope(V2, "resource.url", "http://a.b/c")),
        "resource-http",
    ),
    Check("endpoint_reachable", exchange_with(status=500), "status-server-error"),
    Check("returns_402", exchange_with(status=200), "status-unpaid"),
    Check("x402_version", exchange_with(change_envelope(V2, "x402Version", 3)), "version-form"),
    Check("payment_required_header", exchange_with(body=V2), "v2-in-body"),
    Check("has_accepts", exchange_with(change_envelope(V2, "accepts", [])), "accepts-empty"),
    Check("accepts[0].scheme", exchange_with(change_entry(V2, scheme="cash")), "scheme-unknown"),
    Check("accepts[0].network", exchange_with(change_entry(V2, network="base")), "network-form"),
    Check("accepts[0].asset", exchange_with(change_entry(V2, asset=PAYEE)), "asset-not-default"),
    Check("accepts[0].amount", exchange_with(change_entry(V2, amount="0")), "amount-zero"),
    Check("accepts[0].payTo", exchange_with(change_entry(V2, payTo=MISSING)), "payto-form"),
    Check(
        "accepts[0].maxTimeoutSeconds",
        exchange_with(change_entry(V2, maxTimeoutSeconds=MISSING)),
        "timeout-form",
    ),
    Check("has_resource", exchange_with(without("resource")), "resource-missing"),
    Check("has_bazaar_extension", exchange_with(WITHOUT_BAZAAR), "bazaar-absent"),
    *(
        Check(f"bazaar.{path}", exchange_with(without(f"extensions.bazaar.{path}")), rule)
        for path, rule in MISSING_PARTS.items()
    ),
    Check(
        "bazaar.info.input.method.matches_request",
        exchange_with(change_envelope(V2, f"{INPUT}.method", "DELETE")),
        "bazaar-method-mismatch",
    ),
    Check(
        "parse",
        exchange_with(change_envelope(V2, "extensions.bazaar.schema.required", ["price"])),
        "schema-mismatch",
    ),
]
OTHER_CHECKS = {
    "url_valid": "the URL of an endpoint is parsed before it is probed",
    "valid_json": "version 2 leaves the body to the server",
    "bazaar.info.output": "advisory: it does not prevent the listing",
    "bazaar.info.output.example": "advisory: it does not prevent the listing",
}
"""Checks about which the linter has no rule."""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_answer_that_fails_a_check_of_cdp_has_a_finding(check: Check) -> None:
    assert check.rule in fired_rules(lint(check.exchange))


def test_every_check_of_cdp_is_compared() -> None:
    assert len({check.name for check in CHECKS} | OTHER_CHECKS.keys()) == 25
    assert not {check.name for check in CHECKS} & OTHER_CHECKS.keys()


def test_limits_of_cdp_are_not_defects() -> None:
    # CDP lists prices from 1,000 atomic units, on the networks of its own facilitator.
    cheap = exchange_with(change_entry(V2, amount="100"))
    elsewhere = exchange_with(
        change_entry(V2, network="eip155:43114", asset="0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E")
    )
    assert USDC not in str(elsewhere)
    for exchange in (cheap, elsewhere):
        assert fired_rules(lint(exchange)) == set()
