"""The snippets of docs/clients.md, run as a reader would run them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.sim.storefront import WEATHER, Storefront, storefront

from tollgauge.demo.chain import ChainError, find_anvil

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("snippets"),
]


def snippets(language: str) -> list[str]:
    text = (ROOT / "docs" / "clients.md").read_text()
    return [body for tag, body in BLOCK.findall(text) if tag == language]


@pytest.fixture(scope="module", autouse=True)
def needs_anvil() -> None:
    try:
        find_anvil()
    except ChainError as error:
        pytest.skip(f"{error} {error.hint}")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shop() -> AsyncIterator[Storefront]:
    async with storefront() as found:
        yield found


def test_no_snippet_is_left_out() -> None:
    counted = {tag: len(snippets(tag)) for tag in ("sh", "python", "ts")}
    assert counted == {"sh": 2, "python": 2, "ts": 1}


async def run(shop: Storefront, *command: str, cwd: Path | None = None) -> str:
    """What a program prints that knows the service and a funded key."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | {"TOLLGAUGE_URL": shop.url, "PRIVATE_KEY": shop.world.buyer.key},
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is missing")
    return found


@pytest.mark.asyncio(loop_scope="module")
async def test_the_curl_commands_answer_without_payment(shop: Storefront, tmp_path: Path) -> None:
    needs("curl")
    before = await shop.income()
    free, unpaid = snippets("sh")
    reader = json.JSONDecoder()
    text = await run(shop, needs("sh"), "-euc", free, cwd=tmp_path)
    answers: list[Any] = []
    while text.strip():
        value, end = reader.raw_decode(text)
        answers.append(value)
        text = text[end:].lstrip()
    board, stats, preview, snapshot = answers
    assert set(board) >= {"asOf", "endpoints"}
    assert stats["listed"] > 0
    assert "samples" in preview
    assert snapshot["resource"] == WEATHER
    terms = json.loads(await run(shop, needs("sh"), "-euc", unpaid, cwd=tmp_path))
    assert terms["accepts"][0]["amount"] == "20000"
    assert await shop.income() == before


@pytest.mark.asyncio(loop_scope="module")
async def test_the_python_client_buys_a_report_and_a_history(shop: Storefront) -> None:
    before = await shop.income()
    first, second = (await run(shop, sys.executable, "-c", snippets("python")[0])).splitlines()
    grade, score, recommendation, transaction = first.split()
    assert grade in "ABCDF"
    assert 0 <= float(score) <= 100
    assert recommendation in {"proceed", "caution", "avoid"}
    receipt = await shop.world.chain.rpc("eth_getTransactionReceipt", transaction)
    assert receipt["status"] == "0x1"
    assert re.fullmatch(r"[1-9]\d* probes", second)
    assert await shop.income() - before == 5_000 + 20_000


@pytest.mark.asyncio(loop_scope="module")
async def test_the_typescript_client_buys_a_report(shop: Storefront, tmp_path: Path) -> None:
    before = await shop.income()
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    script = tmp_path / "buy.mjs"
    script.write_text(snippets("ts")[0])
    grade, *_, transaction = (await run(shop, needs("node"), str(script))).split()
    assert grade in "ABCDF"
    assert re.fullmatch(r"0x[0-9a-f]{64}", transaction)
    assert await shop.income() - before == 5_000


@pytest.mark.asyncio(loop_scope="module")
async def test_the_careful_client_sends_a_pending_payment_again(shop: Storefront) -> None:
    before = await shop.income()
    shop.stall.pending = 1
    grade = (await run(shop, sys.executable, "-c", snippets("python")[1])).strip()
    assert grade in set("ABCDF")
    assert shop.stall.pending == 0
    assert await shop.income() - before == 5_000
