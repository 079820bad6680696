"""Requested endpoints are not shown in public and are deleted, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.crawls import finish_crawl
from tests.support.databases import on_sqlite
from tests.support.http_service import NOW, WEATHER, Running, configuration, forget, open_service
from tests.support.probe_rows import record_probe
from tests.support.score_rows import stored_score
from tests.support.statements import execute, fetch, open_transaction

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.directory.listing import ListedItem
from tollgauge.core.endpoint.identity import (
    Endpoint,
    Perimeter,
    Resource,
    endpoint_id,
    parse_resource,
)
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import NORMAL, Cadence
from tollgauge.core.watch import changes as rules
from tollgauge.core.watch.watch_rules import PERIOD_MS, WatchRequest
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import prune
from tollgauge.monitor import discovery, recording
from tollgauge.monitor.probing import Observation
from tollgauge.monitor.reports.trust_reports import live, preview, read_shared
from tollgauge.store import tables
from tollgauge.store.endpoints import crawls, endpoints, rated_endpoints
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes import probes
from tollgauge.store.schedule import hosts
from tollgauge.store.scores import scores
from tollgauge.store.watches import watches
from tollgauge.store.watches.watches import Watch

HOST = "weather.example"
MARKET = Perimeter(mapped=frozenset({HOST}))
DEFAMING = parse_resource(f"https://{HOST}/this-seller-steals", MARKET)
QUOTE = Quote(network="eip155:8453", asset="0xaa", amount=10, pay_to="0x" + "bb" * 20)
WEEK_MS = 7 * DAY_MS


def make_probe(at: int, *, sells: bool) -> ProbeResult:
    return ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED if sells else Outcome.NOT_FOUND,
        attribution=Attribution.TARGET,
        up=sells,
        status=402 if sells else 404,
        timings=Timings(total=80),
        quote=QUOTE if sells else None,
    )


def record_request(
    tx: Connection,
    resource: Resource,
    *,
    at: int,
    sells: bool = False,
    wildcard: bool | None = None,
) -> Endpoint:
    """Record a bought report about an unlisted resource."""
    endpoint = discovery.adopt(tx, resource, source="request", now=at)
    probe = Observation(
        endpoint=endpoint,
        result=make_probe(at, sells=sells),
        learned="GET" if sells else None,
        wildcard=wildcard,
    )
    recording.record(tx, (probe,), cadence=Cadence(), owner="one", now=at)
    stored = endpoints.get(tx, endpoint.id)
    assert stored is not None
    scores.save(tx, live(tx, stored, probe.result, cadence=NORMAL, now=at).row)
    changes.add(tx, [(stored.id, rules.delisting(at=at, source="a-source"))])
    rated_endpoints.save_better(tx, {stored.id: 3})
    return stored


def insert(table: str, **values: Any) -> sa.Insert:
    return sa.table(table, *map(sa.column, values)).insert().values(values)


@pytest_asyncio.fixture
async def running(tmp_path: Path, market_database: Callable[[Path], str]) -> AsyncIterator[Running]:
    async with open_service(
        configuration(store_url=market_database(tmp_path / "service.db"))
    ) as service:
        yield service


PAGES = (
    "/endpoint/{id}",
    "/endpoint/{id}/badge.json",
    "/endpoint/{id}/badge.svg",
    "/endpoint/{id}/feed.xml",
    "/endpoint/{id}/upgrade",
    "/trust/snapshot/{id}",
    "/trust/snapshot?resource={url}",
    "/trust/directories?resource={url}",
)
LISTS = (
    "/",
    "/leaderboard",
    "/docs",
    "/llms.txt",
    "/provider/{host}",
    "/provider/{host}/feed.xml",
    "/trust/leaderboard",
    "/trust/stats",
    "/directories",
    "/v1/x402-trust-preview",
)


async def is_shown(running: Running, resource: Resource) -> dict[str, tuple[int, str]]:
    """Everything public that could name a resource; caches grow old between two looks."""
    forget(running.app)
    answers = {}
    for path in (*PAGES, *LISTS):
        url = path.format(id=resource.id, url=resource.url, host=resource.host)
        answer = await running.get(url)
        answers[path] = (answer.status_code, answer.text)
    return answers


async def test_requested_path_is_not_listed_anywhere(running: Running) -> None:
    store = running.service.store
    before = await is_shown(running, DEFAMING)
    await store.writing(record_request, DEFAMING, at=NOW)
    while await running.service.round("score"):
        pass
    after = await is_shown(running, DEFAMING)
    assert {path: status for path, (status, _) in after.items() if path in PAGES} == dict.fromkeys(
        PAGES, 404
    )
    assert after == before
    assert not [path for path, (_, text) in after.items() if "this-seller-steals" in text]


async def test_page_of_a_requested_path_equals_that_of_an_unknown_one(running: Running) -> None:
    await running.service.store.writing(record_request, DEFAMING, at=NOW)
    nobody = parse_resource(f"https://{HOST}/nobody-ever-asked", MARKET)
    for path in PAGES:
        hidden, unknown = [
            await running.get(
                path.format(id=resource.id, url=resource.url), headers={"accept": "*/*"}
            )
            for resource in (DEFAMING, nobody)
        ]
        assert (hidden.status_code, hidden.content) == (unknown.status_code, unknown.content)
        assert dict(hidden.headers) == dict(unknown.headers)


async def test_requested_host_has_no_page(running: Running) -> None:
    elsewhere = parse_resource("https://rival.dev/steals")
    await running.service.store.writing(record_request, elsewhere, at=NOW)
    for path in ("/provider/rival.dev", "/provider/rival.dev/feed.xml"):
        assert (await running.get(path)).status_code == 404


async def test_buyer_receives_the_report_of_a_requested_path(running: Running) -> None:
    store = running.service.store
    await store.writing(record_request, DEFAMING, at=NOW)
    known = await store.reading(endpoints.get_with_host, DEFAMING.id)
    assert known is not None
    again = await store.reading(read_shared, *known, make_probe(NOW, sells=False))
    assert again is not None
    assert again.endpoint.resource == DEFAMING.url
    assert again.score.grade is not None


async def test_requested_path_is_neither_an_alternative_nor_a_sample(running: Running) -> None:
    store = running.service.store
    await store.writing(record_request, DEFAMING, at=NOW, sells=True, wildcard=False)
    known = await store.reading(rated_endpoints.get_many, [DEFAMING.id])
    assert not known[DEFAMING.id].offered
    samples = await store.reading(preview, now=NOW)
    assert DEFAMING.id not in [sample.report.endpoint.id for sample in samples]


async def test_endpoint_that_answered_402_is_public(running: Running) -> None:
    store = running.service.store
    await store.writing(record_request, DEFAMING, at=NOW, sells=True, wildcard=False)
    await store.writing(
        recording.record,
        [
            Observation(
                endpoint=await one(store), result=make_probe(NOW + 1, sells=False), learned=None
            )
        ],
        cadence=Cadence(),
        owner="one",
        now=NOW + 1,
    )
    answers = await is_shown(running, DEFAMING)
    assert {status for status, _ in answers.values()} == {200}
    for path in ("/provider/{host}", "/provider/{host}/feed.xml", "/endpoint/{id}"):
        assert "this-seller-steals" in answers[path][1], path


async def test_listed_endpoint_is_public(running: Running) -> None:
    store = running.service.store
    await store.writing(record_request, DEFAMING, at=NOW)
    crawl = await store.writing(crawls.begin_crawl, "bazaar", now=NOW)
    item = ListedItem(resource=DEFAMING)
    await store.writing(discovery.record_page, crawl, [item], next_offset=1, now=NOW)
    assert {status for status, _ in (await is_shown(running, DEFAMING)).values()} == {200}


@pytest.mark.parametrize("wildcard", [True, None])
async def test_402_of_a_wildcard_or_untested_host_does_not_publish(
    running: Running, wildcard: bool | None
) -> None:
    values = {"wildcard": wildcard, "wildcard_at": None if wildcard is None else NOW}
    await execute(
        running.service.store, schema.host.update().where(schema.host.c.host == HOST).values(values)
    )
    before = await is_shown(running, DEFAMING)
    store = running.service.store
    await store.writing(record_request, DEFAMING, at=NOW, sells=True, wildcard=wildcard)
    after = await is_shown(running, DEFAMING)
    assert {path: text for path, text in after.items() if path in PAGES} == {
        path: text for path, text in before.items() if path in PAGES
    }
    assert not [path for path, (_, text) in after.items() if "this-seller-steals" in text]
    assert (await running.get(f"/endpoint/{endpoint_id(WEATHER)}")).status_code == 200


@on_sqlite
async def test_requested_path_does_not_count_for_shared_addresses(store: Store) -> None:
    listed = Endpoint(
        id="a" * 16, resource="https://a.dev/", host="a.dev", first_seen=NOW, last_seen=NOW
    )
    await store.writing(endpoints.insert, replace(listed, quote=QUOTE))
    await store.writing(record_request, DEFAMING, at=NOW, sells=True, wildcard=True)
    address = (QUOTE.network, [QUOTE.pay_to])
    assert await store.reading(endpoints.hosts_sharing, *address) == {QUOTE.pay_to: 1}
    await store.writing(hosts.set_wildcards, {HOST: False}, at=NOW)
    assert await store.reading(endpoints.hosts_sharing, *address) == {QUOTE.pay_to: 2}


async def one(store: Store, resource: Resource = DEFAMING) -> Endpoint:
    stored = await store.reading(endpoints.get, resource.id)
    assert stored is not None
    return stored


async def prune_store(store: Store, *, now: int) -> dict[str, object]:
    return await prune.run(store, clock=lambda: now)


async def count_rows(store: Store, endpoint_id: str) -> dict[str, int]:
    """How many rows of each table belong to an endpoint."""

    def count(tx: Connection) -> dict[str, int]:
        counts = {}
        for table in schema.metadata.tables.values():
            if "endpoint_id" in table.c:
                mine = sa.select(sa.func.count()).where(table.c.endpoint_id == endpoint_id)
                counts[table.name] = tx.execute(mine).scalar_one()
        return {name: rows for name, rows in counts.items() if rows}

    return await store.reading(count)


async def test_requested_path_is_deleted_after_a_week_with_all_rows(store: Store) -> None:
    await store.writing(record_request, DEFAMING, at=NOW)
    await store.writing(
        probes.record_many,
        DEFAMING.id,
        [make_probe(NOW + n * HOUR_MS, sells=False) for n in range(70)],
    )
    await prune_store(store, now=NOW + WEEK_MS - 1)
    kept = await count_rows(store, DEFAMING.id)
    assert kept.keys() >= {"score", "probe_day", "flip", "standing", "alternative_count"}
    tally = await prune_store(store, now=NOW + WEEK_MS)
    assert tally["unlisted"] == 1
    assert await store.reading(endpoints.get, DEFAMING.id) is None
    assert await count_rows(store, DEFAMING.id) == {}
    hosts = (await fetch(store, sa.select(schema.host.c.host))).scalars().all()
    assert HOST not in hosts


async def test_probe_of_the_day_before_adoption_is_deleted_too(store: Store) -> None:
    midnight = NOW // DAY_MS * DAY_MS
    await store.writing(record_request, DEFAMING, at=midnight)
    await store.writing(record_probe, DEFAMING.id, make_probe(midnight - 5, sells=False))
    await prune_store(store, now=midnight + WEEK_MS)
    assert await count_rows(store, DEFAMING.id) == {}
    assert await store.reading(endpoints.get, DEFAMING.id) is None


@on_sqlite
async def test_selling_listed_or_new_endpoints_are_kept(store: Store) -> None:
    kept = [parse_resource(f"https://{name}.dev/a") for name in ("sells", "listed", "gone", "new")]
    sells, listed, gone, young = kept
    await store.writing(record_request, sells, at=NOW, sells=True, wildcard=False)
    await store.writing(record_request, young, at=NOW + 1)
    crawl = await store.writing(crawls.begin_crawl, "bazaar", now=NOW)
    items = [ListedItem(resource=resource) for resource in (listed, gone)]
    await store.writing(discovery.record_page, crawl, items, next_offset=2, now=NOW)
    await store.writing(finish_crawl, crawl, complete=True, now=NOW)
    crawl = await store.writing(crawls.begin_crawl, "bazaar", now=NOW + 1)
    await store.writing(discovery.record_page, crawl, items[:1], next_offset=1, now=NOW + 1)
    await store.writing(finish_crawl, crawl, complete=True, now=NOW + 1)
    tally = await prune_store(store, now=NOW + WEEK_MS)
    assert tally["unlisted"] == 0
    endpoints_by_id = await store.reading(endpoints.get_many, [row.id for row in kept])
    assert endpoints_by_id.keys() == {row.id for row in kept}


async def test_requested_path_of_a_wildcard_host_is_deleted(store: Store) -> None:
    await store.writing(record_request, DEFAMING, at=NOW, sells=True, wildcard=True)
    untried = parse_resource("https://untried.dev/a")
    await store.writing(record_request, untried, at=NOW, sells=True)
    await prune_store(store, now=NOW + WEEK_MS)
    assert await store.reading(endpoints.get, DEFAMING.id) is None
    assert await store.reading(endpoints.get, untried.id) is not None, "it answered 402"


@on_sqlite
async def test_watched_endpoint_is_kept(store: Store) -> None:
    await store.writing(record_request, DEFAMING, at=NOW)
    watch = Watch(
        id="wat_1",
        secret_hash="0" * 64,
        endpoint_id=DEFAMING.id,
        created_at=NOW,
        expires_at=NOW + PERIOD_MS,
        watch_request=WatchRequest(),
    )
    await store.writing(watches.add, watch)
    await prune_store(store, now=NOW + PERIOD_MS + WEEK_MS)
    assert await store.reading(endpoints.get, DEFAMING.id) is not None
    await store.writing(lambda tx: tx.execute(watches.watch.delete()))
    await prune_store(store, now=NOW + PERIOD_MS + WEEK_MS)
    assert await store.reading(endpoints.get, DEFAMING.id) is None


async def test_watch_bought_during_deletion_keeps_its_endpoint(
    open_store: Callable[[], Store],
) -> None:
    buyer, worker = open_store(), open_store()
    await buyer.writing(record_request, DEFAMING, at=NOW)
    watch = Watch(
        id="wat_1",
        secret_hash="0" * 64,
        endpoint_id=DEFAMING.id,
        created_at=NOW,
        expires_at=NOW + PERIOD_MS,
        watch_request=WatchRequest(),
    )
    async with open_transaction(buyer, writing=True) as run:
        await run(discovery.adopt, DEFAMING, source="request", now=NOW + WEEK_MS)
        forgetting = asyncio.create_task(
            worker.writing(
                tables.forget_never_public, now=NOW + WEEK_MS, limit=prune.ENDPOINTS_BATCH
            )
        )
        await asyncio.wait((forgetting,), timeout=0.2)  # time enough to do wrong
        await run(watches.add, watch)
    assert await forgetting == 0
    assert await buyer.reading(endpoints.get, DEFAMING.id) is not None


async def test_requested_paths_are_deleted_in_batches(store: Store) -> None:
    def many(tx: Connection) -> None:
        for number in range(prune.ENDPOINTS_BATCH + 1):
            asked = parse_resource(f"https://{HOST}/steals/{number}", MARKET)
            discovery.adopt(tx, asked, source="request", now=NOW)

    await store.writing(many)
    tallies = [await prune_store(store, now=NOW + WEEK_MS) for _ in range(2)]
    assert [(tally["unlisted"], tally["busy"]) for tally in tallies] == [
        (prune.ENDPOINTS_BATCH, True),
        (1, False),
    ]


@on_sqlite
async def test_probe_of_a_deleted_endpoint_does_not_affect_other_results(
    store: Store,
) -> None:
    lost = await store.writing(record_request, DEFAMING, at=NOW)
    other = await store.writing(
        record_request, parse_resource("https://other.dev/a"), at=NOW + DAY_MS, sells=True
    )
    await prune_store(store, now=NOW + WEEK_MS)
    at = NOW + WEEK_MS + MINUTE_MS
    both = [
        Observation(endpoint=endpoint, result=make_probe(at, sells=True), learned="GET")
        for endpoint in (lost, other)
    ]
    await store.writing(recording.record, both, cadence=Cadence(), owner="one", now=at)
    assert await store.reading(probes.history, other.id, since=at - 1, until=at)
    assert await count_rows(store, lost.id) == {}


@on_sqlite
async def test_score_and_count_of_a_deleted_endpoint_are_dropped(store: Store) -> None:
    await store.writing(record_request, DEFAMING, at=NOW)
    await prune_store(store, now=NOW + WEEK_MS)
    assert await store.writing(scores.save, stored_score(DEFAMING.id, 500)) is False
    await store.writing(rated_endpoints.save_better, {DEFAMING.id: 1})
    assert await count_rows(store, DEFAMING.id) == {}


@on_sqlite
async def test_deleted_path_can_be_requested_again(store: Store) -> None:
    await store.writing(record_request, DEFAMING, at=NOW)
    await prune_store(store, now=NOW + WEEK_MS)
    again = await store.writing(record_request, DEFAMING, at=NOW + WEEK_MS + 1)
    assert again.first_seen == NOW + WEEK_MS + 1
    assert await store.reading(rated_endpoints.get_public, DEFAMING.id) is None
