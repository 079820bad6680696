"""Pages of the documentation are short, or their first lines explain the length."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if path.parent.name != "reference"]
MAX_WORDS = 1_500
FIRST_LINES = 15
REASON = "page is long because"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_page_is_short_or_explains_its_length(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    is_explained = REASON in " ".join(" ".join(text.splitlines()[:FIRST_LINES]).split())

    assert is_explained == (len(text.split()) > MAX_WORDS)
