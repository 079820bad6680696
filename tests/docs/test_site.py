"""The documentation builds as a site without warnings and without dead links."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.async_api import async_playwright, expect
from tests.support.browser import launch

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""Elements whose address a browser fetches without a click."""
_FETCHED = re.compile(r"(?:@import|url\()\s*['\"]?(https?:)?//", re.IGNORECASE)


class Page(HTMLParser):
    """The links of a page, the addresses that it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if identity := values.get("id"):
            self.anchors.add(identity)
        if tag == "a" and (link := values.get("href")):
            self.links.append(link)
        if tag in LOADED and (address := values.get(LOADED[tag])):
            self.loads.append(address)


class BuiltSite:
    """Build the site into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def pages(self) -> dict[Path, Page]:
        return {path: Page(path) for path in sorted(self.folder.rglob("*.html"))}

    def dead(self, page: Page) -> Iterator[str]:
        """Yield the links of a page within the site whose target does not exist."""
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = page.path
            if parts.path:
                target = (page.path.parent / unquote(parts.path)).resolve()
            anchors = self.pages[target].anchors if target in self.pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                yield link


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> BuiltSite:
    folder = tmp_path_factory.mktemp("site").resolve()
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(ROOT / "docs")]
    done = subprocess.run(
        [*command, "-d", str(folder / "doctrees"), str(ROOT), str(folder / "html")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return BuiltSite(folder / "html")


def test_every_document_is_a_page_of_the_site(site: BuiltSite) -> None:
    documents = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}
    pages = {site.folder / path.relative_to(ROOT).with_suffix(".html") for path in documents}
    assert len(pages) > 40
    assert pages <= site.pages.keys()


def test_every_link_and_anchor_has_a_target(site: BuiltSite) -> None:
    dead = {
        f"{page.path.relative_to(site.folder)}: {link}"
        for page in site.pages.values()
        for link in site.dead(page)
    }
    assert not dead, "\n".join(sorted(dead))


def test_dead_link_is_detected(site: BuiltSite, tmp_path: Path) -> None:
    path = tmp_path.resolve() / "page.html"
    path.write_text('<a id="here" href="#here"></a><a href="#there"></a><a href="no.html"></a>')
    page = Page(path)
    assert [*BuiltSite(path.parent).dead(page)] == ["#there", "no.html"]


def test_start_page_links_to_the_index(site: BuiltSite) -> None:
    assert site.pages[site.folder / "index.html"].links == ["docs/README.html"]


def test_site_loads_nothing_from_elsewhere(site: BuiltSite) -> None:
    for page in site.pages.values():
        assert not [address for address in page.loads if urlsplit(address).netloc], page.path
    sheets = [*site.folder.rglob("*.css")]
    assert sheets
    for sheet in sheets:
        assert not _FETCHED.search(sheet.read_text(encoding="utf-8")), sheet


@pytest.mark.browser
@pytest.mark.asyncio
async def test_examples_have_language_tabs_and_copy_buttons(site: BuiltSite) -> None:
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        page = await browser.new_page()
        await page.goto((site.folder / "docs" / "clients.html").as_uri())
        examples = page.locator("#python-and-typescript")
        await expect(examples.locator(".highlight-ts")).to_be_hidden()
        await examples.get_by_role("button", name="TypeScript").click()
        await expect(examples.locator(".highlight-ts")).to_be_visible()
        await expect(examples.locator(".highlight-python")).to_be_hidden()
        await expect(page.locator("#buy-poll-and-renew-a-watch .highlight-ts")).to_be_visible()
        await examples.locator(".highlight-ts").get_by_role("button").click()
        await expect(examples.locator(".highlight-ts .code-copy")).not_to_have_text("Copy")
        await browser.close()
