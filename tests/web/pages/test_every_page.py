"""Every page in a real browser: accessible, not wider than the window, small, and without foreign
requests or violations of the content security policy. The language tabs and copy buttons of
`/docs` work.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect
from tests.support.browser import launch
from tests.support.http_service import Running, configuration, open_service
from tests.support.programs import report_missing

from tollgauge.demo.serving import serve
from tollgauge.web import routes

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
AXE = Path(__file__).resolve().parents[3] / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = (360, 768, 1440)
PAGE_BYTES = 60_000
KEEP_MESSAGES = "window.setTimeout = () => 0"
"""The docs remove a message after two seconds; a busy machine may look later."""
VIOLATIONS = """async (rules) => {
  const found = await axe.run(document, {resultTypes: ["violations"], ...rules});
  return found.violations.map((one) => [one.id, one.help, ...one.nodes.map((node) => node.html)]);
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("pages") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base_url(running: Running) -> AsyncIterator[str]:
    async with serve(running.app) as port:
        yield f"http://127.0.0.1:{port}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if not AXE.exists():
        report_missing("axe-core is missing: run `make setup`")
    async with async_playwright() as playwright:
        chromium = await launch(playwright)
        yield chromium
        await chromium.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def paths(running: Running) -> list[str]:
    """Return a page of each route, with the best and the worst endpoint if it needs one."""
    board = (await running.get("/v1/x402-trust-preview")).json()["samples"]
    endpoints = [sample["report"]["resource"] for sample in (board[0], board[-1])]
    pages: list[str] = []
    for row in routes.table(running.service.server()):
        if row.tag != "pages" or row.method != "GET" or row.internal or row.path in NO_PAGES:
            continue
        for resource in endpoints if "{id}" in row.path or "{host}" in row.path else endpoints[:1]:
            answer = await running.get("/trust/snapshot", params={"resource": resource})
            values = {"id": answer.json()["id"], "host": resource.split("/")[2], "version": "1"}
            values["slug"] = "domain-wrong"
            directories = (await running.get("/directories.json")).json()["directories"]
            values["name"] = directories[0]["directory"]
            values["address"] = board[0]["report"]["advertised"]["payTo"]
            pages.append(row.path.format(**values))
    return [*pages, "/nothing/is/here"]


NO_PAGES = frozenset({"/endpoint", "/endpoint/{id}/badge.svg"})
"""A redirect and a picture."""


@contextlib.asynccontextmanager
async def open_window(browser: Browser) -> AsyncIterator[Page]:
    """Open a window that runs axe-core in every page."""
    context = await browser.new_context()
    await context.add_init_script(path=AXE)
    yield await context.new_page()
    await context.close()


async def test_every_page_is_accessible_and_loads_nothing_from_elsewhere(
    browser: Browser, base_url: str, paths: list[str]
) -> None:
    """On phones in light colours; in dark ones the contrast on desktops."""
    wrong: list[str] = []
    async with open_window(browser) as page:
        page.on(
            "console", lambda message: wrong.append(message.text) if is_error(message) else None
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.extend(foreign(request.url, base_url)))
        for path in paths:
            await page.emulate_media(color_scheme="light")
            await page.set_viewport_size({"width": WIDTHS[0], "height": 900})
            await page.goto(base_url + path)
            if violations := await page.evaluate(VIOLATIONS, {}):
                wrong.append(f"{path} in light colours: {violations}")
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 900})
                if await page.evaluate("document.documentElement.scrollWidth") > width:
                    wrong.append(f"{path} is wider than {width}")
            await page.emulate_media(color_scheme="dark")
            if violations := await page.evaluate(VIOLATIONS, {"runOnly": ["color-contrast"]}):
                wrong.append(f"{path} in dark colours: {violations}")
    assert wrong == [], "\n".join(wrong)


def is_error(message: Any) -> bool:
    """Return whether a message is an error other than that of the missing page."""
    return message.type == "error" and "404" not in message.text


def foreign(url: str, base_url: str) -> list[str]:
    """Return the URL if it is not of this service."""
    return [] if url.startswith((base_url, "data:", "blob:")) else [url]


async def test_every_page_is_small(running: Running, paths: list[str]) -> None:
    sizes = {path: len((await running.get(path)).content) for path in paths}
    assert {path: size for path, size in sizes.items() if size >= PAGE_BYTES} == {}


async def test_language_tabs_work_without_scripts_and_no_button_is_shown(
    browser: Browser, base_url: str
) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(base_url + "/docs")
    program = page.locator("#program figure.snippet")
    for language in ("Python", "TypeScript", "curl", "MCP"):
        await page.locator(".languages label", has_text=language).click()
        figures = [figure for figure in await program.all() if await figure.is_visible()]
        (text,) = [await figure.inner_text() for figure in figures]
        assert text.startswith(language)
        assert "/v1/x402-trust" in text or "x402_trust_score" in text
    assert await page.locator("main button").count() == 0
    await context.close()


async def test_copy_button_copies_the_program_and_confirms(browser: Browser, base_url: str) -> None:
    context = await browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = await context.new_page()
    await page.add_init_script(KEEP_MESSAGES)
    await page.goto(base_url + "/docs")
    figure = page.locator("#program figure.in-python")
    await figure.get_by_role("button", name="Copy").click()
    await expect(page.locator("#copied")).to_have_text("Copied")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied == await figure.locator("code").text_content()
    assert copied.startswith("# pip install")
    await context.close()


async def test_copy_button_selects_the_program_if_copying_is_not_allowed(
    browser: Browser, base_url: str
) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.add_init_script("delete Navigator.prototype.clipboard")
    await page.add_init_script(KEEP_MESSAGES)
    await page.goto(base_url + "/docs")
    figure = page.locator("#program figure.in-python")
    await figure.get_by_role("button", name="Copy").click()
    await expect(page.locator("#copied")).to_have_text("Selected")
    selected = await page.evaluate("getSelection().toString()")
    assert selected.startswith("# pip install")
    await context.close()
