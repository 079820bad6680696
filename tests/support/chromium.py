"""Debian's Chromium, as tests start it."""

from __future__ import annotations

import shutil

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
