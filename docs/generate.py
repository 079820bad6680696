"""Writes the generated pages and tables of this folder and of the README, the response examples,
and the example configuration: `.venv/bin/python docs/generate.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # a script's path begins with its folder

from docs.gaming import gaming
from docs.lint_rules import lint_rules
from docs.methodology import methodology
from docs.response_examples import render_examples
from docs.tables_sql import tables_sql
from tollgauge.config import Config
from tollgauge.config.settings import template
from tollgauge.core.score.evidence_document import schema_text


def pages() -> dict[str, str]:
    """Return the generated pages by file name."""
    # Imported late: the routes that these modules import read the recorded examples.
    from docs.reference_pages import reference
    from docs.sections import pages_with_sections

    return {
        "methodology.md": methodology(),
        "gaming.md": gaming(),
        "evidence.schema.json": schema_text(),
        "lint-rules.md": lint_rules(),
        "../tollgauge.example.toml": template(Config),
        **reference(),
        **pages_with_sections(),
    }


def main() -> None:
    """Write the SQL of the tables, the response examples, and every page."""
    # The pages come last: they start a service that creates the tables and reads the examples.
    write({f"../src/tollgauge/db/{name}": text for name, text in tables_sql().items()})
    write(render_examples())
    write(pages())


def write(texts: Mapping[str, str]) -> None:
    """Write files by their paths from this folder."""
    for name, text in texts.items():
        Path(__file__).parent.joinpath(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
