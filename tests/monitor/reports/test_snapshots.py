"""Providers on both databases."""

from __future__ import annotations

from tests.support.databases import on_sqlite
from tests.support.score_rows import endpoint, row, save

from tollgauge.db.engine import Store
from tollgauge.monitor.reports import snapshots
from tollgauge.monitor.reports.snapshots import PROVIDER_ROWS
from tollgauge.store.endpoints import endpoints

pytestmark = on_sqlite


async def test_pages_of_a_provider_list_each_endpoint_once(store: Store) -> None:
    paths = [f"/{number}" for number in range(2 * PROVIDER_ROWS + 1)]
    await store.writing(endpoints.insert, *[endpoint(path) for path in paths])
    await save(store, row("/7", 900), row("/8", 800))
    shown: list[str] = []
    after = None
    for length in (PROVIDER_ROWS, PROVIDER_ROWS, 1):
        provider = await store.reading(snapshots.provider, "a.com", after)
        assert provider is not None
        assert (len(provider.rows), provider.after) == (length, after)
        shown += [listed.resource for listed in provider.rows]
        after = provider.next_after
    assert after is None
    assert shown[:2] == ["https://a.com/7", "https://a.com/8"]
    assert sorted(shown) == sorted(f"https://a.com{path}" for path in paths)


async def test_page_that_ends_with_the_last_endpoint_has_no_next_page(store: Store) -> None:
    paths = [f"/{number}" for number in range(PROVIDER_ROWS)]
    await store.writing(endpoints.insert, *[endpoint(path) for path in paths])
    provider = await store.reading(snapshots.provider, "a.com")
    assert provider is not None
    assert (len(provider.rows), provider.next_after) == (PROVIDER_ROWS, None)
