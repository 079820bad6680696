"""The generated reference is current and complete."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from docs.reference_pages import reference
from docs.response_examples import render_examples
from tollgauge.config import Config
from tollgauge.config.settings import list_settings
from tollgauge.core.score.scoring import FLAG_RULES

DOCS = Path(__file__).parents[2] / "docs"
ADVICE = "run: .venv/bin/python docs/generate.py"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return reference()


def test_every_page_of_the_reference_is_current(written: dict[str, str]) -> None:
    assert written.keys() == {f"reference/{path.name}" for path in (DOCS / "reference").iterdir()}
    for name, text in written.items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"{name}: {ADVICE}"


def test_recorded_examples_match_the_responses() -> None:
    for name, text in render_examples().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"{name}: {ADVICE}"


def test_every_setting_is_described(written: dict[str, str]) -> None:
    page = written["reference/configuration.md"]
    for section in fields(Config):
        assert f"## {section.name}" in page
    settings = {setting.path: setting for setting in list_settings(Config)}
    for setting in settings.values():
        assert re.search(rf"^\| `{setting.name}` \|", page, re.MULTILINE), setting.path
        assert setting.description
        assert not setting.secret or setting.variable in page
    port = settings["server.admin_port"].description
    assert port.startswith("Port of /metrics and the status page, on")
    assert settings["probe.references"].description.startswith("https URLs that show whether")


def test_setting_has_its_default_range_and_unit(written: dict[str, str]) -> None:
    page = written["reference/configuration.md"]
    assert "| `port` | whole number | `8402` | from 0, to 65,535 |" in page
    assert re.search(r"\| `lease_ms` \| whole number \| `60000` \| from 1,000 \| ms \|", page)


def test_every_flag_has_its_severity_rule_and_fix(written: dict[str, str]) -> None:
    page = written["reference/flags.md"]
    for rule in FLAG_RULES:
        assert f"| `{rule.code}` | {rule.severity.value} | {rule.words} | {rule.fix} |" in page


def test_api_page_has_every_kind_of_route_with_price_and_statuses(
    written: dict[str, str],
) -> None:
    page = written["reference/api.md"]
    for heading in (
        "### GET /trust/snapshot",
        "### POST /v1/x402-trust",
        "### POST /mcp",
        "### GET /endpoint/{id}",
        "### PATCH /v1/watch/{id}",
        "### GET /readyz",
    ):
        assert page.count(f"{heading}\n") == 1
    report = page.split("### POST /v1/x402-trust\n")[1].split("\n### ")[0]
    assert "Price: $0.005000." in report
    usual = page.split("## Any route\n")[1].split("\n### ")[0]
    for status in (200, 400, 402, 409, 410, 413, 422, 429, 500, 503):
        assert (f"| {status} | " in report) != (f"| {status} | " in usual)
    assert '"grade": "A"' in report
