"""The snippets of docs/clients.md, run as a reader would run them."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.command_server import command as prepared_command
from tests.support.command_server import program
from tests.support.node_programs import Run, open_node
from tests.support.programs import require
from tests.support.rated_endpoints import add_better_alternative
from tests.support.storefront import WEATHER, Storefront, storefront

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("anvil")]


def snippets(language: str) -> list[str]:
    text = (ROOT / "docs" / "clients.md").read_text()
    return [body for tag, body in BLOCK.findall(text) if tag == language]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shop() -> AsyncIterator[Storefront]:
    async with storefront() as shop:
        yield shop


def test_every_snippet_is_tested() -> None:
    counted = {tag: len(snippets(tag)) for tag in ("sh", "python", "ts")}
    assert counted == {"sh": 4, "python": 3, "ts": 2}


async def run(shop: Storefront, *command: str, cwd: Path | None = None) -> str:
    """Run a program with the service's URL and a funded key; return its output."""
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


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.mark.asyncio(loop_scope="module")
async def test_curl_commands_answer_without_payment(shop: Storefront, tmp_path: Path) -> None:
    require("curl")
    before = await shop.income()
    _, free, unpaid, _ = snippets("sh")
    reader = json.JSONDecoder()
    text = await run(shop, require("sh"), "-euc", free, cwd=tmp_path)
    answers: list[Any] = []
    while text.strip():
        value, end = reader.raw_decode(text)
        answers.append(value)
        text = text[end:].lstrip()
    board, stats, calibration, preview, models, snapshot = answers
    assert set(board) >= {"asOf", "endpoints"}
    assert stats["listed"] > 0
    assert "policies" in calibration
    assert "samples" in preview
    assert models["models"]
    assert snapshot["resource"] == WEATHER
    terms = json.loads(await run(shop, require("sh"), "-euc", unpaid, cwd=tmp_path))
    assert terms["accepts"][0]["amount"] == "20000"
    assert await shop.income() == before


async def purchases(shop: Storefront, printed: str) -> None:
    """Check the output of the five reads, which is the same in both languages, against the
    chain.
    """
    first, probes, trace, alternatives, bulk = printed.splitlines()
    grade, score, recommendation, transaction = first.split()
    assert grade in "ABCDF"
    assert 0 <= float(score) <= 100
    assert recommendation in {"proceed", "caution", "avoid"}
    receipt = await shop.world.chain.rpc("eth_getTransactionReceipt", transaction)
    assert receipt["status"] == "0x1"
    assert re.fullmatch(r"[1-9]\d* probes", probes)
    payer, payee = shop.world.buyer.address.lower(), shop.world.pay_to.lower()
    assert trace == f"{payer} paid 5000 to {payee}"
    assert re.fullmatch("1 alternatives", alternatives)
    assert bulk == "1 of 2 known"


async def check_watch_output(shop: Storefront, printed: str) -> None:
    """Check the output about a watch in both languages: 30 days, no events, 60 days."""
    first, news, last = printed.splitlines()
    state, expires = first.split()
    assert (state, news) == ("active", "0 events")
    begun, ended = (datetime.fromisoformat(instant) for instant in (expires, last.split()[1]))
    assert ended - begun == timedelta(days=30)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def run_in_node(
    shop: Storefront, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Run]:
    folder = tmp_path_factory.mktemp("node")
    environment = {"TOLLGAUGE_URL": shop.url, "PRIVATE_KEY": shop.world.buyer.key}
    async with open_node(folder, **environment) as run_next:
        yield run_next


@pytest.mark.asyncio(loop_scope="module")
async def test_python_client_buys_every_read(shop: Storefront) -> None:
    await add_better_alternative(shop.service.store, WEATHER, now=shop.service.clock())
    before = await shop.income()
    await purchases(shop, await run(shop, *prepared_command("-c", snippets("python")[0])))
    assert await shop.income() - before == 5_000 + 20_000 + 11_673 + 5_000 + 45_000


@pytest.mark.asyncio(loop_scope="module")
async def test_typescript_client_buys_every_read(shop: Storefront, run_in_node: Run) -> None:
    await add_better_alternative(shop.service.store, WEATHER, now=shop.service.clock())
    before = await shop.income()
    await purchases(shop, await run_in_node(snippets("ts")[0]))
    assert await shop.income() - before == 5_000 + 20_000 + 11_673 + 5_000 + 45_000


@pytest.mark.asyncio(loop_scope="module")
async def test_python_client_buys_polls_and_renews_a_watch(shop: Storefront) -> None:
    before = await shop.income()
    await check_watch_output(shop, await run(shop, *prepared_command("-c", snippets("python")[1])))
    assert await shop.income() - before == 400_000


@pytest.mark.asyncio(loop_scope="module")
async def test_typescript_client_buys_polls_and_renews_a_watch(
    shop: Storefront, run_in_node: Run
) -> None:
    before = await shop.income()
    await check_watch_output(shop, await run_in_node(snippets("ts")[1]))
    assert await shop.income() - before == 400_000


@pytest.mark.asyncio(loop_scope="module")
async def test_shell_commands_buy_a_report_and_a_watch(shop: Storefront, tmp_path: Path) -> None:
    before = await shop.income()
    path = f"PATH={program(tmp_path / 'bin').parent}:$PATH"
    commands = f"{path}\n{snippets('sh')[3]}"
    printed = await run(shop, require("sh"), "-euc", commands, cwd=tmp_path)
    assert await shop.income() - before == 5_000 + 200_000
    assert f"watches {WEATHER} until" in printed
    assert f"no events for {WEATHER}" in printed
    assert files(tmp_path) == ["report.json", "report.json.jws", "watch.json"]
