"""Crawls, listings and discovery events on real databases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa
from msgspec.structs import replace as replace_statement
from tests.support.crawls import CENT, NOW, TWO, crawl, events, finish_crawl, item, load_endpoint
from tests.support.databases import on_both, on_sqlite
from tests.support.killable_worker import Crash, KillableStore, Worker
from tests.support.statements import execute, fetch

from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.directory.entry_record import CatalogueStatus, EntryStatement
from tollgauge.core.directory.listing import ListedItem
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.endpoint.terms import UnpricedTerms
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery
from tollgauge.store.endpoints import crawls, endpoints, listings
from tollgauge.store.endpoints.crawls import Crawl
from tollgauge.store.endpoints.listings import StoredListing
from tollgauge.store.probes import change_rows as changes_rows

pytestmark = on_sqlite

OpenStore = Callable[[], Store]


async def test_listed_resource_becomes_an_endpoint(store: Store) -> None:
    one = item(
        "/p?b=1",
        method="POST",
        body=b"{}",
        service_name="Name",
        description="Text",
        tags=("t",),
    )
    tally, gone = await crawl(store, "bazaar", one)
    assert (tally.new, tally.seen, tally.kinds.total(), gone) == (1, 1, 1, 0)
    assert dict(tally.kinds) == {"listed": 1}
    assert await load_endpoint(store, one) == Endpoint(
        id=one.resource.id,
        resource="https://a.com/p",
        host="a.com",
        query="b=1",
        method="POST",
        body=b"{}",
        first_seen=NOW,
        last_seen=NOW,
        next_due=NOW,
        service_name="Name",
        description="Text",
        tags=("t",),
        sources=("bazaar",),
        quote=CENT,
        quote_at=NOW,
    )
    assert await events(store, one) == [("listed", "bazaar", "", "")]


async def test_page_recorded_twice_changes_nothing(store: Store) -> None:
    one, two = item("/1"), item("/2")
    begun = await store.writing(crawls.begin_crawl, "bazaar", now=NOW)
    for expected in (2, 0):
        tally = await store.writing(
            discovery.record_page, begun, [one, two], next_offset=2, now=NOW + 2 - expected
        )
        assert (tally.new, tally.seen, tally.kinds.total()) == (expected, 2, expected)
    assert (await load_endpoint(store, one)).last_seen == NOW


async def test_duplicate_resource_in_a_crawl_counts_once_with_its_first_entry(
    store: Store,
) -> None:
    one = item("/?a=1")
    again = item("/?a=2", quote=TWO)
    begun = await store.writing(crawls.begin_crawl, "bazaar", now=NOW)
    for page in ([one, again], [again]):
        await store.writing(discovery.record_page, begun, page, next_offset=1, now=NOW)
    row = await load_endpoint(store, one)
    assert (row.query, row.quote) == ("a=1", CENT)
    assert await events(store, one) == [("listed", "bazaar", "", "")]
    await crawl(store, "bazaar", one, again, now=NOW + 1)
    assert await events(store, one) == [("listed", "bazaar", "", "")]


async def test_first_probes_are_spread_over_the_cadence_deterministically(store: Store) -> None:
    items = [item(f"/{i}") for i in range(300)]
    await crawl(store, "bazaar", *items, spread_ms=30 * MINUTE_MS)
    due = [(await load_endpoint(store, one)).next_due - NOW for one in items[:50]]
    assert all(0 <= one < 30 * MINUTE_MS for one in due)
    assert len({one // (5 * MINUTE_MS) for one in due}) == 6
    ids = [int(one.resource.id[:8], 16) * 30 * MINUTE_MS >> 32 for one in items[:50]]
    assert due == ids


async def test_interrupted_crawl_is_resumed_within_a_day(store: Store) -> None:
    begun = await store.writing(crawls.begin_crawl, "bazaar", now=NOW)
    assert (begun.offset, begun.started) == (0, NOW)
    await store.writing(discovery.record_page, begun, [item()], next_offset=100, now=NOW)
    resumed = await store.writing(crawls.begin_crawl, "bazaar", now=NOW + DAY_MS - 1)
    other = await store.writing(crawls.begin_crawl, "x402scan", now=NOW)
    fresh = await store.writing(crawls.begin_crawl, "bazaar", now=NOW + DAY_MS)
    assert resumed == Crawl(id=begun.id, source="bazaar", offset=100, started=NOW)
    assert (other.offset, fresh.offset) == (0, 0)
    assert len({begun.id, other.id, fresh.id}) == 3


@on_both
async def test_only_a_complete_crawl_updates_the_time_of_the_source(store: Store) -> None:
    await crawl(store, "bazaar", now=NOW, complete=True)
    await crawl(store, "bazaar", now=NOW + 5, complete=False)
    ended = sa.select(schema.crawl.c.finished_at).where(schema.crawl.c.complete.is_(True))
    assert list((await fetch(store, ended)).scalars()) == [NOW]


async def test_unreachable_source_delists_nothing(store: Store) -> None:
    one = item()
    await crawl(store, "bazaar", one)
    assert (await crawl(store, "bazaar", complete=False, now=NOW + 1))[1] == 0
    await store.writing(crawls.begin_crawl, "bazaar", now=NOW + 2)
    assert (await load_endpoint(store, one)).status is Listing.LISTED
    assert await events(store, one) == [("listed", "bazaar", "", "")]


@on_both
async def test_endpoint_is_delisted_when_its_last_source_drops_it_and_relisted_later(
    store: Store,
) -> None:
    one, kept = item("/1"), item("/kept")
    await crawl(store, "bazaar", one, kept)
    await crawl(store, "x402scan", one)
    assert (await load_endpoint(store, one)).sources == ("bazaar", "x402scan")
    assert (await crawl(store, "bazaar", kept, now=NOW + 1))[1] == 0
    row = await load_endpoint(store, one)
    assert (row.status, row.sources) == (Listing.LISTED, ("x402scan",))
    assert (await crawl(store, "x402scan", now=NOW + 2))[1] == 1
    row = await load_endpoint(store, one)
    assert (row.status, row.sources) == (Listing.DELISTED, ())
    assert (await crawl(store, "x402scan", now=NOW + 3))[1] == 0
    await store.writing(endpoints.update, replace(row, next_due=NOW + DAY_MS))
    await crawl(store, "bazaar", one, kept, now=NOW + 4, spread_ms=MINUTE_MS)
    row = await load_endpoint(store, one)
    assert (row.status, row.sources, row.first_seen) == (Listing.LISTED, ("bazaar",), NOW)
    assert row.next_due < NOW + 4 + MINUTE_MS
    assert await events(store, one) == [
        ("listed", "bazaar", "", ""),
        ("delisted", "x402scan", "", ""),
        ("relisted", "bazaar", "", ""),
    ]
    assert (await load_endpoint(store, kept)).sources == ("bazaar",)


async def test_delisting_and_relisting_require_a_new_score(store: Store) -> None:
    one = item()
    owed = []
    for now, items in ((NOW, (one,)), (NOW + 1, (one,)), (NOW + 2, ()), (NOW + 3, (one,))):
        await crawl(store, "bazaar", *items, now=now)
        owed.append(
            len(await store.writing(endpoints.claim_dirty, now=now, limit=9, max_age_ms=DAY_MS))
        )
        await execute(store, schema.endpoint.update().values(score_due=NOW + DAY_MS))
    assert owed == [1, 0, 1, 1]


async def test_new_terms_in_a_listing_are_events_of_its_source(store: Store) -> None:
    one = item()
    await crawl(store, "bazaar", one)
    moved = replace(one, quote=replace(TWO, pay_to="0xcc"))
    tally, _ = await crawl(store, "bazaar", moved, now=NOW + 5)
    assert dict(tally.kinds) == {"price-changed": 1, "payto-changed": 1}
    await crawl(store, "bazaar", replace(one, quote=None), now=NOW + 6)
    assert await events(store, one) == [
        ("listed", "bazaar", "", ""),
        ("price-changed", "bazaar", "10000", "20000"),
        ("payto-changed", "bazaar", "0xbb", "0xcc"),
    ]
    row = await load_endpoint(store, one)
    assert (row.quote, row.quote_at) == (moved.quote, NOW + 5)


async def test_different_price_after_a_gap_is_a_change(store: Store) -> None:
    one = item()
    await crawl(store, "bazaar", one)
    await crawl(store, "bazaar", replace(one, quote=None), now=NOW + 1)
    await crawl(store, "bazaar", one, now=NOW + 2)
    await crawl(store, "bazaar", replace(one, quote=None), now=NOW + 3)
    await crawl(store, "bazaar", replace(one, quote=TWO), now=NOW + 4)
    assert await events(store, one) == [
        ("listed", "bazaar", "", ""),
        ("price-changed", "bazaar", "10000", "20000"),
    ]


@on_both
async def test_new_payee_without_an_amount_changes_event_terms_and_endpoint(
    store: Store,
) -> None:
    one = item()
    unpriced = UnpricedTerms(network=CENT.network, asset=CENT.asset, pay_to="0xcc")
    await crawl(store, "bazaar", one)
    await crawl(store, "bazaar", replace(one, quote=None, unpriced=unpriced), now=NOW + 1)
    await crawl(store, "bazaar", replace(one, quote=replace(TWO, pay_to="0xcc")), now=NOW + 2)
    assert await events(store, one) == [
        ("listed", "bazaar", "", ""),
        ("payto-changed", "bazaar", "0xbb", "0xcc"),
        ("price-changed", "bazaar", "10000", "20000"),
    ]
    flips = await fetch(store, sa.select(changes_rows.change.c.type, changes_rows.change.c.at))
    assert sorted(tuple(row) for row in flips) == [
        ("payto_change", NOW + 1),
        ("price_change", NOW + 2),
    ]


async def test_entries_of_a_file_have_its_date_and_are_due_now(store: Store) -> None:
    one, two = item("/1"), item("/2")
    for taken_at, items in ((NOW - 9 * DAY_MS, (one, two)), (NOW - 8 * DAY_MS, (one,))):
        begun = await store.writing(crawls.begin_file, "dir", taken_at=taken_at, now=NOW)
        await store.writing(
            discovery.record_page, begun, items, next_offset=2, now=NOW, spread_ms=0
        )
        await store.writing(finish_crawl, begun, complete=True, now=NOW)
    row = await load_endpoint(store, two)
    assert (row.first_seen, row.next_due, row.quote_at) == (NOW, NOW, NOW - 9 * DAY_MS)
    events = await store.reading(listings.events, two.resource.id, since=0, until=NOW)
    assert [(event.kind, NOW - event.at) for event in events] == [
        ("listed", 9 * DAY_MS),
        ("delisted", 8 * DAY_MS),
    ]


async def test_file_is_read_from_its_start_after_an_interrupted_crawl(store: Store) -> None:
    broken = await store.writing(crawls.begin_crawl, "dir", now=NOW)
    await store.writing(discovery.record_page, broken, [item()], next_offset=100, now=NOW)
    begun = await store.writing(crawls.begin_file, "dir", taken_at=NOW + DAY_MS, now=NOW)
    last = await store.writing(crawls.last_taken, "dir")
    assert (begun.offset, begun.id > broken.id, begun.taken_at, last) == (0, True, NOW, NOW)


async def test_first_source_has_priority_and_others_fill_gaps(store: Store) -> None:
    first = item(service_name="First", method="GET")
    second = item(service_name="Second", description="Only here", method="POST", quote=TWO)
    await crawl(store, "bazaar", first)
    await crawl(store, "x402scan", second, now=NOW + 1)
    row = await load_endpoint(store, first)
    assert (row.service_name, row.description, row.method) == ("First", "Only here", "GET")
    assert row.quote == CENT
    assert await events(store, first) == [("listed", "bazaar", "", "")]
    await crawl(store, "bazaar", now=NOW + 2)
    await crawl(store, "x402scan", second, now=NOW + 3)
    row = await load_endpoint(store, first)
    assert (row.service_name, row.method, row.quote) == ("Second", "POST", TWO)


async def test_adopted_endpoint_is_never_delisted_before_a_directory_listed_it(
    store: Store,
) -> None:
    one = item()
    adopted = await store.writing(discovery.adopt, one.resource, source="request", now=NOW)
    again = await store.writing(discovery.adopt, one.resource, source="request", now=NOW + 9)
    assert adopted == again == await load_endpoint(store, one)
    assert (adopted.sources, adopted.status) == (("request",), Listing.UNLISTED)
    assert NOW <= adopted.next_due < NOW + 30 * MINUTE_MS
    assert (await crawl(store, "request"))[1] == 0
    assert (await crawl(store, "bazaar"))[1] == 0
    assert await events(store, one) == []
    await crawl(store, "bazaar", one, now=NOW + 1)
    assert (await load_endpoint(store, one)).sources == ("bazaar",)
    assert (await crawl(store, "bazaar", now=NOW + 2))[1] == 1
    assert [event[0] for event in await events(store, one)] == ["listed", "delisted"]


@on_both
async def test_crawl_killed_while_delisting_delists_the_rest_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endpoints are delisted in batches, so that other writers are not blocked."""
    most = 20
    monkeypatch.setattr(discovery, "REMOVAL_BATCH", most)
    gone = [item(f"/{number}") for number in range(2 * most + 1)]
    new = [item(f"/new/{number}") for number in range(len(gone))]
    await crawl(store, "dir", *gone)
    begun = await store.writing(crawls.begin_crawl, "dir", now=NOW + 1)
    await store.writing(discovery.record_page, begun, new, next_offset=1, now=NOW + 1)
    for dies_at, left in ((3, most + 1), (3, 1), (5, 0)):
        killed = KillableStore(store, Worker(dies_at=dies_at))
        with pytest.raises(Crash):
            await discovery.end_crawl(killed, begun, whole=True, now=NOW + 1)
        assert await store.reading(crawls.count_listed) == {"dir": left + len(new)}
    resumed = await store.writing(crawls.begin_crawl, "dir", now=NOW + 2)
    assert resumed == replace(begun, offset=1)
    assert (await discovery.end_crawl(store, resumed, whole=True, now=NOW + 2)).complete
    counts = await store.reading(endpoints.counts)
    assert (counts["listed"], counts["delisted"]) == (len(new), len(gone))
    delisted = sa.select(sa.func.count()).where(schema.discovery_event.c.event == "delisted")
    assert (await fetch(store, delisted)).scalar_one() == len(gone)


@on_both
async def test_concurrent_crawls_of_two_sources_merge_into_one_endpoint(
    store: Store, open_store: OpenStore
) -> None:
    items = [item(f"/{i}", host=f"h{i % 3}.com") for i in range(40)]

    async def read(source: str, order: list[ListedItem]) -> None:
        own = open_store()
        for start in range(0, len(order), 10):
            begun = await own.writing(crawls.begin_crawl, source, now=NOW)
            await own.writing(
                discovery.record_page,
                begun,
                order[start : start + 10],
                next_offset=start + 10,
                now=NOW,
            )
        assert await own.writing(finish_crawl, begun, complete=True, now=NOW) == 0

    async with asyncio.TaskGroup() as group:
        group.create_task(read("bazaar", items))
        group.create_task(read("x402scan", items[::-1]))
    for one in items:
        assert sorted((await load_endpoint(store, one)).sources) == ["bazaar", "x402scan"]
        assert len(await events(store, one)) == 1
    number = (
        await fetch(store, sa.select(sa.func.count()).select_from(schema.listing))
    ).scalar_one()
    assert number == 80


@on_both
async def test_unchanged_listing_only_updates_the_time_it_was_seen(
    open_store: OpenStore,
) -> None:
    store = open_store()
    one = item("/one", description="all about a", tags=("a", "b"), method="POST", body=b"{}")
    other = item("/other", quote=None)
    await crawl(store, "dir", one, other)
    mark = sa.update(schema.endpoint).values(service_name="as a probe left it", score_due=NOW * 2)
    await execute(store, mark)
    tally, gone = await crawl(store, "dir", one, other, now=NOW + 1)
    assert (tally.new, tally.seen, tally.kinds, gone) == (0, 2, {}, 0)
    for listed, quote_at in ((one, NOW + 1), (other, None)):
        endpoint = await load_endpoint(store, listed)
        assert (endpoint.last_seen, endpoint.quote_at) == (NOW + 1, quote_at)
        assert endpoint.service_name == "as a probe left it"
    rows = await fetch(store, sa.select(schema.listing))
    assert {(row.first_seen, row.last_seen) for row in rows} == {(NOW, NOW + 1)}
    await crawl(store, "dir", replace(one, description="news of a"), other, now=NOW + 2)
    assert (await load_endpoint(store, one)).description == "news of a"


async def entry(store: Store, one: ListedItem, source: str = "dir") -> StoredListing:
    found = await store.reading(listings.of_source, source, [one.resource.id])
    return found[one.resource.id]


@on_both
async def test_entry_of_a_directory_is_kept_through_change_disappearance_and_return(
    open_store: OpenStore,
) -> None:
    store = open_store()
    called = EntryStatement(status=CatalogueStatus.SUCCESS, calls=3, last_called_at=NOW - DAY_MS)
    one, other = item("/one", scheme="exact", statement=called), item("/other")
    await crawl(store, "dir", one, other)
    first = await entry(store, one)
    assert (first.terms, first.scheme, first.statement) == (CENT, "exact", called)
    assert await entry(store, other) == replace(
        first, endpoint_id=other.resource.id, scheme="", statement=None
    )

    changed = replace(one, quote=TWO, statement=replace_statement(called, calls=4))
    await crawl(store, "dir", changed, other, now=NOW + 1)
    seen = await entry(store, one)
    assert (seen.first_seen, seen.last_seen, seen.terms) == (NOW, NOW + 1, TWO)
    assert seen.statement is not None
    assert seen.statement.calls == 4

    await crawl(store, "dir", other, now=NOW + 2)
    dropped = await entry(store, one)
    assert dropped == replace(seen, delisted_at=NOW + 2)
    (listed,) = await store.reading(listings.dropped_last, "dir", limit=5)
    assert (listed.listing, listed.resource) == (dropped, "https://a.com/one")

    await crawl(store, "dir", changed, other, now=NOW + 3)
    returned = await entry(store, one)
    assert (returned.first_seen, returned.last_seen) == (NOW, NOW + 3)
    assert returned.delisted_at is None
    assert await store.reading(listings.dropped_last, "dir", limit=5) == ()


@on_both
async def test_directories_that_list_or_drop_a_watched_endpoint_are_changes(
    open_store: OpenStore,
) -> None:
    store = open_store()
    one, unwatched, kept = item("/one"), item("/two"), item("/kept")
    await crawl(store, "cdp", one, unwatched, kept)
    watched = sa.update(schema.endpoint).where(schema.endpoint.c.id == one.resource.id)
    await execute(store, watched.values(watched_until=NOW + DAY_MS))
    for now, listed in ((1, True), (2, True), (3, False), (4, False), (5, True)):
        items = (one, unwatched, kept) if listed else (kept,)
        await crawl(store, "scan", *items, now=NOW + now)
    await crawl(store, "scan", one, kept, now=NOW + 2 * DAY_MS)
    found = await store.reading(changes_rows.public, host="a.com")
    assert [
        (row.change.type, row.change.at - NOW, row.change.evidence["source"])
        for row in reversed(found)
    ] == [("listed", 1, "scan"), ("delisted", 3, "scan"), ("listed", 5, "scan")]
    assert {row.endpoint_id for row in found} == {one.resource.id}


@on_both
async def test_last_directory_that_drops_a_watched_endpoint_is_a_second_change(
    store: Store,
) -> None:
    one, kept = item("/one"), item("/kept")
    await crawl(store, "cdp", one, kept)
    await execute(store, sa.update(schema.endpoint).values(watched_until=NOW + DAY_MS))
    await crawl(store, "cdp", kept, now=NOW + 1)
    found = await store.reading(changes_rows.public, host="a.com")
    assert [row.change.type for row in reversed(found)] == ["delisted", "delisting"]


async def test_crawls_count_entries_skips_and_duplicates(open_store: OpenStore) -> None:
    store = open_store()
    one, two = item("/1"), item("/2")
    begun = await store.writing(crawls.begin_crawl, "dir", now=NOW)
    await store.writing(
        discovery.record_page, begun, [one], next_offset=3, now=NOW, skipped=["free"]
    )
    resumed = await store.writing(crawls.begin_crawl, "dir", now=NOW + 1)
    assert await store.reading(crawls.latest_complete) == {}
    await store.writing(discovery.record_page, resumed, [one, two], next_offset=5, now=NOW)
    await store.writing(finish_crawl, resumed, complete=True, now=NOW + 2)
    ended = (await store.reading(crawls.latest_complete))["dir"]
    assert (ended.offset, ended.skipped, ended.listed, ended.duplicates) == (5, 1, 2, 2)
    assert ended.finished_at == NOW + 2
