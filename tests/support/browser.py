"""Debian's Chromium, a wallet as extensions inject it (EIP-1193, EIP-6963), and the wallet page."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from eth_account import Account
from eth_account.messages import encode_typed_data
from playwright.async_api import (
    Browser,
    BrowserContext,
    Page,
    Playwright,
    expect,
)
from tests.support.programs import require
from tests.support.storefront import WEATHER_ID, Storefront

from tollgauge.demo.chain import Chain, TestAccount

expect.set_options(timeout=30_000)  # a busy machine needs more than the usual 5 s

_ARGUMENTS = (
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


async def launch(playwright: Playwright) -> Browser:
    """Start Chromium. Without it, the test is skipped, and fails in `make test`."""
    return await playwright.chromium.launch(executable_path=require("chromium"), args=_ARGUMENTS)


BASE_CHAIN = 8453


PROVIDER = """
var provider = (name) => ({
  request: async (call) => {
    const { result, error } = JSON.parse(await window.__wallet(name, JSON.stringify(call)));
    if (error) throw Object.assign(new Error(error.message), error);
    return result;
  },
});
"""
INJECTED = PROVIDER + 'window.ethereum = provider("injected");'
ANNOUNCED = (
    PROVIDER
    + """
for (const name of __NAMES__) {
  const info = { uuid: `uuid-${name}`, name, icon: "data:image/svg+xml,<svg/>", rdns: "test" };
  const detail = Object.freeze({ info: Object.freeze(info), provider: provider(name) });
  const tell = () =>
    window.dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail }));
  window.addEventListener("eip6963:requestProvider", tell);
  tell();
}
"""
)


class WalletError(Exception):
    """An error of a wallet: a code of EIP-1193 and the wallet's message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Wallet:
    """A wallet with one account. Tests set its rejections and networks, and read its calls."""

    chain: Chain
    account: TestAccount
    chain_id: int = BASE_CHAIN
    knows: set[int] = field(default_factory=lambda: {1, BASE_CHAIN})
    refuses: dict[str, int] = field(default_factory=dict)
    stubborn: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    asked: list[str] = field(default_factory=list)

    async def answer(self, name: str, text: str) -> str:
        call = json.loads(text)
        self.calls[call["method"]] += 1
        self.asked.append(name)
        try:
            return json.dumps({"result": await self._do(call["method"], call.get("params", []))})
        except WalletError as error:
            return json.dumps({"error": {"code": error.code, "message": str(error)}})

    async def _do(self, method: str, params: Any) -> Any:
        if method in self.refuses:
            raise WalletError(self.refuses[method], "MyWallet: no.")
        if method == "eth_requestAccounts":
            return [self.account.address]
        if method == "eth_chainId":
            return hex(self.chain_id)
        if method == "wallet_switchEthereumChain":
            return self._switch(int(params[0]["chainId"], 16))
        if method == "wallet_addEthereumChain":
            assert params[0]["rpcUrls"]
            assert params[0]["nativeCurrency"]["decimals"] == 18
            self.knows.add(int(params[0]["chainId"], 16))
            return None
        if method == "eth_signTypedData_v4":
            return self._sign(params)
        return await self.chain.rpc(method, *params)

    def _switch(self, wanted: int) -> None:
        if wanted not in self.knows:
            raise WalletError(4902, "Unrecognized chain ID.")
        if not self.stubborn:
            self.chain_id = wanted

    def _sign(self, params: Any) -> str:
        address, text = params
        typed = json.loads(text)
        assert address == self.account.address
        assert typed["domain"]["chainId"] == self.chain_id, "a wallet signs only for its network"
        signed = Account.sign_message(encode_typed_data(full_message=typed), self.account.key)
        return "0x" + bytes(signed.signature).hex()


@dataclass
class Visit:
    """A visitor of the page: the browser's page, the wallet, the shop."""

    shop: Storefront
    wallet: Wallet
    context: BrowserContext
    page: Page
    paid_with: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Violations that tests record."""

    @property
    def url(self) -> str:
        return f"{self.shop.url}/endpoint/{WEATHER_ID}/upgrade"

    @property
    def buttons(self) -> Any:
        return self.page.locator("#wallets button")

    async def press(self) -> None:
        await self.buttons.first.click()

    async def says(self, words: str | re.Pattern[str]) -> None:
        await expect(self.page.locator("#status")).to_contain_text(words)

    async def has_report(self) -> None:
        await expect(self.page.locator("#report")).to_be_visible(timeout=20_000)

    async def load_saved(self) -> dict[str, Any]:
        """Return the signed payments that the browser stores, by ID."""
        held: dict[str, str] = await self.page.evaluate("({ ...localStorage })")
        prefix = "tollgauge.payment."
        return {key.removeprefix(prefix): json.loads(text) for key, text in held.items()}

    async def charged_nothing(self) -> None:
        """Check that no signature is stored and that the page can be used again."""
        await expect(self.page.locator("#status")).to_have_attribute("data-kind", "problem")
        await expect(self.buttons.first).to_be_enabled()
        await self.page.evaluate("document.getElementById('status').textContent = ''")
        assert await self.load_saved() == {}
        assert not await self.page.locator("#report").is_visible()
