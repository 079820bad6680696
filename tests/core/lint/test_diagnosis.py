"""The diagnosis of a response: found and expected values, and the corrected envelope."""

from __future__ import annotations

import json
from typing import Any

import pytest
from eth_account import Account
from tests.support.lint_envelopes import (
    MISSING,
    PAYEE,
    URL,
    USDC,
    V1,
    V2,
    change_envelope,
    exchange_with,
)
from x402 import x402ClientSync
from x402.http.x402_http_client import x402HTTPClientSync
from x402.mechanisms.evm.exact import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner

from tollgauge.core.lint.correction import Correction
from tollgauge.core.lint.diagnosis import Diagnosis, diagnose
from tollgauge.core.lint.judge import ALL_RULES, lint
from tollgauge.core.lint.rule import RULE_ENTRIES
from tollgauge.core.probe.exchange import Exchange

SELLER_ONLY = {
    *("network-unknown", "network-divided", "payto-form", "address-zero", "payto-asset"),
    *("amount-zero", "amount-above-cap", "fee-payer-missing", "upto-facilitator"),
}
"""Rules whose examples only the seller can correct."""


def diagnose_exchange(exchange: Exchange) -> Diagnosis:
    return diagnose(exchange, lint(exchange))


def correct_envelope(envelope: Any, body: Any = None, **answer: Any) -> Correction:
    correction = diagnose_exchange(exchange_with(envelope, body, **answer)).correction
    assert correction is not None
    return correction


@pytest.mark.parametrize(
    ("path", "value", "found", "expected"),
    [
        (
            "accepts.0.amount",
            0.01,
            "0.01 (JSON number)",
            'a string of atomic units: "10000"',
        ),
        ("accepts.0.amount", "ten", '"ten"', 'a string of atomic units, for example "10000"'),
        ("accepts.0.amount", MISSING, "nothing", 'a string of atomic units, for example "10000"'),
        ("accepts.0.maxTimeoutSeconds", "90", '"90"', "a positive whole number of seconds: 90"),
        ("accepts.0.payTo", "me", '"me"', "one account of this network"),
        ("accepts.0.extra", ["x"], "an array of 1", "an object: {}"),
        ("x402Version", True, "true", "the number 2, or 1 in a version 1 body: 2"),
        (
            "resource.url",
            "http://a.example",
            '"http://a.example"',
            f'the requested URL: "{URL}"',
        ),
    ],
)
def test_finding_states_the_found_and_the_expected_value(
    path: str, value: Any, found: str, expected: str
) -> None:
    detail = diagnose_exchange(exchange_with(change_envelope(V2, path, value))).details[0]
    assert (detail.found, detail.expected) == (found, expected)


@pytest.mark.parametrize("slug", [rule.slug for rule in ALL_RULES])
def test_every_rule_states_both_for_its_wrong_example(slug: str) -> None:
    diagnosis = diagnose_exchange(RULE_ENTRIES[slug].wrong.exchange())
    (detail, *_) = (one for one in diagnosis.details if one.finding.rule == slug)
    assert detail.found
    assert detail.expected
    assert detail.expected == detail.expected.strip(". ")


@pytest.mark.parametrize("slug", [rule.slug for rule in ALL_RULES])
def test_correction_removes_the_finding_and_keeps_payability(slug: str) -> None:
    exchange = RULE_ENTRIES[slug].wrong.exchange()
    correction = diagnose_exchange(exchange).correction
    if correction is None:
        return
    assert (slug not in correction.remaining) == (slug not in SELLER_ONLY)
    if correction.header is not None:
        better = exchange_with(raw=correction.header, method=exchange.method)
        assert lint(better).payable >= lint(exchange).payable
        assert diagnose_exchange(better).correction is None


def test_errors_come_first() -> None:
    broken = change_envelope(change_envelope(V2, "accepts.0.amount", 1), "resource.description", "")
    details = diagnose_exchange(exchange_with(broken, more=())).details
    severities = [detail.finding.severity.rank for detail in details]
    assert severities == sorted(severities)
    assert len(set(severities)) > 1


def test_line_of_a_finding_is_marked_or_the_one_around_a_missing_member() -> None:
    broken = change_envelope(
        change_envelope(V2, "accepts.0.amount", 0.01), "accepts.0.extra", {"version": "2"}
    )
    diagnosis = diagnose_exchange(exchange_with(broken))
    marked = {line.text.strip(): line.rules for line in diagnosis.lines if line.rules}
    assert marked == {'"amount": 0.01,': ("amount-form",), '"extra": {': ("domain-missing",)}
    assert json.loads("".join(line.text for line in diagnosis.lines)) == broken
    assert diagnosis.place == "header"


def test_stock_client_pays_the_corrected_envelope() -> None:
    """Every kind of mistake whose intended value is unambiguous."""
    offer = {
        "scheme": " Exact",
        "network": "base",
        "maxAmountRequired": "$0.01",
        "asset": "eip155:8453/erc20:" + USDC,
        "payTo": PAYEE,
        "maxTimeoutSeconds": "60",
    }
    raw = correct_envelope(None, {"x402Version": "2", "resource": URL, "accepts": [None, offer]})
    assert raw.header is not None
    client = x402ClientSync()
    register_exact_evm_client(client, EthAccountSigner(Account.from_key("0x" + "11" * 32)))
    payer = x402HTTPClientSync(client)
    required = payer.get_payment_required_response(
        lambda name: raw.header if name.lower() == "payment-required" else None, b""
    )
    payment = client.create_payment_payload(required)
    authorization = payment.payload["authorization"]
    assert (authorization["to"], authorization["value"]) == (PAYEE, "10000")


def test_header_that_is_the_json_itself_or_only_a_part_is_made_whole() -> None:
    assert correct_envelope(None, raw=json.dumps(V2)).envelope == V2
    part = correct_envelope(V2["accepts"])
    assert part.envelope == {
        "x402Version": 2,
        "accepts": V2["accepts"],
        "resource": {"url": URL},
    }
    assert part.header is not None


def test_body_of_version_1_stays_one() -> None:
    correction = correct_envelope(None, change_envelope(V1, "accepts.0.maxTimeoutSeconds", "60"))
    assert correction.header is None
    assert correction.envelope == V1


def test_nothing_is_corrected_in_a_good_answer_or_without_an_envelope() -> None:
    for exchange in (
        exchange_with(V2),
        exchange_with(None, b"<html>"),
        exchange_with(None, status=500),
    ):
        assert diagnose_exchange(exchange).correction is None
