"""The wallet page in a real browser, with a wallet that signs with a key of the local chain.

The wallet is a provider as extensions inject it (EIP-1193, EIP-6963). It lives in this process,
uses the real chain, and can be made to refuse. Every page is monitored: it may load nothing from
elsewhere, violate no content security policy, and raise no error.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Route,
    async_playwright,
    expect,
)
from tests.support.browser import ANNOUNCED, BASE_CHAIN, INJECTED, Visit, Wallet, launch
from tests.support.storefront import WEATHER, WEATHER_ID, Storefront, storefront

from tollgauge.core.score.scoring import recompute

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
]


PRICE = 5_000
Opener = Callable[..., Awaitable[Visit]]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shop() -> AsyncIterator[Storefront]:
    async with storefront() as shop:
        yield shop


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def visitors() -> dict[str, Visit]:
    """Browser profiles with one page each, by the script of their wallets: new profiles take half
    of the browser's time.
    """
    return {}


@pytest_asyncio.fixture(loop_scope="module")
async def visit(
    shop: Storefront, browser: Browser, visitors: dict[str, Visit]
) -> AsyncIterator[Opener]:
    """Open the page with an empty storage; check for violations at the end."""
    opened: list[Visit] = []

    async def another(
        *,
        inject: str = INJECTED,
        sets_clock: bool = False,
        fragment: str = "",
        account: int = 1,
        **changes: Any,
    ) -> Visit:
        wallet = Wallet(shop.world.chain, shop.world.chain.accounts[account], **changes)
        # The clock of a profile that sets it stays set.
        person = None if sets_clock else visitors.get(inject)
        if person is None:
            person = await open_profile(browser, shop, wallet, inject)
            if not sets_clock:
                visitors[inject] = person
        opened.append(person)
        person.wallet, person.paid_with = wallet, []
        await person.page.goto(person.url + fragment)
        return person

    yield another
    shop.stall.pending = 0
    for person in opened:
        await person.page.unroute_all(behavior="wait")
        await person.page.evaluate("localStorage.clear()")
        await person.page.goto("about:blank")
        for other in person.context.pages[1:]:
            await other.close()
        wrong, person.wrong = person.wrong, []
        assert wrong == []


async def open_profile(browser: Browser, shop: Storefront, wallet: Wallet, inject: str) -> Visit:
    """Open a page that records violations and payments."""
    context = await browser.new_context()
    person = Visit(shop, wallet, context, await context.new_page())

    def record_console(message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            person.wrong.append(message.text)

    def record_request(request: Any) -> None:
        if not request.url.startswith((shop.url, "blob:", "about:")):
            person.wrong.append(f"asked for {request.url}")
        header = request.headers.get("payment-signature")
        if header:
            person.paid_with.append(header)

    person.page.on("console", record_console)
    person.page.on("pageerror", lambda error: person.wrong.append(str(error)))
    person.page.on("request", record_request)

    async def answer(name: str, call: str) -> str:
        return await person.wallet.answer(name, call)

    await context.expose_function("__wallet", answer)
    if inject:
        await context.add_init_script(inject)
    return person


async def test_wallet_buys_a_readable_report(shop: Storefront, visit: Opener) -> None:
    before = await shop.income()
    person = await visit()
    await expect(person.buttons).to_have_text(["Pay $0.005 with your wallet"])
    await person.press()
    await person.has_report()
    await person.says("Paid. The report is below")
    assert await shop.income() - before == PRICE
    (row, *_) = await shop.load_settled()
    report = person.page.locator("#report")
    assert row.answer is not None
    answer = json.loads(row.answer.body)
    await expect(report.locator(".points")).to_have_text(f"{answer['score']:.1f}")
    await expect(report.locator(".big .chip")).to_have_text(answer["grade"])
    await expect(report.locator(".rec")).to_have_text(answer["recommendation"])
    words = " ".join((await report.inner_text()).split())
    for expected in (
        "Outcome payment-required",
        "HTTP status 402",
        f"Paid $0.005 By {row.payer}",
        f"Transaction {row.transaction}",
        f"Payment id {row.id}",
        f"Total {answer['liveProbe']['latencyMs']['total']} ms",
        "Advertised price $0.001",
        "Skylark Weather",
        answer["evidence"]["digest"],
        *(flag["message"] for flag in answer["flagsDetailed"]),
    ):
        assert expected in words, expected
    assert await report.locator("[data-from], [data-if], template").count() == 0
    assert json.loads(await report.locator("pre").text_content() or "") == answer
    assert list(await person.load_saved()) == [row.id], "it is stored under the ledger's payment ID"
    assert person.page.url == f"{person.url}#report-{row.id}"
    for width in (320, 390, 768, 1280):
        await person.page.set_viewport_size({"width": width, "height": 800})
        assert await person.page.evaluate("document.documentElement.scrollWidth") <= width


async def test_every_announced_wallet_is_offered_and_the_chosen_one_pays(
    shop: Storefront, visit: Opener
) -> None:
    names = json.dumps(["Aardvark", "<b>Badger</b>"])
    person = await visit(inject=ANNOUNCED.replace("__NAMES__", names) + INJECTED)
    await expect(person.buttons).to_have_text(
        ["Pay $0.005 with Aardvark", "Pay $0.005 with <b>Badger</b>"]
    )
    before = await shop.income()
    await person.buttons.nth(1).click()
    await person.has_report()
    assert set(person.wallet.asked) == {"<b>Badger</b>"}
    assert await shop.income() - before == PRICE


async def test_wallet_announced_late_is_offered(visit: Opener) -> None:
    person = await visit(inject="")
    await person.says("No wallet was found")
    await person.page.evaluate(INJECTED + 'dispatchEvent(new Event("ethereum#initialized"));')
    await expect(person.buttons).to_have_count(1)
    await person.says("Your wallet asks for confirmation")


async def test_link_opens_the_same_report_again_without_a_signature(
    shop: Storefront, visit: Opener
) -> None:
    person = await visit()
    await person.press()
    await person.has_report()
    first = await person.page.locator("#report pre").text_content()
    before = await shop.income()
    again = await person.context.new_page()
    await again.goto(person.page.url)
    await expect(again.locator("#report")).to_be_visible()
    assert await again.locator("#report pre").text_content() == first
    bare = await person.context.new_page()
    await bare.goto(person.url)
    await bare.locator("#kept-list a").click()
    await expect(bare.locator("#report")).to_be_visible()
    assert person.wallet.calls["eth_signTypedData_v4"] == 1
    assert await shop.income() == before
    await bare.get_by_role("button", name="Forget").click()
    await expect(bare.locator("#kept")).to_be_hidden()
    assert await person.load_saved() == {}


async def test_link_explains_in_another_browser_that_it_cannot_be_opened(
    visit: Opener,
) -> None:
    stranger = await visit(fragment="#report-" + "ab" * 16)
    await stranger.says("This browser does not have the payment")
    assert stranger.paid_with == []


async def test_saved_report_gives_the_same_score_on_any_machine(visit: Opener) -> None:
    person = await visit()
    await person.press()
    await person.has_report()
    async with person.page.expect_download() as download:
        await person.page.get_by_role("button", name="Save as a file").click()
    file = await download.value
    assert file.suggested_filename.startswith(f"tollgauge-{WEATHER_ID}-")
    saved = (await file.path()).read_bytes()
    score = await person.page.locator("#report .points").inner_text()
    assert recompute(saved).score_tenths == round(float(score) * 10)


async def test_page_without_a_wallet_explains_how_to_pay(visit: Opener) -> None:
    person = await visit(inject="")
    await person.says("No wallet was found in this browser")
    await expect(person.buttons).to_have_count(0)
    assert "demo" not in (await person.page.locator("#sale").inner_text()).lower()


async def test_refusal_of_the_wallet_is_explained_and_costs_nothing(
    shop: Storefront, visit: Opener
) -> None:
    before = await shop.income()
    person = await visit()
    for method, code, words in (
        ("eth_requestAccounts", 4001, "You rejected the connection in your wallet. Nothing was"),
        ("eth_requestAccounts", -32002, "A request is open in your wallet"),
        ("eth_requestAccounts", 4100, "Unlock it and allow this site"),
        ("eth_signTypedData_v4", 4001, "You rejected the signature in your wallet. Nothing was"),
        ("eth_signTypedData_v4", 4200, "This wallet does not support the signature"),
        (
            "eth_signTypedData_v4",
            -32603,
            "Your wallet failed at the signature: MyWallet: no. Nothing was charged.",
        ),
    ):
        person.wallet.refuses = {method: code}
        await person.press()
        await person.says(words)
        await person.charged_nothing()
    assert person.paid_with == []
    assert await shop.income() == before
    person.wallet.refuses.clear()
    await person.press()
    await person.has_report()


async def test_wallet_on_another_network_is_switched(visit: Opener) -> None:
    person = await visit(chain_id=1)
    await person.press()
    await person.has_report()
    assert person.wallet.chain_id == BASE_CHAIN
    assert person.wallet.calls["wallet_addEthereumChain"] == 0


async def test_unknown_network_is_added_to_the_wallet(visit: Opener) -> None:
    person = await visit(chain_id=1, knows={1})
    await person.press()
    await person.has_report()
    assert person.wallet.calls["wallet_addEthereumChain"] == 1


async def test_wallet_that_stays_on_the_wrong_network_signs_nothing(visit: Opener) -> None:
    person = await visit(chain_id=1)
    wallet = person.wallet
    for refuses, knows, stubborn, words in (
        ({"wallet_switchEthereumChain": 4001}, {1, BASE_CHAIN}, False, "You rejected the switch"),
        ({"wallet_switchEthereumChain": -32603}, {1, BASE_CHAIN}, False, "It did not switch"),
        ({}, {1, BASE_CHAIN}, True, "It did not switch"),
        ({"wallet_addEthereumChain": 4001}, {1}, False, "You refused to add the network"),
        ({"wallet_addEthereumChain": 4200}, {1}, False, "It could not be added"),
    ):
        wallet.refuses, wallet.knows, wallet.stubborn = refuses, knows, stubborn
        await person.press()
        await person.says(f"Wrong network. {words}: choose Base (eip155:8453) in your wallet")
        await person.charged_nothing()
    assert wallet.calls["eth_signTypedData_v4"] == 0


async def test_insufficient_usdc_is_reported_before_signing(
    shop: Storefront, visit: Opener
) -> None:
    poor = shop.world.chain.accounts[3]
    await shop.world.chain.mint(poor.address, 1_200)
    person = await visit(account=3)
    await person.press()
    await person.says(
        f"Too little USDC. {poor.address[:6]}…{poor.address[-4:]} holds $0.0012 on Base, "
        "the report costs $0.005."
    )
    await person.charged_nothing()
    assert person.wallet.calls["eth_signTypedData_v4"] == 0


async def test_insufficient_usdc_is_reported_if_only_the_service_detects_it(visit: Opener) -> None:
    person = await visit(account=4, refuses={"eth_call": -32603})
    await person.press()
    await person.says("Too little USDC in this account. Nothing was charged.")
    await person.charged_nothing()
    assert len(person.paid_with) == 1


async def test_pending_payment_is_sent_again_and_never_signed_again(
    shop: Storefront, visit: Opener
) -> None:
    before = await shop.income()
    person = await visit(sets_clock=True)
    shop.stall.pending = 3
    await person.page.clock.install()
    await person.page.reload()
    await person.press()
    await person.says("Payment pending: its settlement is not known yet.")
    await person.says("do not pay again")
    (held,) = (await person.load_saved()).values()
    assert held["state"] == "sent"
    await person.says(f"Payment id {held['id']}")
    await expect(person.buttons.first).to_be_disabled()
    await person.page.clock.fast_forward(5_000)
    await expect(person.page.locator("#status")).to_contain_text("Payment pending")
    await asyncio.wait_for(until(lambda: shop.stall.pending <= 1), 30)

    await person.page.reload()  # without user action: the page continues by itself
    await asyncio.wait_for(until(lambda: shop.stall.pending == 0), 30)
    await person.says("Payment pending")
    await person.page.clock.fast_forward(5_000)
    await person.has_report()
    assert person.wallet.calls["eth_signTypedData_v4"] == 1
    assert len(person.paid_with) == 4
    assert set(person.paid_with) == {held["header"]}
    assert await shop.income() - before == PRICE


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - another process moves it
        await asyncio.sleep(0.02)


async def test_broken_connection_loses_no_payment(shop: Storefront, visit: Opener) -> None:
    before = await shop.income()
    person = await visit()
    broken: list[str] = []

    async def cut(route: Route) -> None:
        """The first paid request reaches the service, but its response is lost."""
        header = route.request.headers.get("payment-signature")
        if header and not broken:
            broken.append(header)
            await route.fetch()
            await route.abort()
        else:
            await route.continue_()

    await person.page.route("**/v1/x402-trust", cut)
    await person.press()
    await person.says("Your payment is not lost")
    await person.has_report()
    assert set(person.paid_with) == set(broken)
    assert await shop.income() - before == PRICE


async def test_rejection_of_a_retry_by_a_proxy_keeps_the_payment(
    shop: Storefront, visit: Opener
) -> None:
    """The first attempt may have been charged; only the service could state that it was not."""
    before = await shop.income()
    person = await visit()
    tries: list[str] = []

    async def refuse_second(route: Route) -> None:
        """The response to the first paid request is lost, and a proxy rejects the second
        request.
        """
        header = route.request.headers.get("payment-signature")
        if header:
            tries.append(header)
        if header and len(tries) == 1:
            await route.fetch()
            await route.abort()
        elif header and len(tries) == 2:
            await route.fulfill(status=403, content_type="text/html", body="<h1>Forbidden</h1>")
        else:
            await route.continue_()

    await person.page.route("**/v1/x402-trust", refuse_second)
    await person.press()
    await person.has_report()
    assert len(set(tries)) == 1
    assert len(tries) == 3
    assert person.wallet.calls["eth_signTypedData_v4"] == 1
    assert await shop.income() - before == PRICE


async def test_rejected_first_attempt_can_be_paid_again(visit: Opener) -> None:
    person = await visit()

    async def forbid(route: Route) -> None:
        if "payment-signature" in route.request.headers:
            await route.fulfill(status=403, content_type="text/html", body="<h1>Forbidden</h1>")
        else:
            await route.continue_()

    await person.page.route("**/v1/x402-trust", forbid)
    await person.press()
    await person.says("The service answered 403.")
    await person.charged_nothing()
    await person.page.unroute("**/v1/x402-trust")
    await person.press()
    await person.has_report()


def bent_terms(change: dict[str, Any], **headers: str) -> Any:
    """Return a route handler that changes the terms of the unpaid response in transit."""

    async def bend(route: Route) -> None:
        if "payment-signature" in route.request.headers:
            await route.continue_()
            return
        answer = await route.fetch()
        terms = await answer.json()
        terms["accepts"][0].update(change)
        header = base64.b64encode(json.dumps(terms).encode()).decode()
        sent = {**answer.headers, "payment-required": header, **headers}
        await route.fulfill(status=402, headers=sent, body=json.dumps(terms))

    return bend


async def test_terms_that_differ_from_the_page_are_not_signed(
    visit: Opener,
) -> None:
    person = await visit()
    changes: tuple[dict[str, Any], ...] = (
        {"payTo": "0x" + "11" * 20},
        {"amount": "5001"},
        {"asset": "0x" + "22" * 20},
        {"maxTimeoutSeconds": 86_400},
    )
    for change in changes:
        await person.page.route("**/v1/x402-trust", bent_terms(change))
        await person.press()
        await person.says("The terms have changed")
        await person.charged_nothing()
        await person.page.unroute("**/v1/x402-trust")
    assert person.wallet.calls["eth_signTypedData_v4"] == 0


async def test_late_signature_is_reported_and_costs_nothing(visit: Opener) -> None:
    person = await visit()
    long_ago = "Thu, 01 Jan 2026 00:00:00 GMT"
    await person.page.route("**/v1/x402-trust", bent_terms({}, date=long_ago))
    await person.press()
    await person.says("The signature has expired. Nothing was charged.")
    await person.charged_nothing()


async def test_browser_with_a_wrong_clock_can_pay(visit: Opener) -> None:
    person = await visit(sets_clock=True)
    await person.page.clock.install(time=4_000_000_000)
    await person.page.reload()
    await person.press()
    await person.has_report()


async def test_untrusted_text_is_not_interpreted_as_html(visit: Opener) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\"><script>1</script>"

    async def poison(route: Route) -> None:
        if "payment-signature" not in route.request.headers:
            await route.continue_()
            return
        answer = await route.fetch()
        report = await answer.json()
        report["advertisedBy"] = {"serviceName": hostile, "description": hostile}
        report["flagsDetailed"] = [{"code": hostile, "severity": hostile, "message": hostile}]
        report["recommendation"] = hostile
        report["liveProbe"]["outcome"] = hostile
        await route.fulfill(response=answer, json=report)

    person = await visit()
    await person.page.route("**/v1/x402-trust", poison)
    await person.press()
    await person.has_report()
    report = person.page.locator("#report")
    assert await report.locator("img, script").count() == 0
    assert await person.page.title() != "owned"
    await expect(report.locator(".own-name")).to_have_text(hostile)
    assert await report.locator("[class*='<'], [onerror]").count() == 0


async def test_page_without_storage_still_sells(visit: Opener) -> None:
    full = (
        "Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); };"
    )
    person = await visit(inject=INJECTED + full)
    await person.press()
    await person.has_report()
    await person.says("This browser cannot store it: save the report as a file.")


async def test_page_of_the_endpoint_links_to_the_wallet_page(visit: Opener) -> None:
    person = await visit()
    await person.page.goto(person.url.removesuffix("/upgrade"))
    await person.page.get_by_role("link", name="Buy the report with a browser wallet").click()
    await expect(person.page).to_have_url(person.url)
    await expect(person.page.locator(".target")).to_have_text(WEATHER)


# The page of the demo, where only the demo's wallet can buy

REASON = "This demo runs on a local chain; a real wallet would sign for a real chain."


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def demo_shop() -> AsyncIterator[Storefront]:
    async with storefront(demo=True) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context()
    yield context
    await context.close()


async def test_demo_wallet_buys_a_report_by_clicks(
    demo_shop: Storefront, context: BrowserContext
) -> None:
    wrong: list[str] = []
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    context.on("console", lambda said: wrong.append(said.text) if "Policy" in said.text else None)
    before = await demo_shop.income()
    page = await context.new_page()
    await page.goto(f"{demo_shop.url}/endpoint/{WEATHER_ID}")
    await page.get_by_role("link", name="Buy the report with a browser wallet").click()
    await expect(page.locator(".terms")).to_contain_text("tollgauge demo chain")
    await page.get_by_role("button", name="Pay $0.005 with the demo wallet").click()
    await expect(page.locator("#report")).to_be_visible(timeout=40_000)
    await expect(page.locator("#status")).to_contain_text("Paid. The report is below")
    payer = demo_shop.world.buyer.address.lower()
    assert payer in (await page.locator("#report .receipt").inner_text()).lower()
    assert await demo_shop.income() - before == PRICE
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
    demo_shop: Storefront, context: BrowserContext, inject: str, name: str
) -> None:
    wallet = Wallet(demo_shop.world.chain, demo_shop.world.chain.accounts[3])
    await context.expose_function("__wallet", wallet.answer)
    await context.add_init_script(inject)
    page = await context.new_page()
    await page.goto(f"{demo_shop.url}/endpoint/{WEATHER_ID}/upgrade")
    await expect(page.locator("#wallets")).to_contain_text(f"Not offered: {name}. {REASON}")
    await expect(page.locator("#wallets button")).to_have_text(["Pay $0.005 with the demo wallet"])
    await asyncio.sleep(0.5)  # longer than the page looks for wallets
    assert wallet.asked == []
