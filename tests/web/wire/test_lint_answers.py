"""Brief lint results keep the most severe findings and count the omitted ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.support.lint_envelopes import V1, V2, change_envelope, exchange_with

from docs.response_examples import sample_report
from tollgauge.core.lint.judge import ALL_RULES, lint
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.score.flag import Flag
from tollgauge.web.wire import lint_answers, trust
from tollgauge.web.wire.lint_answers import BRIEF_BYTES, LintResponse, brief, rule_page, stored_lint
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.trust import SHORT_BYTES, trust_report

BASE = "https://gauge.example.org/"


def brief_of(envelope: Any, body: Any = None) -> tuple[LintResponse, Any]:
    exchange = exchange_with(envelope, body)
    model = lint_answers.lint(lint(exchange), exchange, base_url=BASE)
    text = brief(model)
    assert len(text) <= BRIEF_BYTES
    return model, json.loads(text)


def test_brief_lint_keeps_a_small_result_complete() -> None:
    model, short = brief_of(change_envelope(V2, "accepts.0.extra.name", "USDC"))
    (row,) = short["findings"]
    assert row == {
        "rule": "domain-wrong",
        "severity": "error",
        "message": model.findings[0].message,
        "where": "accepts[0].extra.name",
        "found": '"USDC"',
        "expected": 'the EIP-712 domain of the token: "USD Coin"',
    }
    assert len(short["terms"]) == 1
    assert short["corrected"]["envelope"] == V2
    assert {"moreFindings", "moreTerms", "envelope"}.isdisjoint(short)


def test_brief_lint_keeps_the_worst_findings_and_counts_the_rest() -> None:
    bad = {"scheme": "Exact", "network": "base", "amount": 1, "asset": "USDC", "payTo": "me"}
    envelope = {"x402Version": "2", "error": 5, "resource": "x", "extensions": []}
    model, short = brief_of(envelope | {"accepts": [*[bad] * 9, *V2["accepts"] * 9]}, V1)
    rules = [finding.rule for finding in model.findings]
    kept = [row["rule"] for row in short["findings"]]
    assert kept == rules[: len(kept)]
    assert short["findings"][0]["severity"] == "error"
    assert short["moreFindings"] == len(rules) - len(kept) > 0
    assert short["moreTerms"] == len(model.terms) - len(short["terms"]) > 0


def test_stored_lint_has_no_found_values() -> None:
    exchange = exchange_with(change_envelope(V2, "accepts.0.extra.name", "USDC"), None)
    stored = stored_lint(lint(exchange), base_url=BASE, resource="https://a.example", at=0)
    (row,) = stored.model_dump(by_alias=True)["findings"]
    assert row["expected"] == "the EIP-712 domain of the token"
    assert {"found"}.isdisjoint(row)
    assert {"envelope", "corrected"}.isdisjoint(stored.model_dump(by_alias=True))


@pytest.mark.parametrize("length", [10, 250, 2_000, 60_000])
def test_brief_lint_limits_foreign_texts(length: int) -> None:
    entry = V2["accepts"][0] | {"payTo": "a" * length, "asset": '"' * length}
    brief_of(change_envelope(V2, "accepts", [entry] * 5))


def test_only_lint_rules_have_a_page() -> None:
    for slug in (ALL_RULES[0].slug, ALL_RULES[-1].slug):
        page = f"https://gauge.example.org/lint/rules/{slug}"
        assert rule_page(slug, BASE) == rule_page(f"lint:{slug}", BASE) == page
    assert rule_page("lint:retired", BASE) is None
    assert rule_page("down-now", BASE) is None


def test_report_links_lint_flags_to_their_rules_if_there_is_room() -> None:
    flags = tuple(
        Flag(code=code, severity=Severity.WARN, message="m")
        for code in ("lint:domain-wrong", "lint:retired-rule", "down-now")
    )
    report = sample_report()
    report = replace(report, score=replace(report.score, flags=flags))
    whole = trust_report(report, base_url="https://gauge.example.org")
    pages = {code: flag.page for code, flag in whole.flags.items()}
    page = "https://gauge.example.org/lint/rules/domain-wrong"
    assert pages == {"lint:domain-wrong": page, "lint:retired-rule": None, "down-now": None}
    assert trust.short(whole).flags["lint:domain-wrong"].page == page
    wordy = {
        code: flag.model_copy(update={"message": "m" * 1_500}) for code, flag in whole.flags.items()
    }
    crowded = trust.short(whole.model_copy(update={"flags": wordy}))
    assert len(dump(crowded)) <= SHORT_BYTES
    assert crowded.flags["lint:domain-wrong"].page is None
