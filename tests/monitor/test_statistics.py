"""Distributions of figures over real rows, and the lifetime of the stored counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.crawls import finish_crawl
from tests.support.databases import on_both, on_sqlite
from tests.support.score_rows import NOW, endpoint, row, save
from tests.support.timed_evidence import payable

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.directory.listing import ListedItem
from tollgauge.core.endpoint.identity import Listing, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.monitor import discovery, ranking, statistics
from tollgauge.monitor.statistics import HistogramBin
from tollgauge.store.endpoints import crawls, endpoints
from tollgauge.store.endpoints.ranking import Share, load_shares, week_of
from tollgauge.store.probes import probes

pytestmark = on_sqlite

USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
BASE = Quote(network="eip155:8453", asset=USDC, amount=5_000, pay_to="0x1")


def filled_bins(bins: tuple[HistogramBin, ...]) -> dict[tuple[int, int | None], int]:
    return {(row.least, row.below): row.count for row in bins if row.count}


async def add(store: Store, path: str, quote: Quote | None = None) -> None:
    await store.writing(endpoints.insert, replace(endpoint(path), quote=quote))


async def test_every_ranked_endpoint_is_in_one_bin_of_each_figure(store: Store) -> None:
    await add(store, "/cheap", BASE)
    await add(store, "/same", replace(BASE, pay_to="0x2"))
    await add(store, "/dear", replace(BASE, amount=10_000_000))
    await add(store, "/other", replace(BASE, asset="0xother", network="eip155:1"))
    await add(store, "/silent")
    await add(store, "/unscored", BASE)
    await store.writing(endpoints.insert, replace(endpoint("/gone"), status=Listing.DELISTED))
    await save(store, row("/cheap", 1_000, uptime_tenths=1_000, latency_ms=99))
    await save(store, row("/same", 899, uptime_tenths=999, latency_ms=100))
    await save(store, row("/dear", 900, uptime_tenths=994, latency_ms=6_000))
    await save(store, row("/other", 99, uptime_tenths=500, recommendation="avoid"))
    await save(store, row("/silent", 0, uptime_tenths=0, latency_ms=None))
    await save(store, row("/gone", 500))
    counted = await store.reading(statistics.current, now=NOW)
    assert counted.endpoints == 5
    assert filled_bins(counted.scores) == {(0, 100): 2, (800, 900): 1, (900, None): 2}
    assert filled_bins(counted.uptimes) == {
        (0, 1): 1,
        (500, 900): 1,
        (990, 995): 1,
        (995, 1_000): 1,
        (1_000, None): 1,
    }
    assert filled_bins(counted.latencies) == {(0, 100): 2, (100, 250): 1, (5_000, None): 1}
    assert counted.no_latency == 1
    assert filled_bins(counted.prices) == {(5_000, 10_000): 2, (10_000_000, None): 1}
    assert (counted.other_tokens, counted.no_price) == (1, 1)
    assert counted.networks == (("eip155:8453", 3), ("eip155:1", 1))
    assert counted.recommendations == (("proceed", 4), ("avoid", 1))


async def test_distributions_are_empty_without_endpoints(store: Store) -> None:
    counted = await store.reading(statistics.current, now=NOW)
    assert counted.endpoints == 0
    assert not filled_bins(counted.scores)
    assert counted.networks == counted.sources == ()


async def test_directories_are_counted_by_current_listings(store: Store) -> None:
    items = [ListedItem(resource=parse_resource(f"https://a.com/{n}")) for n in range(3)]
    for source, listed in (("one", items), ("two", items[:1]), ("two", items[1:])):
        begun = await store.writing(crawls.begin_crawl, source, now=NOW)
        await store.writing(discovery.record_page, begun, listed, next_offset=3, now=NOW)
        await store.writing(finish_crawl, begun, complete=True, now=NOW)
    counted = await store.reading(statistics.current, now=NOW)
    assert counted.sources == (("one", 3), ("two", 2))


async def test_offers_are_counted_by_scheme_network_and_extension(store: Store) -> None:
    offers = (
        ("/1", ("eip155:8453 eip3009", "eip155:8453 permit2"), ("bazaar", "payment-identifier")),
        ("/2", ("eip155:8453 eip3009", "eip155:137 upto"), ("bazaar",)),
        ("/3", ("solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp exact",), ()),
        ("/silent", (), ()),
    )
    for number, (path, forms, extensions) in enumerate(offers):
        await add(store, path, BASE)
        result = replace(payable(NOW - number), forms=forms, extensions=extensions, version=2)
        await store.writing(probes.record_many, endpoint(path).id, [result])
        await save(store, row(path, 500))
    counted = await store.reading(statistics.current, now=NOW)
    assert counted.offers == 3
    assert counted.schemes == (("exact", 3), ("upto", 1))
    assert dict(counted.offered_networks)["eip155:8453"] == 2
    assert counted.extensions == (("bazaar", 2), ("payment-identifier", 1))
    assert counted.versions == (("2", 3),)


@on_both
async def test_shares_of_a_week_are_those_of_its_last_count(store: Store) -> None:
    monday = week_of(NOW) * DAY_MS
    for hour, path in ((1, "/1"), (5, "/2"), (7 * 24, "/3")):
        at = monday + hour * HOUR_MS
        await add(store, path, BASE)
        result = replace(payable(at), forms=("eip155:8453 eip3009",), version=2)
        await store.writing(probes.record_many, endpoint(path).id, [result])
        await save(store, row(path, 500))
        await store.writing(statistics.keep, await store.reading(statistics.count, now=at))
    newest, first = await store.reading(load_shares, limit=12)
    assert (newest.week - first.week, first.counted_at) == (7, monday + 5 * HOUR_MS)
    assert Share("scheme", "exact", 2) in first.shares
    assert Share("version", "2", 3) in newest.shares
    assert await store.reading(load_shares, limit=1) == (newest,)


async def test_rare_names_are_counted_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "NAMES_MAX", 1)
    for number in range(3):
        await add(store, f"/{number}", replace(BASE, network=f"eip155:{number}"))
        await save(store, row(f"/{number}", 500))
    counted = await store.reading(statistics.current, now=NOW)
    assert counted.networks == (("eip155:0", 1), ("", 2))


async def test_counts_of_many_endpoints_are_stored_and_recomputed_when_due(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "COUNTED_MAX", 0)
    monkeypatch.setattr(statistics, "COUNTED_MAX", 0)
    await add(store, "/1")
    await save(store, row("/1", 500))
    await score.rank_endpoints(store, clock=lambda: NOW)
    counted = await store.reading(statistics.current, now=NOW)
    await add(store, "/2")
    await save(store, row("/2", 500))
    await score.rank_endpoints(store, clock=lambda: NOW + 4 * MINUTE_MS)
    assert await store.reading(statistics.current, now=NOW + 14 * MINUTE_MS) == counted
    assert (await store.reading(statistics.current, now=NOW + 15 * MINUTE_MS)).endpoints == 2
    await score.rank_endpoints(store, clock=lambda: NOW + 5 * MINUTE_MS)
    assert (await store.reading(statistics.current, now=NOW + 6 * MINUTE_MS)).endpoints == 2
