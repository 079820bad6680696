"""The stored ranking: when it is computed, used and refreshed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.databases import on_both, on_sqlite
from tests.support.score_rows import NOW, endpoint, row, save

from tollgauge.core.endpoint.terms import Quote
from tollgauge.db import meta
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.monitor import ranking
from tollgauge.monitor.ranking import REFRESH_MS, USE_MS, ExampleEndpoint
from tollgauge.monitor.reports.overview import ecosystem
from tollgauge.store.endpoints import endpoints

pytestmark = on_sqlite


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the ranking for any number of endpoints."""
    monkeypatch.setattr(ranking, "COUNTED_MAX", 0)


async def add(store: Store, *paths: str) -> None:
    """Add endpoints with scores in descending order."""
    await store.writing(endpoints.insert, *[endpoint(path) for path in paths])
    await save(store, *(row(path, 900 - place) for place, path in enumerate(paths)))


async def keep(store: Store, *, now: int = NOW) -> dict[str, object]:
    return await score.rank_endpoints(store, clock=lambda: now)


async def examples(store: Store, *, now: int = NOW) -> list[ExampleEndpoint]:
    return list((await store.reading(ranking.current, now=now)).examples)


async def test_best_median_and_worst_are_examples(store: Store) -> None:
    assert await examples(store) == []
    paths = ["/1", "/2", "/3", "/4"]
    await add(store, *paths)
    assert await examples(store) == [
        ExampleEndpoint(role="best", rank=1, endpoint_id=endpoint("/1").id),
        ExampleEndpoint(role="median", rank=2, endpoint_id=endpoint("/2").id),
        ExampleEndpoint(role="worst", rank=4, endpoint_id=endpoint("/4").id),
    ]


async def test_small_ranking_is_computed_per_request(store: Store) -> None:
    await add(store, "/1")
    assert await keep(store) == {}
    await add(store, "/2", "/3")
    assert (await store.reading(ranking.current, now=NOW)).population.scored == 3


@pytest.mark.usefixtures("kept")
async def test_stored_ranking_is_used_until_it_expires(store: Store) -> None:
    await add(store, "/1", "/2")
    counted = await store.reading(ranking.count, now=NOW)
    assert await keep(store) == {"ranked": 2}
    await add(store, "/3")
    assert await store.reading(ranking.current, now=NOW + USE_MS - 1) == counted
    stats = await store.reading(ecosystem, now=NOW + USE_MS - 1)
    assert (stats.as_of, stats.monitored, stats.listed) == (NOW, 2, 2)
    assert (await store.reading(ranking.current, now=NOW + USE_MS)).population.scored == 3


@pytest.mark.usefixtures("kept")
async def test_workers_recompute_only_when_the_ranking_is_due(store: Store) -> None:
    await add(store, "/1")
    assert await keep(store)
    await add(store, "/2")
    assert await keep(store, now=NOW + REFRESH_MS - 1) == {}
    assert await keep(store, now=NOW + REFRESH_MS) == {"ranked": 2}


@on_both
@pytest.mark.usefixtures("kept")
async def test_ranking_of_another_version_is_not_used(store: Store) -> None:
    await add(store, "/1")
    await store.writing(meta.put, "ranking", '{"as_of": 1}')
    assert (await store.reading(ranking.current, now=NOW)).population.scored == 1
    assert await keep(store)


async def test_small_ranking_is_no_longer_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(store, "/1", "/2")
    with monkeypatch.context() as patch:
        patch.setattr(ranking, "COUNTED_MAX", 1)
        assert await keep(store)
    assert await keep(store, now=NOW + REFRESH_MS) == {}
    assert await store.reading(meta.get, "ranking") is None


async def test_endpoints_on_test_networks_are_not_ranked(store: Store) -> None:
    await add(store, "/1", "/2")
    test_quote = Quote(network="eip155:84532", asset="0x" + "aa" * 20, amount=1, pay_to="0x")
    on_test_network = replace(endpoint("/test"), quote=test_quote)
    await store.writing(endpoints.insert, on_test_network)
    await save(store, row("/test", 990))
    counted = await store.reading(ranking.count, now=NOW)
    assert counted.population.scored == 2
    assert [one.endpoint_id for one in counted.best] == [endpoint("/1").id, endpoint("/2").id]
    assert [one.endpoint_id for one in counted.examples] == [endpoint("/1").id, endpoint("/2").id]
