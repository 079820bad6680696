"""The language tabs and the copy buttons of `/docs` in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect
from tests.support.browser import launch
from tests.support.http_service import configuration, open_service

from tollgauge.demo.serving import serve

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

KEEP_MESSAGES = "window.setTimeout = () => 0"
"""The page removes a message after two seconds; a busy machine may look later."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def docs_url() -> AsyncIterator[str]:
    async with open_service(configuration()) as service, serve(service.app) as port:
        yield f"http://127.0.0.1:{port}/docs"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        chromium = await launch(playwright)
        yield chromium
        await chromium.close()


async def test_language_tabs_work_without_scripts_and_no_button_is_shown(
    browser: Browser, docs_url: str
) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(docs_url)
    program = page.locator("#program figure.snippet")
    for language in ("Python", "TypeScript", "curl", "MCP"):
        await page.locator(".languages label", has_text=language).click()
        figures = [figure for figure in await program.all() if await figure.is_visible()]
        (text,) = [await figure.inner_text() for figure in figures]
        assert text.startswith(language)
        assert "/v1/x402-trust" in text or "x402_trust_score" in text
    assert await page.locator("main button").count() == 0
    await context.close()


async def test_copy_button_copies_the_program_and_confirms(browser: Browser, docs_url: str) -> None:
    context = await browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = await context.new_page()
    await page.add_init_script(KEEP_MESSAGES)
    await page.goto(docs_url)
    figure = page.locator("#program figure.in-python")
    await figure.get_by_role("button", name="Copy").click()
    await expect(page.locator("#copied")).to_have_text("Copied")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied == await figure.locator("code").text_content()
    assert copied.startswith("# pip install")
    await context.close()


async def test_copy_button_selects_the_program_if_copying_is_not_allowed(
    browser: Browser, docs_url: str
) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.add_init_script("delete Navigator.prototype.clipboard")
    await page.add_init_script(KEEP_MESSAGES)
    await page.goto(docs_url)
    figure = page.locator("#program figure.in-python")
    await figure.get_by_role("button", name="Copy").click()
    await expect(page.locator("#copied")).to_have_text("Selected")
    selected = await page.evaluate("getSelection().toString()")
    assert selected.startswith("# pip install")
    await context.close()
