"""Figures of directories on both databases, and their stored copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa
from tests.support.crawls import NOW, crawl, item
from tests.support.databases import on_sqlite
from tests.support.statements import execute

from tollgauge.core.base.units import BASE, DAY_MS, HOUR_MS
from tollgauge.core.endpoint.terms import MAX_OFFERS, KnownOffer, PayToHistory, Quote
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.monitor import directories
from tollgauge.monitor.directories import DirectoryFigures
from tollgauge.store.endpoints import crawls

OpenStore = Callable[[], Store]
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
CENT = Quote(network=BASE, asset=USDC, amount=10_000, pay_to="0xbb")
SAME = KnownOffer(BASE, "exact", "0xbb", 10_000)


async def test_figures_count_dead_and_wrong_entries(open_store: OpenStore) -> None:
    store = open_store()
    names = ("same", "dearer", "moved", "varying", "ended", "unseen")
    items = {name: item(f"/{name}", quote=CENT, scheme="exact") for name in names}
    await crawl(store, "cdp", items["same"], now=NOW - 2 * DAY_MS)
    await crawl(store, "cdp", *items.values(), now=NOW - DAY_MS)
    offers = {
        "same": SAME,
        "dearer": KnownOffer(BASE, "exact", "0xbb", 20_000),
        "moved": KnownOffer(BASE, "exact", "0xcc", 10_000),
        "varying": KnownOffer(BASE, "exact", "0xdd", 10_000),
        "ended": KnownOffer(BASE, "exact", "0xee", 10_000, until=NOW),
    }
    for name, offer in offers.items():
        await _update(store, items[name].resource.id, offers=(offer,))
    history = PayToHistory(first_at=NOW, since=NOW, varies=True)
    await _update(store, items["varying"].resource.id, payto_history=history)
    await _update(store, items["ended"].resource.id, down_since=NOW - 8 * DAY_MS)
    await _update(store, items["same"].resource.id, down_since=NOW - 6 * DAY_MS)
    report = await store.reading(directories.count, now=NOW)
    assert report.as_of == NOW
    assert report.directories == (
        DirectoryFigures(
            source="cdp",
            entries=6,
            dead=1,
            compared=4,
            wrong_price=1,
            wrong_pay_to=1,
            median_age_ms=DAY_MS,
            crawled_at=NOW - DAY_MS,
            duplicates=0,
        ),
    )


@on_sqlite
async def test_envelope_with_too_many_offers_is_not_compared(store: Store) -> None:
    one = item("/one", quote=CENT, scheme="exact")
    await crawl(store, "cdp", one)
    offers = tuple(
        KnownOffer(BASE, "exact", f"0x{number:02}", 10_000) for number in range(MAX_OFFERS)
    )
    for known, wrong in ((offers[1:], 1), (offers, 0)):
        await _update(store, one.resource.id, offers=known)
        (figures,) = (await store.reading(directories.count, now=NOW)).directories
        assert (figures.compared, figures.wrong_pay_to) == (wrong, wrong)


async def test_directory_that_lists_nothing_any_more_remains(open_store: OpenStore) -> None:
    store = open_store()
    one, kept = item("/one"), item("/kept")
    await crawl(store, "small", one)
    await crawl(store, "large", one, kept)
    begun = await store.writing(crawls.begin_crawl, "small", now=NOW + 1)
    await execute(store, schema.listing.update().where(_is_from("small")).values(delisted_at=NOW))
    await store.writing(crawls.end_crawl, begun, complete=True, suspicious=False, now=NOW + 1)
    large, small = (await store.reading(directories.count, now=NOW + 1)).directories
    assert (large.source, large.entries) == ("large", 2)
    assert (small.entries, small.median_age_ms, small.crawled_at) == (0, None, NOW + 1)


@on_sqlite
async def test_figures_of_a_large_population_are_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await crawl(store, "cdp", item("/one"))
    counted = await store.reading(directories.count, now=NOW)
    await store.writing(directories.keep, counted)
    assert await store.reading(directories.is_due, now=NOW)
    monkeypatch.setattr(directories, "COUNTED_MAX", 0)
    await score.rank_endpoints(store, clock=lambda: NOW)
    assert not await store.reading(directories.is_due, now=NOW + HOUR_MS - 1)
    assert await store.reading(directories.is_due, now=NOW + HOUR_MS)
    await crawl(store, "cdp", item("/one"), item("/two"), now=NOW + 1)
    assert await store.reading(directories.current, now=NOW + 1) == counted
    later = NOW + 3 * HOUR_MS
    (figures,) = (await store.reading(directories.current, now=later)).directories
    assert figures == replace(figures, entries=2, median_age_ms=3 * HOUR_MS - 1, crawled_at=NOW + 1)


def _is_from(source: str) -> sa.ColumnElement[bool]:
    return schema.listing.c.source == source


async def _update(store: Store, endpoint_id: str, **values: object) -> None:
    row = schema.endpoint.update().where(schema.endpoint.c.id == endpoint_id)
    await execute(store, row.values(**values))
