"""The wallet page of the demo in a real browser: only the demo's wallet can buy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect
from tests.support.browser import ANNOUNCED, INJECTED, Wallet, launch
from tests.support.storefront import WEATHER_ID, Storefront, storefront

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
]

REASON = "This demo runs on a local chain; a real wallet would sign for a real chain."


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shop() -> AsyncIterator[Storefront]:
    async with storefront(demo=True) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context()
    yield context
    await context.close()


async def open_page(shop: Storefront, context: BrowserContext, *, inject: str = "") -> Page:
    """Open the wallet page in a browser with the wallets of a script."""
    if inject:
        await context.add_init_script(inject)
    page = await context.new_page()
    await page.goto(f"{shop.url}/endpoint/{WEATHER_ID}/upgrade")
    return page


async def test_demo_wallet_buys_a_report_by_clicks(
    shop: Storefront, context: BrowserContext
) -> None:
    wrong: list[str] = []
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    context.on("console", lambda said: wrong.append(said.text) if "Policy" in said.text else None)
    before = await shop.income()
    page = await context.new_page()
    await page.goto(f"{shop.url}/endpoint/{WEATHER_ID}")
    await page.get_by_role("link", name="Buy the report with a browser wallet").click()
    await expect(page.locator(".terms")).to_contain_text("tollgauge demo chain")
    await page.get_by_role("button", name="Pay $0.005 with the demo wallet").click()
    await expect(page.locator("#report")).to_be_visible(timeout=40_000)
    await expect(page.locator("#status")).to_contain_text("Paid. The report is below")
    payer = shop.world.buyer.address.lower()
    assert payer in (await page.locator("#report .receipt").inner_text()).lower()
    assert await shop.income() - before == 5_000
    assert wrong == []


@pytest.mark.parametrize(
    ("inject", "name"),
    [
        (INJECTED, "your wallet"),
        (ANNOUNCED.replace("__NAMES__", json.dumps(["Aardvark"])) + INJECTED, "Aardvark"),
    ],
    ids=["injected", "announced"],
)
async def test_other_wallet_is_rejected_with_the_reason(
    shop: Storefront, context: BrowserContext, inject: str, name: str
) -> None:
    wallet = Wallet(shop.world.chain, shop.world.chain.accounts[3])
    await context.expose_function("__wallet", wallet.answer)
    page = await open_page(shop, context, inject=inject)
    await expect(page.locator("#wallets")).to_contain_text(f"Not offered: {name}. {REASON}")
    await expect(page.locator("#wallets button")).to_have_text(["Pay $0.005 with the demo wallet"])
    await asyncio.sleep(0.5)  # longer than the page looks for wallets
    assert wallet.asked == []
