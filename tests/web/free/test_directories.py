"""Directories over HTTP and on pages: an endpoint's entries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.support.crawls import NOW, crawl, item
from tests.support.http_service import Running, configuration, open_service
from tests.support.page_reader import Reader
from tests.support.statements import execute

from tollgauge.core.base.units import BASE, DAY_MS, iso
from tollgauge.core.directory.entry_record import CatalogueStatus, EntryStatement
from tollgauge.core.endpoint.terms import KnownOffer, Quote
from tollgauge.db import schema
from tollgauge.db.engine import Store

pytestmark = pytest.mark.asyncio(loop_scope="module")
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
CENT = Quote(network=BASE, asset=USDC, amount=10_000, pay_to="0xbb")
CALLED = EntryStatement(
    status=CatalogueStatus.SUCCESS, calls=1_200, payers=3, last_called_at=NOW - 29 * DAY_MS
)
ONE = item("/one", quote=CENT, scheme="exact", statement=CALLED)
OTHER = item("/other")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Running]:
    """A service with an endpoint that `cdp` dropped and `scan` lists with another price."""
    async with open_service(configuration()) as service:
        store = service.service.store
        await crawl(store, "cdp", ONE, OTHER)
        await crawl(
            store, "scan", replace(ONE, quote=replace(CENT, amount=20_000)), now=NOW + 1_000
        )
        await crawl(store, "cdp", OTHER, now=NOW + 2_000)
        await _offer(store)
        yield service


async def _offer(store: Store) -> None:
    """Store the latest offer of ONE: the terms of the first listing."""
    offer = KnownOffer(CENT.network, "exact", CENT.pay_to, CENT.micro_usd)
    row = sa.update(schema.endpoint).where(schema.endpoint.c.id == ONE.resource.id)
    await execute(store, row.values(offers=(offer,)))


async def _entries(running: Running, resource: str) -> list[dict[str, Any]]:
    answer = await running.get("/trust/directories", params={"resource": resource})
    assert answer.status_code == 200, answer.text
    assert answer.json()["resource"] == resource
    found: list[dict[str, Any]] = answer.json()["directories"]
    return found


async def test_entry_has_listed_terms_statement_and_differences(running: Running) -> None:
    dropped, listed = await _entries(running, ONE.resource.url)
    statement = {
        "status": "success",
        "reason": None,
        "calls30d": 1_200,
        "payers30d": 3,
        "lastCalledAt": iso(NOW - 29 * DAY_MS),
        "updatedAt": None,
    }
    assert dropped == {
        "directory": "cdp",
        "firstSeen": iso(NOW),
        "lastSeen": iso(NOW),
        "delistedAt": iso(NOW + 2_000),
        "dropReason": "no-recent-call",
        "network": BASE,
        "scheme": "exact",
        "payTo": CENT.pay_to,
        "amountUsd": 0.01,
        "statement": statement,
        "evictionAt": None,
        "differences": None,
    }
    assert listed["directory"] == "scan"
    assert (listed["delistedAt"], listed["evictionAt"]) == (None, iso(NOW + DAY_MS))
    assert listed["differences"] == [{"field": "price", "listed": "$0.02", "live": "$0.01"}]


async def test_entry_without_a_live_402_is_not_compared(running: Running) -> None:
    (entry,) = await _entries(running, OTHER.resource.url)
    assert (entry["differences"], entry["statement"]) == (None, None)


async def test_unknown_resource_is_not_found(running: Running) -> None:
    answer = await running.get("/trust/directories", params={"resource": "https://b.com/x"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-resource")
    assert (await running.get("/trust/directories?page=2")).status_code == 422


async def test_page_of_an_endpoint_shows_its_entries(running: Running) -> None:
    words = Reader((await running.get(f"/endpoint/{ONE.resource.id}")).content).words
    assert "dropped 2025-10-09, no recent call" in words
    assert "success; calls in 30 days: 1200; payers in 30 days: 3; last call: 2025-09-10" in words
    assert "without another call, dropped about" in words
    assert "price: $0.02 listed, $0.01 in the 402" in words


async def test_figures_of_each_directory(running: Running) -> None:
    answer = (await running.get("/directories.json")).json()
    cdp, scan = answer["directories"]
    assert cdp == {
        "directory": "cdp",
        "entries": 1,
        "deadShare": 0.0,
        "compared": 0,
        "wrongPriceShare": None,
        "wrongPayToShare": None,
        "medianAgeDays": cdp["medianAgeDays"],
        "crawledAt": iso(NOW + 2_000),
        "duplicates": 0,
    }
    assert (scan["compared"], scan["wrongPriceShare"], scan["wrongPayToShare"]) == (1, 1.0, 0.0)


async def test_directory_names_the_entries_that_it_dropped(running: Running) -> None:
    answer = (await running.get("/trust/directories/cdp")).json()
    assert answer["dropped"] == [
        {
            "resource": ONE.resource.url,
            "delistedAt": iso(NOW + 2_000),
            "dropReason": "no-recent-call",
        }
    ]
    assert (await running.get("/trust/directories/scan")).json()["dropped"] == []


async def test_directories_have_pages(running: Running) -> None:
    every = Reader((await running.get("/directories")).content)
    assert "cdp 1 0.0% 0 — —" in every.words
    assert "scan 1 0.0% 1 100.0% 0.0%" in every.words
    assert "/directories/cdp" in [link.get("href") for link in every.all("a")]
    one = Reader((await running.get("/directories/cdp")).content).words
    assert f"2025-10-09 {ONE.resource.url.removeprefix('https://')}" in one.replace("https://", "")
    assert "No entry was dropped." in Reader((await running.get("/directories/scan")).content).words


async def test_unknown_directory_is_not_found(running: Running) -> None:
    for path in ("/trust/directories/other", "/directories/other"):
        assert (await running.get(path)).status_code == 404
    answer = await running.get("/trust/directories/other")
    assert answer.json()["code"] == "unknown-directory"
