"""A lint in short keeps what matters most, and says what it leaves out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.lint_envelopes import V1, V2, changed, judged

from tollgauge.core.lint import ALL_RULES
from tollgauge.web import wire
from tollgauge.web.wire.lint import BRIEF_BYTES

BASE = "https://gauge.example.org/"


def brief_of(envelope: Any, body: Any = None) -> tuple[wire.LintShape, Any]:
    shape = wire.lint(judged(envelope, body), base_url=BASE)
    text = wire.brief(shape)
    assert len(text) <= BRIEF_BYTES
    return shape, json.loads(text)


def test_a_small_lint_is_whole_in_short() -> None:
    shape, short = brief_of(changed(V2, "accepts.0.extra.name", "USDC"))
    (row,) = short["findings"]
    assert row == {
        "rule": "domain-wrong",
        "severity": "error",
        "fix": shape.findings[0].fix,
        "where": ["accepts[0].extra.name"],
    }
    assert len(short["terms"]) == 1
    assert {"moreRules", "moreTerms"}.isdisjoint(short)


def test_a_rule_is_there_once_with_all_its_places() -> None:
    _, short = brief_of(changed(V2, "accepts", [V2["accepts"][0] | {"amount": 1}] * 3))
    (row,) = short["findings"]
    assert row["where"] == [f"accepts[{index}].amount" for index in range(3)]


def test_of_too_much_the_worst_is_kept_and_the_rest_is_counted() -> None:
    bad = {"scheme": "Exact", "network": "base", "amount": 1, "asset": "USDC", "payTo": "me"}
    envelope = {"x402Version": "2", "error": 5, "resource": "x", "extensions": []}
    shape, short = brief_of(envelope | {"accepts": [*[bad] * 9, *V2["accepts"] * 9]}, V1)
    rules = [finding.rule for finding in shape.findings]
    kept = [row["rule"] for row in short["findings"]]
    assert kept == list(dict.fromkeys(rules))[: len(kept)]
    assert short["findings"][0]["severity"] == "error"
    assert short["moreRules"] == len(set(rules)) - len(kept) > 0
    assert short["moreTerms"] == len(shape.terms) - len(short["terms"]) > 0


@pytest.mark.parametrize("length", [10, 250, 2_000, 60_000])
def test_the_words_of_others_do_not_pass_the_limit(length: int) -> None:
    entry = V2["accepts"][0] | {"payTo": "a" * length, "asset": '"' * length}
    brief_of(changed(V2, "accepts", [entry] * 5))


def test_only_flags_and_slugs_of_rules_have_a_page() -> None:
    for slug in (ALL_RULES[0].slug, ALL_RULES[-1].slug):
        page = f"https://gauge.example.org/lint/rules/{slug}"
        assert wire.rule_page(slug, BASE) == wire.rule_page(f"lint:{slug}", BASE) == page
    assert wire.rule_page("lint:retired", BASE) is None
    assert wire.rule_page("down-now", BASE) is None
