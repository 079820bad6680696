"""`POST /endpoint/{id}/recheck`, as JSON and from the page's button."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest_asyncio
from tests.support.bundles import add, priced_endpoint
from tests.support.http_service import NOW, Running, configuration, open_service

from tollgauge.core.base.units import HOUR_MS

FAILING = replace(
    priced_endpoint("/1"), payable=False, failing_since=NOW - HOUR_MS, next_due=NOW + HOUR_MS
)
PAYABLE = replace(priced_endpoint("/2"), payable=True)
PATH = f"/endpoint/{FAILING.id}/recheck"


@pytest_asyncio.fixture
async def running() -> AsyncIterator[Running]:
    """A service with an endpoint that is not payable, and one that is."""
    async with open_service(configuration()) as service:
        await add(service.service.store, FAILING, PAYABLE)
        yield service


async def test_probe_is_queued_once_in_ten_minutes(running: Running) -> None:
    first = await running.http.post(PATH)
    assert (first.status_code, first.json()) == (
        200,
        {"resource": FAILING.resource, "probe": "queued"},
    )
    again = await running.http.post(PATH)
    assert (again.status_code, again.json()["code"]) == (429, "rechecked")
    assert again.headers["retry-after"] == "600"


async def test_browser_is_sent_back_to_the_page(running: Running) -> None:
    answer = await running.http.post(PATH, headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"].endswith(f"/endpoint/{FAILING.id}")


async def test_payable_and_unknown_endpoints_are_refused(running: Running) -> None:
    payable = await running.http.post(f"/endpoint/{PAYABLE.id}/recheck")
    assert (payable.status_code, payable.json()["code"]) == (409, "already-payable")
    unknown = await running.http.post(f"/endpoint/{'0' * 16}/recheck")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-resource")
