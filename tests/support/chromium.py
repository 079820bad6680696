"""Debian's Chromium, as tests start it."""

from __future__ import annotations

from playwright.async_api import Browser, Playwright, expect
from tests.support.programs import require

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
    """Start it. Skips the test where it is missing, and fails it in `make test`."""
    return await playwright.chromium.launch(executable_path=require("chromium"), args=_ARGUMENTS)
