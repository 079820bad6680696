"""Debian's Chromium, as tests start it."""

from __future__ import annotations

import shutil

from playwright.async_api import expect

expect.set_options(timeout=30_000)  # a busy machine needs more than the usual 5 s

CHROMIUM = shutil.which("chromium") or ""
ARGUMENTS = (
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
