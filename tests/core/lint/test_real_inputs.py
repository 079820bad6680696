"""The linter on responses of real services, compared with published verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.recorded import FOLDER, needs_recorded_inputs

from tollgauge.core.lint.capture import exchange_from_capture
from tollgauge.core.lint.diagnosis import diagnose
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Lint

CHALLENGES = FOLDER / "challenges"
pytestmark = needs_recorded_inputs


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def files(folder: str) -> list[Path]:
    return sorted((CHALLENGES / folder).glob("*.json"))


def rules(result: Lint) -> set[str]:
    return {finding.rule for finding in result.findings}


def check_capture(capture: dict[str, Any]) -> Lint:
    """The lint of a capture, after what holds for every lint was checked."""
    exchange = exchange_from_capture(capture)
    result = lint(exchange)
    assert len(diagnose(exchange, result).details) == len(result.findings)
    assert result.compliant == (result.errors == 0)
    assert not result.payable or result.terms
    return result


def of_captured(path: Path) -> Lint:
    """A captured exchange without headers that its author shortened."""
    seen = load(path)
    headers = seen.get("headers") or {}
    if seen.get("header_elided_at_source"):
        headers = {
            name: text for name, text in headers.items() if name.lower() != "payment-required"
        }
    body = seen["body"] if seen.get("body") is not None else seen.get("body_raw")
    request = seen.get("request") or {}
    return check_capture(
        {
            "status": seen["status"],
            "headers": headers,
            "body": body,
            "url": request.get("url"),
            "method": request.get("method"),
        }
    )


@pytest.mark.parametrize("path", files("verdicts"), ids=lambda path: path.stem)
def test_payable_agrees_with_every_published_verdict(path: Path) -> None:
    fixture = load(path)
    context = fixture["context"]
    result = check_capture(
        {
            "status": fixture["status"],
            "headers": fixture["headers"],
            "body": fixture["body"],
            "url": context["url"],
            "method": context["method"],
        }
    )
    if fixture["judgeable"]["payment"]:
        assert result.payable == (fixture["expected"]["payment"]["verdict"] == "pass")
    else:
        assert not result.payable


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("bazaar-info-schema-mismatch", "schema-mismatch"),
        ("bazaar-input-method-mismatch", "bazaar-method-mismatch"),
        ("bazaar-input-no-type", "bazaar-input"),
        ("bazaar-extension-absent", "bazaar-absent"),
        ("v2-header-b64-urlsafe", "header-base64url"),
        ("v2-header-b64-whitespace", "header-whitespace"),
    ],
)
def test_reports_why_published_fixtures_fail_directories_or_clients(name: str, rule: str) -> None:
    fixture = load(CHALLENGES / "verdicts" / f"{name}.json")
    capture = {key: fixture[key] for key in ("status", "headers", "body")}
    result = check_capture({**capture, "method": fixture["context"]["method"]})
    assert rule in rules(result)


@pytest.mark.parametrize("path", files("captured"), ids=lambda path: path.stem)
def test_captured_exchanges_are_judged_without_an_exception(path: Path) -> None:
    result = of_captured(path)
    assert result.findings, "no captured answer is without a flaw"
    if load(path)["status"] != 402:
        assert not result.payable


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("017-crypto-sentiment-empty-asset", {"asset-form", "payto-form"}),
        ("018-dpe-bdatax-v2-base", {"v2-in-body", "network-form", "v1-fields", "resource-missing"}),
        ("026-x402rs-axum-solana-devnet", {"fee-payer-missing"}),
        ("033-x402xai-core-response", {"v1-resource", "network-unknown"}),
        ("045-manual-gate-eip155-42793", {"version-form", "accepts-missing"}),
        ("046-tiny-header-version-only", {"header-name", "envelope-nested", "no-envelope"}),
        ("055-regen-compute-nested", {"header-name", "no-envelope"}),
        ("058-stellar-asset-object", {"asset-form", "amount-not-atomic"}),
        ("075-subnet-dispatcher-empty-accepts-header-price-body", {"version-form", "amount-form"}),
        ("002-oklink-get-405", {"status-method"}),
        ("007-xbubble-200-unpaid", {"status-unpaid"}),
    ],
)
def test_reports_the_defects_of_real_responses(name: str, expected: set[str]) -> None:
    result = of_captured(CHALLENGES / "captured" / f"{name}.json")
    assert expected <= rules(result)
    assert not result.payable


@pytest.mark.parametrize(
    "name",
    [
        "001-oklink-get_chain_info",
        "012-nansen-token-screener",
        "013-goplausible-avm-weather",
        "071-cmc-quotes-latest-full-header",
    ],
)
def test_real_services_that_take_payments_are_payable(name: str) -> None:
    assert of_captured(CHALLENGES / "captured" / f"{name}.json").payable


def test_differing_real_header_and_body_are_reported() -> None:
    result = of_captured(CHALLENGES / "captured" / "012-nansen-token-screener.json")
    assert "envelope-mismatch" in rules(result)


@pytest.mark.parametrize("path", files("bodies"), ids=lambda path: path.stem)
def test_published_bodies_are_judged_without_an_exception(path: Path) -> None:
    seen = load(path)
    result = check_capture({"status": 402, "headers": seen["headers"], "body": seen["raw_body"]})
    assert not (result.payable and result.version == 2)


def test_of_published_headers_only_those_that_ask_for_payment_are_payable() -> None:
    lines = (CHALLENGES / "headers.jsonl").read_text(encoding="utf-8").splitlines()
    payable = 0
    for line in lines:
        sample = json.loads(line)
        result = check_capture({"status": 402, "headers": {"PAYMENT-REQUIRED": sample["header"]}})
        assert result.version is not None
        if sample["kind"] == "PaymentRequired":
            payable += result.payable
        else:
            assert "accepts-missing" in rules(result)
            assert not result.payable
    assert payable > 0
