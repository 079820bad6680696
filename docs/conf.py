"""The documentation as a site: `make docs-site` builds it with Sphinx.

The source folder is the root of the repository, so README.md, CONTRIBUTING.md and the others are
pages too, and a link between two files holds in the repository and on the site. The navigation is
what docs/README.md lists. Nothing is loaded from elsewhere: neither fonts nor scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

project = "tollgauge"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**", "guard/*/README.md"]
exclude_patterns = [".*", "node_modules", "bench", "build", "scripts", "src", "tests"]
# Headings get the anchors that a repository's web page gives them.
myst_heading_anchors = 4
# Blocks are checked by the tests that run them; an output with an ellipsis is no JSON.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "tollgauge"
html_copy_source = False
templates_path = ["site"]
html_additional_pages = {"index": "redirect.html"}

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+)\.md\)")


def navigation(text: str) -> Iterator[str]:
    """The tables of contents of a page that lists others: one for each section, with its heading
    and the words of its links; one for the whole page where it has no sections.
    """
    head, *rest = _SECTION.split(text)
    sections = list(zip(rest[::2], rest[1::2], strict=True)) or [("", head)]
    for heading, section in sections:
        pages = [f"{words} <{page}>" for words, page in _LINK.findall(section)]
        options = [":hidden:", *([f":caption: {heading}"] if heading else [])]
        yield "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def add_navigation(_app: Any, name: str, source: list[str]) -> None:
    """Append the tables of contents to the pages that list others: docs/README.md and that of the
    decisions.
    """
    if name.startswith("docs/") and name.endswith("/README"):
        source[0] += "".join(navigation(source[0]))


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
