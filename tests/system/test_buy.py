"""`tollgauge buy` in the demo world, with a real chain and broken connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.command_line import Done
from tests.support.command_server import command as prepared_command
from tests.support.edge_server import Relay, relay
from tests.support.storefront import WEATHER, Storefront, storefront

from tollgauge.demo.chain import ACCOUNTS, BUYER
from tollgauge.demo.serving import serve
from tollgauge.web import routes

PRICE = 5_000

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shop() -> AsyncIterator[Storefront]:
    async with storefront() as running:
        yield running


@contextlib.asynccontextmanager
async def breakable(shop: Storefront) -> AsyncIterator[Relay]:
    async with relay(int(shop.url.rpartition(":")[2])) as running:
        yield running


@contextlib.asynccontextmanager
async def serve_unsigned(shop: Storefront) -> AsyncIterator[str]:
    """Yield the URL of the same service without a signing key."""
    app = routes.create(replace(shop.service.server(), signing_key=None))
    async with serve(app) as port:
        yield f"http://127.0.0.1:{port}"


async def start(
    folder: Path, *words: str, service: str, key: str = BUYER.key
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *prepared_command("tollgauge", *words),
        env=os.environ | {"TOLLGAUGE_URL": service, "TOLLGAUGE_BUYER_KEY": key},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def tollgauge(folder: Path, *words: str, service: str, key: str = BUYER.key) -> Done:
    process = await start(folder, *words, service=service, key=key)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert b"Traceback" not in err
    assert key.removeprefix("0x") not in (out + err).decode()
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_report_is_bought_stored_and_its_score_recomputed(
    shop: Storefront, tmp_path: Path
) -> None:
    before = await shop.income()
    done = await tollgauge(tmp_path, "buy", WEATHER, "--evidence", "full", service=shop.url)
    assert done.code == 0, done.err
    assert await shop.income() - before == PRICE
    report = json.loads((tmp_path / "report.json").read_bytes())
    verdict, score, paid, wrote, signed = done.out.splitlines()
    assert verdict == f"{report['recommendation']}: {report['reason']}"
    assert score.startswith(f"score {report['score']}, grade {report['grade']}")
    transaction = re.fullmatch(r"paid \$0\.005 in USDC by (0x[0-9a-f]{64})", paid)
    assert transaction is not None
    mined = await shop.world.chain.rpc("eth_getTransactionReceipt", transaction[1])
    assert mined["status"] == "0x1"
    assert "tollgauge score report.json" in wrote
    assert "tollgauge verify report.json" in signed
    assert sorted(names(tmp_path)) == ["report.json", "report.json.jws"]
    assert {mode(tmp_path / name) for name in names(tmp_path)} == {0o600}
    again = await tollgauge(tmp_path, "score", "report.json", service=shop.url)
    assert (again.code, "they agree" in again.out) == (0, True)


async def test_report_is_verified_with_the_keys_of_the_service(
    shop: Storefront, tmp_path: Path
) -> None:
    bought = await tollgauge(tmp_path, "buy", WEATHER, "--json", service=shop.url)
    done = await tollgauge(tmp_path, "verify", "report.json", "--json", service=shop.url)
    assert done.code == 0, done.err
    assert [check["passed"] for check in done.json["checks"]] == [True] * 5
    payment = bought.json["payment"]
    assert done.json["sale"]["nonce"] == payment["nonce"]
    assert done.json["sale"]["payer"] == payment["payer"]
    text = (tmp_path / "report.json").read_text()
    (tmp_path / "report.json").write_text(text.replace('"grade":"', '"grade":"X'))
    forged = await tollgauge(tmp_path, "verify", "report.json", service=shop.url)
    assert (forged.code, "cannot be trusted" in forged.out) == (1, True)


async def test_unsigned_report_removes_an_old_signature_file(
    shop: Storefront, tmp_path: Path
) -> None:
    (tmp_path / "report.json.jws").write_text("of another report")
    async with serve_unsigned(shop) as url:
        done = await tollgauge(tmp_path, "buy", WEATHER, service=url)
    assert done.code == 0, done.err
    assert names(tmp_path) == ["report.json"]
    assert "verify" not in done.out


async def test_existing_report_is_not_bought_again_without_force(
    shop: Storefront, tmp_path: Path
) -> None:
    (tmp_path / "report.json").write_text("mine")
    before = await shop.income()
    refused = await tollgauge(tmp_path, "buy", WEATHER, service=shop.url)
    assert (refused.code, refused.out) == (2, "")
    assert "report.json exists already." in refused.err
    assert "--force" in refused.err
    assert await shop.income() == before
    forced = await tollgauge(tmp_path, "buy", WEATHER, "--force", service=shop.url)
    assert forced.code == 0, forced.err
    assert json.loads((tmp_path / "report.json").read_bytes())["resource"] == WEATHER


async def test_report_goes_to_standard_output_and_messages_to_standard_error(
    shop: Storefront, tmp_path: Path
) -> None:
    done = await tollgauge(tmp_path, "buy", WEATHER, "--output", "-", service=shop.url)
    assert done.json["resource"] == WEATHER
    assert "paid $0.005 in USDC" in done.err
    assert names(tmp_path) == []


async def test_purchase_is_printed_as_json(shop: Storefront, tmp_path: Path) -> None:
    done = await tollgauge(tmp_path, "buy", WEATHER, "--json", service=shop.url)
    report: Any = json.loads((tmp_path / "report.json").read_bytes())
    payment = done.json["payment"]
    assert (done.json["score"], done.json["output"]) == (report["score"], "report.json")
    assert (payment["amount"], payment["network"]) == (str(PRICE), "eip155:8453")
    assert payment["payer"] == BUYER.address.lower()
    assert payment["payTo"] == shop.world.pay_to.lower()


async def test_price_above_the_cap_and_other_networks_are_rejected_before_signing(
    shop: Storefront, tmp_path: Path
) -> None:
    before = await shop.income()
    async with breakable(shop) as between:
        dear = await tollgauge(
            tmp_path, "buy", WEATHER, "--max-price", "0.004", service=between.url
        )
        elsewhere = await tollgauge(
            tmp_path, "buy", WEATHER, "--network", "eip155:84532", service=between.url
        )
        assert between.payments == []
    assert (dear.code, elsewhere.code) == (2, 2)
    assert "charges $0.005, and the limit is $0.004" in dear.err
    assert "--max-price 0.005" in dear.err
    assert "accepts payments on eip155:8453, not on eip155:84532" in elsewhere.err
    assert names(tmp_path) == []
    assert await shop.income() == before


async def test_lost_response_is_fetched_with_the_same_payment(
    shop: Storefront, tmp_path: Path
) -> None:
    before = await shop.income()
    async with breakable(shop) as between:
        between.lose = 1
        done = await tollgauge(tmp_path, "buy", WEATHER, service=between.url)
        assert done.code == 0, done.err
        assert between.lost.is_set()
        assert len(between.payments) == 2
        assert len(set(between.payments)) == 1
    assert await shop.income() - before == PRICE


async def test_command_killed_after_payment_is_repeated_without_charge(
    shop: Storefront, tmp_path: Path
) -> None:
    before = await shop.income()
    async with breakable(shop) as between:
        between.lose, between.hold = 1, asyncio.Event()
        first = await start(tmp_path, "buy", WEATHER, service=between.url)
        await asyncio.wait_for(between.lost.wait(), 30)
        first.send_signal(signal.SIGKILL)
        await first.wait()
        assert await shop.income() - before == PRICE
        (kept,) = names(tmp_path)
        assert re.fullmatch(r"tollgauge-[0-9a-f]{16}\.payment", kept)
        assert mode(tmp_path / kept) == 0o600
        second = await tollgauge(tmp_path, "buy", WEATHER, service=between.url)
        between.hold.set()
        assert second.code == 0, second.err
        assert len(set(between.payments)) == 1
    assert await shop.income() - before == PRICE
    assert sorted(names(tmp_path)) == ["report.json", "report.json.jws"]


async def test_wallet_without_funds_is_named_and_pays_once_when_funded(
    shop: Storefront, tmp_path: Path
) -> None:
    poor = ACCOUNTS[3]
    before = await shop.income()
    async with breakable(shop) as between:
        refused = await tollgauge(tmp_path, "buy", WEATHER, service=between.url, key=poor.key)
        assert (refused.code, refused.out) == (2, "")
        assert f"{poor.address.lower()} has too little USDC on eip155:8453" in refused.err
        nonce = re.search(r"nonce (0x[0-9a-f]{64})", refused.err)
        assert nonce is not None
        assert await shop.income() == before
        await shop.world.chain.mint(poor.address, PRICE)
        done = await tollgauge(
            tmp_path, "buy", WEATHER, "--json", service=between.url, key=poor.key
        )
        assert done.json["payment"]["nonce"] == nonce[1]
        assert len(set(between.payments)) == 1
    assert await shop.income() - before == PRICE


async def test_pending_settlement_is_awaited(shop: Storefront, tmp_path: Path) -> None:
    before = await shop.income()
    shop.stall.pending = 1
    done = await tollgauge(tmp_path, "buy", WEATHER, service=shop.url)
    assert done.code == 0, done.err
    assert shop.stall.pending == 0
    assert await shop.income() - before == PRICE


async def test_invalid_resource_costs_nothing(shop: Storefront, tmp_path: Path) -> None:
    before = await shop.income()
    done = await tollgauge(tmp_path, "buy", "https://127.0.0.1/x", service=shop.url)
    assert done.code == 2
    assert "The service returned 422" in done.err
    assert "Nothing was charged" in done.err
    assert await shop.income() == before
    assert names(tmp_path) == []
