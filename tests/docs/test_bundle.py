"""What the page about the bundle lets its readers run."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.http_service import WEATHER, configuration, opened
from tests.support.signing import KEY, PRIVATE_JWK, verify

from tollgauge.core.preflight import Code
from tollgauge.demo.serving import serve
from tollgauge.web.signing import SigningSettings

PAGE = (Path(__file__).parents[2] / "docs/bundle.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8402"


@pytest.fixture
async def address(tmp_path: Path, market_database: Callable[[Path], str]) -> AsyncIterator[str]:
    """Where a service is that signs the bundle of a market."""
    config = configuration(store_url=market_database(tmp_path / "service.db"))
    config = replace(config, signing=SigningSettings(key=PRIVATE_JWK))
    async with opened(config) as running:
        await running.service.round("bundle")
        async with serve(running.app) as port:
            yield f"http://127.0.0.1:{port}"


async def said(block: tuple[str, str], address: str, folder: Path) -> str:
    """What a block of the page prints."""
    kind, text = block
    command = [sys.executable, "-c"] if kind == "python" else ["sh", "-euc"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, text.replace(ADDRESS, address)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return str(done.stdout)


async def test_the_programs_of_the_page_do_what_it_says(address: str, tmp_path: Path) -> None:
    record, mirror, preflight = BLOCK.findall(PAGE)
    assert (await said(record, address, tmp_path)).startswith("['")
    await said(mirror, address, tmp_path)
    body = (tmp_path / "bundle.zst").read_bytes()
    signature = (tmp_path / "bundle.zst.jws").read_text()
    verify(signature.strip(), body, "tollgauge-bundle", [KEY.public])
    verdict = json.loads(await said(preflight, address, tmp_path))
    assert (verdict["resource"], verdict["decision"]) == (WEATHER, "allow")


def test_the_page_names_every_code_of_the_preflight() -> None:
    table = PAGE.split("## The preflight")[1]
    assert [code for code in Code if f"`{code}`" not in table] == []
