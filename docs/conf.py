"""Sphinx configuration; `make docs-site` builds the site.

The source folder is the root of the repository: README.md, CONTRIBUTING.md and others are pages
too, and links between files work in the repository and on the site. The navigation follows
docs/README.md. The site loads no fonts or scripts from other hosts.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import Any

from sphinx.addnodes import toctree

# With Python's default of 700, collections of garbage take a seventh of the build.
gc.set_threshold(100_000)

project = "tollgauge"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**", "guard/*/README.md"]
exclude_patterns = [".*", "node_modules", "bench", "build", "scripts", "src", "tests"]
# Headings get the anchors that a repository's web page gives them.
myst_heading_anchors = 4
# The tests that run the blocks check them; output with an ellipsis is not valid JSON.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "tollgauge"
html_copy_source = False
templates_path = ["site"]
html_static_path = ["site/static"]
html_css_files = ["code.css"]
html_js_files = [("code.js", {"defer": "defer"})]
html_additional_pages = {"index": "redirect.html"}

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+)\.md\)")


def navigation(text: str) -> Iterator[str]:
    """Return a table of contents per section of an index page, titled by its heading.

    A page without sections gets one table of contents.
    """
    head, *rest = _SECTION.split(text)
    sections = list(zip(rest[::2], rest[1::2], strict=True)) or [("", head)]
    for heading, section in sections:
        pages = [f"{words} <{page}>" for words, page in _LINK.findall(section)]
        options = [":hidden:", *([f":caption: {heading}"] if heading else [])]
        yield "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def add_navigation(_app: Any, name: str, source: list[str]) -> None:
    """Append tables of contents to the index pages: docs/README.md and that of the decisions."""
    if name.startswith("docs/") and name.endswith("/README"):
        source[0] += "".join(navigation(source[0]))


def use_titles(app: Any, name: str, *_: Any) -> None:
    """Let the theme build its navigation from the titles of the other pages.

    It would copy all headings of all pages for each page, and then drop them: a quarter of the
    build.
    """
    if not hasattr(app.env, "headings"):
        app.env.headings = app.env.tocs
        app.env.titles_only = {page: cut_headings(toc) for page, toc in app.env.tocs.items()}
    own = {name: app.env.headings[name]} if name in app.env.headings else {}
    app.env.tocs = app.env.titles_only | own


def use_headings(app: Any, *_: Any) -> None:
    """Give the next page its own headings again."""
    app.env.tocs = app.env.headings


def cut_headings(toc: Any) -> Any:
    """Return the table of contents of a page with its title only, unless it lists other pages."""
    if any(toc.findall(toctree)):
        return toc
    cut = toc.deepcopy()
    for page in cut.children:
        del page[1:]
    return cut


def setup(app: Any) -> None:
    """Register the extension (called by Sphinx)."""
    app.connect("source-read", add_navigation)
    app.connect("html-page-context", use_titles, priority=400)  # the theme has 500
    app.connect("html-page-context", use_headings, priority=600)
