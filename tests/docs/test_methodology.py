"""The published pages describe the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.methodology import methodology
from tollgauge.core.probe.attribution import COMMON_MODE, NO_CONNECTIVITY, NO_REFERENCE
from tollgauge.core.probe.exchange import FaultKind
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import LATE_HERE, LATE_MS
from tollgauge.core.score.evidence_document import schema_text
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.scoring import FLAG_RULES

DOCS = Path(__file__).parents[2] / "docs"
ADVICE = "run: .venv/bin/python docs/generate.py"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("methodology.md", methodology()),
        ("evidence.schema.json", schema_text()),
    ],
)
def test_generated_page_is_current(name: str, text: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == text, ADVICE


def test_methodology_lists_every_component_flag_and_cap() -> None:
    page = methodology()
    for row in POLICY.rows:
        assert f"| {row.name} | {row.weight} | {row.measures} | {row.absent} |" in page
    for rule in FLAG_RULES:
        assert f"| `{rule.code}` | {rule.severity.value} | {rule.words} |" in page
    for cap in POLICY.caps:
        assert f"| `{cap.code}` | {cap.limit_tenths / 10:g} | {cap.reason} |" in page
    for cap in (rule.cap for rule in POLICY.forecast_caps):
        assert f"| {cap.limit_tenths / 10:g} | `{cap.code}` | {cap.reason} |" in page


def test_methodology_lists_every_cause_outside_the_target() -> None:
    page = methodology()
    network = (COMMON_MODE, NO_CONNECTIVITY, NO_REFERENCE)
    for reason in (*network, LATE_HERE, FaultKind.LOCAL, FaultKind.DNS_FAILED, Outcome.THROTTLED):
        assert f"| `{reason}` | " in page
    assert f"late by more than {LATE_MS} ms" in page
