"""The page and the JSON of a payTo address."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.http_service import WEATHER_ID, Running, configuration, open_service
from tests.support.page_reader import BASE, HOSTILE, Reader
from tests.support.rated_endpoints import make_rated

from tollgauge.core.score.income import Income, TopPayer, WalletIncome
from tollgauge.monitor.reports.wallets import NetworkIncome, Wallet
from tollgauge.store.endpoints.listings import PayToChange
from tollgauge.web.pages.render import render

pytestmark = pytest.mark.asyncio(loop_scope="module")
ADDRESS = "0x" + "ab" * 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("wallet") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


def wallet(text: str = "probe", *, measured: bool = True) -> Wallet:
    income = Income(
        transfers=9, volume=40_000_000, payers=4, proven_payers=2, proven_volume=30_000_000
    )
    payer = TopPayer(payer="0x" + "1" * 40, transfers=5, paid=10_000_000, returned=0, proven=True)
    return Wallet(
        address=ADDRESS,
        rows=(make_rated("shop", price=5_000, pay_to=ADDRESS),),
        more=False,
        networks=(
            NetworkIncome(
                network="eip155:8453",
                owner=text,
                indexed=True,
                measured=measured,
                income=WalletIncome(
                    last_day=20_415,
                    incomes=((1, Income()), (7, income), (30, income)),
                    top=(payer,),
                ),
            ),
        ),
        changes=(
            PayToChange(
                endpoint_id="0123456789abcdef",
                resource="https://old.example/",
                host="old.example",
                at=1_764_000_000_000,
                source=text,
                before=ADDRESS,
                after=text,
                announced=False,
            ),
        ),
        seller_files=(),
    )


def page(shown: Wallet) -> Reader:
    return Reader(render("wallet.html", BASE, wallet=shown, rows=shown.rows, uptimes={}))


async def test_page_shows_income_payers_endpoints_and_changes() -> None:
    words = page(wallet()).words
    for text in (
        "1 monitored endpoint of 1 host names this payTo address",
        "Settled volume $0.00 $40.00 $40.00",
        "Proven volume $0.00 $30.00 $30.00",
        "$10.00 25.0%",
        "https://old.example/ until 2025-11-24",
        "seen by probe",
    ):
        assert text in words


async def test_proven_figures_are_absent_if_they_are_not_measured() -> None:
    words = page(wallet(measured=False)).words
    assert "is not measured here" in words
    assert "Proven volume" not in words


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_texts_stay_text(text: str) -> None:
    reader = page(wallet(text))
    assert "1337" not in reader.words
    assert "script" not in {tag for tag, _ in reader.elements}


async def test_endpoint_page_links_the_wallet_and_the_wallet_links_back(running: Running) -> None:
    html = (await running.get(f"/endpoint/{WEATHER_ID}")).text
    match = re.search(r'href="(/wallet/0x[0-9a-f]{40})"', html)
    assert match is not None
    answer = await running.get(match[1])
    assert answer.status_code == 200
    assert f"/endpoint/{WEATHER_ID}" in answer.text
    document = (await running.get(f"/trust{match[1]}")).json()
    assert document["address"] == match[1].removeprefix("/wallet/")
    pages = [one["endpointPage"] for one in document["endpoints"]]
    assert any(one.endswith(WEATHER_ID) for one in pages)
    assert [one["indexed"] for one in document["networks"]] == [False]


@pytest.mark.parametrize("address", ["0x" + "99" * 20, "0x" + "9" * 39, "weather", "%3Cscript%3E"])
async def test_unknown_address_is_404_with_the_reason(running: Running, address: str) -> None:
    for path in (f"/wallet/{address}", f"/trust/wallet/{address}"):
        answer = await running.get(path)
        assert answer.status_code == 404
        assert "No monitored endpoint names this address" in answer.text
