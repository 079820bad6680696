"""Writes the generated pages and tables of this folder and of the README, and the example of the
configuration: `.venv/bin/python docs/generate.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # a script's path begins with its folder

from docs.gaming import gaming
from docs.lint_rules import lint_rules
from docs.methodology import methodology
from docs.reference_pages import reference
from docs.sections import pages_with_sections
from docs.tables_sql import tables_sql
from tollgauge.config.template import template
from tollgauge.core.score.evidence_schema import schema_text


def pages() -> dict[str, str]:
    """File name to content."""
    return {
        "methodology.md": methodology(),
        "gaming.md": gaming(),
        "evidence.schema.json": schema_text(),
        "lint-rules.md": lint_rules(),
        "../tollgauge.example.toml": template(),
        **reference(),
        **pages_with_sections(),
    }


def main() -> None:
    """Write the SQL of the tables, and every page to its path relative to this folder."""
    folder = Path(__file__).parent
    # The tables come first: the pages are examples of a service that creates them.
    for name, text in tables_sql().items():
        folder.joinpath("../src/tollgauge/db", name).write_text(text, encoding="utf-8")
    for name, text in pages().items():
        folder.joinpath(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
