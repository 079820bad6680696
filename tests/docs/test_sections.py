"""The generated tables of hand-written pages are current, and the pages name what exists."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from docs.api import example_service
from docs.reference_pages import without_json
from docs.sections import pages_with_sections
from tollgauge.cli import app
from tollgauge.web import routes

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ADVICE = "run: .venv/bin/python docs/generate.py"


def test_generated_tables_are_current() -> None:
    for name, text in pages_with_sections().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, f"{name}: {ADVICE}"


def test_readme_lists_every_command_without_json() -> None:
    (named,) = re.findall(r"`--json` \(all but (.*?),? which serve", README, re.DOTALL)
    assert tuple(re.findall(r"`(\w+)`", named)) == without_json(app)


@pytest.mark.parametrize("page", ["README.md", "docs/search.md", "docs/bundle.md", "docs/mcp.md"])
def test_page_names_only_existing_routes(page: str) -> None:
    async def paths() -> set[str]:
        async with example_service() as dependencies:
            return {route.path for route in routes.table(dependencies)}

    served = asyncio.run(paths())
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(
        r"`(?:GET |POST |PATCH |DELETE )?(/(?:trust|v1|mcp|search|endpoints|incidents)[^`?]*)", text
    )
    assert named
    assert [path for path in named if path not in served] == []
