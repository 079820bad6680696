"""The published pages say what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.methodology import methodology, page_name
from tollgauge.core.attribution import COMMON_MODE, NO_CONNECTIVITY, NO_REFERENCE
from tollgauge.core.evidence_schema import schema_text
from tollgauge.core.exchange import FaultKind
from tollgauge.core.policy import CURRENT, POLICIES, POLICY_1
from tollgauge.core.probe import LATE_HERE, LATE_MS, Outcome
from tollgauge.core.scoring import RULES

DOCS = Path(__file__).parents[2] / "docs"
ADVICE = "run: .venv/bin/python docs/generate.py"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((page_name(version), methodology(policy)) for version, policy in POLICIES.items()),
        ("evidence.schema.json", schema_text()),
    ],
)
def test_a_generated_page_is_current(name: str, text: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == text, ADVICE


@pytest.mark.parametrize("version", POLICIES)
def test_the_methodology_names_every_component_flag_and_cap(version: int) -> None:
    policy = POLICIES[version]
    page = methodology(policy)
    for row in policy.rows:
        assert f"| {row.name} | {row.weight} | {row.measures} | {row.absent} |" in page
    for rule in RULES[version].flags:
        assert f"| `{rule.code}` | {rule.severity.value} | {rule.words} |" in page
    for cap in policy.caps:
        assert f"| `{cap.code}` | {cap.limit_tenths / 10:g} | {cap.reason} |" in page
    for cap in (rule.cap for rule in policy.forecast_caps):
        assert f"| {cap.limit_tenths / 10:g} | `{cap.code}` | {cap.reason} |" in page


def test_each_policy_is_readable_and_leads_to_the_others() -> None:
    assert page_name(CURRENT.version) == "methodology.md"
    assert f"[policy 1]({page_name(1)})" in methodology(POLICIES[2])
    assert f"[policy 2]({page_name(2)})" in methodology(POLICIES[1])
    assert "## Forecast" not in methodology(POLICIES[1])
    for section in ("Time, not counts", "Forecast", "Confirmation", "Silence", "Organic interval"):
        assert f"## {section}" in methodology(POLICIES[2])


def test_the_methodology_names_every_reason_that_is_not_the_target_s() -> None:
    page = methodology(POLICY_1)
    network = (COMMON_MODE, NO_CONNECTIVITY, NO_REFERENCE)
    for reason in (*network, LATE_HERE, FaultKind.LOCAL, FaultKind.DNS_FAILED, Outcome.THROTTLED):
        assert f"| `{reason}` | " in page
    assert f"late by more than {LATE_MS} ms" in page
