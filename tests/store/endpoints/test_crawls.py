"""Deletion of old crawls and discovery events, on both databases."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from tests.support.databases import on_sqlite
from tests.support.statements import fetch

from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.watch.watch_rules import CRAWLS_MS, DISCOVERY_EVENTS_MS
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery
from tollgauge.store.endpoints import crawls, listings

NOW = 1_795_000_000_000
LATE = NOW + 100 + CRAWLS_MS


async def insert_crawl(store: Store, source: str, at: int, *, complete: bool) -> None:
    crawl = await store.writing(crawls.begin_crawl, source, now=at)
    await store.writing(crawls.end_crawl, crawl, complete=complete, suspicious=not complete, now=at)


async def list_remaining(store: Store) -> list[tuple[str, int]]:
    query = sa.select(schema.crawl.c.source, schema.crawl.c.started).order_by(schema.crawl.c.id)
    return [(row.source, row.started - NOW) for row in (await fetch(store, query)).all()]


async def test_old_crawl_is_deleted_after_a_later_complete_one(store: Store) -> None:
    for at, complete in ((0, True), (1, False), (2, True), (3, False)):
        await insert_crawl(store, "dir", NOW + at, complete=complete)
    await insert_crawl(store, "other", NOW, complete=True)
    census = await store.reading(
        crawls.census, await store.writing(crawls.begin_crawl, "dir", now=NOW + 4)
    )
    assert await store.writing(crawls.forget, now=NOW + CRAWLS_MS, limit=9) == 0
    assert [await store.writing(crawls.forget, now=LATE, limit=1) for _ in range(3)] == [1, 1, 0]
    assert await list_remaining(store) == [("dir", 2), ("dir", 3), ("other", 0), ("dir", 4)]
    again = await store.writing(crawls.begin_crawl, "dir", now=NOW + 5)
    assert await store.reading(crawls.census, again) == census


async def test_crawl_of_newer_content_is_kept_after_an_older_file(store: Store) -> None:
    """It is needed to reject older files."""
    await insert_crawl(store, "dir", NOW + 9, complete=True)
    older = await store.writing(crawls.begin_file, "dir", taken_at=NOW, now=NOW + 10)
    await store.writing(crawls.end_crawl, older, complete=True, suspicious=False, now=NOW + 10)
    assert await store.writing(crawls.forget, now=LATE, limit=9) == 0
    assert await store.reading(crawls.last_taken, "dir") == NOW + 9


@on_sqlite
@pytest.mark.parametrize("limit", [1, 9])
async def test_old_discovery_events_are_deleted(store: Store, limit: int) -> None:
    resource = parse_resource("https://api.example.com/v1/weather")
    await store.writing(discovery.adopt, resource, source="request", now=NOW)
    events = [
        TermChange(at=NOW + at, kind="delisted", source="dir", before="", after="")
        for at in range(4)
    ]
    await store.writing(listings.add_events, [(resource.id, event) for event in events])
    now, forgotten = NOW + 2 + DISCOVERY_EVENTS_MS, 0
    while count := await store.writing(listings.forget_events, now=now, limit=limit):
        assert count <= limit
        forgotten += count
    assert forgotten == 2
    kept = await store.reading(listings.events, resource.id, since=0, until=now)
    assert list(kept) == events[2:]
