"""Several processes serve the bundle that one of them built."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.bundles import add, content, priced_endpoint
from tests.support.http_service import Running, configuration, open_service

from tollgauge.core.base.units import HOUR_MS
from tollgauge.web.free.downloads import CHECK_MS


@pytest.fixture
async def processes(database: str) -> AsyncIterator[tuple[Running, Running]]:
    """Two services on one database, with one clock."""
    config = configuration(store_url=database)
    async with open_service(config) as one, open_service(config, clock=one.clock) as other:
        yield one, other


async def test_all_processes_serve_the_newest_bundle(
    processes: tuple[Running, Running],
) -> None:
    one, other = processes
    await add(one.service.store, priced_endpoint("/1"))
    assert await one.service.round("bundle")
    for path in ("/trust/bundle", "/trust/bundle/avoid"):
        answers = [await running.get(path) for running in processes]
        assert answers[0].content == answers[1].content
        assert answers[0].headers["etag"] == answers[1].headers["etag"]
    await add(one.service.store, priced_endpoint("/2"))
    one.clock.now += HOUR_MS
    before = await other.get("/trust/bundle")
    assert await one.service.round("bundle")
    one.clock.now += CHECK_MS - 1
    assert (await other.get("/trust/bundle")).content == before.content
    one.clock.now += 1
    newest = await other.get("/trust/bundle")
    # Lines of two endpoints, of their host and of their payTo.
    assert content(newest.content)[0]["count"] == 4
    assert newest.content == (await one.get("/trust/bundle")).content
