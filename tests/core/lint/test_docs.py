"""docs/lint-rules.md matches the rules."""

from __future__ import annotations

from pathlib import Path

from docs.lint_rules import lint_rules
from tollgauge.core.lint.judge import ALL_RULES

DOCUMENT = Path(__file__).parents[3] / "docs" / "lint-rules.md"


def test_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == lint_rules(), (
        "docs/lint-rules.md is stale: run .venv/bin/python docs/generate.py"
    )


def test_every_rule_has_a_section_with_its_fix() -> None:
    text = lint_rules()
    for rule in ALL_RULES:
        assert f"\n## {rule.slug}\n" in text
        assert f"Fix: {rule.entry.fix}\n" in text
