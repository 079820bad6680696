"""Watches, changes and the outbox on both databases: cursors, leases, payments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection
from tests.support.crawls import finish_crawl
from tests.support.databases import on_sqlite
from tests.support.statements import execute, fetch, open_transaction

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory.listing import ListedItem, read_item
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.watch.changes import delisting
from tollgauge.core.watch.watch_rules import (
    CHANGES_MS,
    PERIOD_MS,
    READABLE_MS,
    DestinationKind,
    WatchRequest,
    WatchState,
)
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery, terms, watched_changes
from tollgauge.store.endpoints import crawls, endpoints
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.watches import delivery_queue, outbox, watch_payments, watches
from tollgauge.store.watches.delivery_queue import DeliveryResult
from tollgauge.store.watches.outbox import Alert
from tollgauge.store.watches.watches import Destination, Watch, destination

NOW = 1_795_000_000_000
RESOURCE = parse_resource("https://api.example.com/v1/weather")


def make_watch(number: int, **more: Any) -> Watch:
    return Watch(
        id=f"wat_{number}",
        secret_hash=f"{number:064x}",
        endpoint_id=RESOURCE.id,
        created_at=NOW,
        expires_at=NOW + PERIOD_MS,
        **more,
    )


def target(number: int, watch: int = 1) -> Destination:
    return Destination(
        id=f"dst_{number}",
        watch_id=f"wat_{watch}",
        kind=DestinationKind.JSON,
        sealed_url=b"sealed",
        masked="https://…",
        created_at=NOW,
    )


def alert(number: int, to: int = 1) -> Alert:
    return Alert(
        id=f"dlv_{number}",
        watch_id="wat_1",
        destination_id=f"dst_{to}",
        event_id=f"evt_{number}",
        type="delisting",
        body="{}",
        created_at=NOW,
    )


async def start_watch(store: Store, *, targets: int = 1) -> None:
    """An active watch of one endpoint."""
    await store.writing(discovery.adopt, RESOURCE, source="request", now=NOW)
    kept = [target(number) for number in range(1, targets + 1)]
    await store.writing(watch_payments.create, make_watch(1), kept, payment_id="pay_1")
    await execute(store, watches.watch.update().values(state=WatchState.ACTIVE.value))
    await execute(store, watch_payments.watch_payment.update().values(applied=True))


async def claim(store: Store, owner: str, *, now: int = NOW, limit: int = 9) -> list[Any]:
    claimed = await store.writing(
        delivery_queue.claim, owner=owner, now=now, limit=limit, failing=limit, lease_ms=60_000
    )
    return list(claimed)


async def test_destination_receives_one_delivery_at_a_time(store: Store) -> None:
    await start_watch(store, targets=2)
    await store.writing(outbox.put, [alert(1), alert(2), alert(3, to=2)], now=NOW)
    await store.writing(outbox.put, [alert(1)], now=NOW)
    first = await claim(store, "a")
    assert sorted(row.destination.id for row in first) == ["dst_1", "dst_2"]
    assert await claim(store, "b") == []
    sent = [DeliveryResult(claimed=row, state=outbox.SENT, at=NOW) for row in first]
    assert len(await store.writing(delivery_queue.conclude, sent, owner="a")) == 2
    (left,) = await claim(store, "b")
    assert left.delivery.alert.id in {"dlv_1", "dlv_2"}
    assert (await store.reading(outbox.depth)).queued == 1


async def test_concurrent_workers_claim_each_delivery_once(
    database: str, open_store: Callable[[], Store]
) -> None:
    # SQLite's lock is not fair: among eight, one may wait for longer than the time-out.
    workers = 4 if database.startswith("sqlite") else 8
    stores = [open_store() for _ in range(workers)]
    await start_watch(stores[0], targets=400)
    await stores[0].writing(outbox.put, [alert(n, to=n) for n in range(1, 401)], now=NOW)

    async def work(number: int) -> list[str]:
        taken: list[str] = []
        while claimed := await claim(stores[number], str(number), limit=4):
            taken += [delivery.delivery.alert.id for delivery in claimed]
            sent = [
                DeliveryResult(claimed=delivery, state=outbox.SENT, at=NOW) for delivery in claimed
            ]
            assert len(
                await stores[number].writing(delivery_queue.conclude, sent, owner=str(number))
            ) == len(claimed)
        return taken

    taken = [id_ for ids in await asyncio.gather(*map(work, range(workers))) for id_ in ids]
    assert sorted(taken) == sorted(f"dlv_{n}" for n in range(1, 401))


async def test_healthy_destinations_come_first_and_failing_ones_have_a_share(store: Store) -> None:
    await start_watch(store, targets=8)
    bad = destination.c.id.in_([f"dst_{n}" for n in range(1, 5)])
    await execute(store, destination.update().where(bad).values(failures=2))
    await store.writing(outbox.put, [alert(n, to=n) for n in range(1, 9)], now=NOW)
    claimed = await store.writing(
        delivery_queue.claim, owner="a", now=NOW, limit=6, failing=1, lease_ms=60_000
    )
    assert [delivery.destination.failures > 0 for delivery in claimed] == [False] * 4 + [True]


@on_sqlite
async def test_unpaid_watch_sends_nothing(store: Store) -> None:
    await start_watch(store)
    await execute(store, watches.watch.update().values(state=WatchState.PENDING.value))
    await store.writing(outbox.put, [alert(1)], now=NOW)
    assert await claim(store, "a") == []


async def test_payment_creates_one_watch(store: Store) -> None:
    await store.writing(discovery.adopt, RESOURCE, source="request", now=NOW)
    await store.writing(watch_payments.create, make_watch(1), [target(1)], payment_id="pay_1")
    await store.writing(watch_payments.create, make_watch(2), [target(2, 2)], payment_id="pay_1")
    assert [watch.id for watch in await store.writing(watches.latest, limit=9)] == ["wat_2"]
    assert await store.writing(watches.load_destinations, ["wat_1"]) == {"wat_1": ()}


async def test_cursor_does_not_skip_an_event_committed_late(
    open_store: Callable[[], Store],
) -> None:
    """Two processes record changes of one endpoint concurrently: the second waits for the first."""
    one, two = open_store(), open_store()
    await start_watch(one)
    order: list[str] = []

    def see_again(tx: Connection) -> None:
        this = schema.endpoint.c.id == RESOURCE.id
        tx.execute(schema.endpoint.update().where(this).values(last_seen=NOW))

    async def write(store: Store, name: str, *, pause: float) -> None:
        async with open_transaction(store, writing=True) as run:
            await run(see_again)
            order.append(name)
            await run(changes.add, [(RESOURCE.id, delisting(at=NOW + 1, source=name))])
            await asyncio.sleep(pause)

    first = asyncio.create_task(write(one, "first", pause=0.3))
    await asyncio.sleep(0.1)
    await write(two, "second", pause=0)
    await first
    assert order == ["first", "second"]
    heard = await one.reading(watched_changes.of_watch, make_watch(1), after=0, limit=9)
    assert [change.change.evidence["source"] for change in heard] == ["first", "second"]


@on_sqlite
async def test_watch_reports_changes_of_its_endpoint_in_its_paid_time(store: Store) -> None:
    await start_watch(store)
    change = delisting(at=NOW + 1, source="cdp")
    down = replace(change, type="liveness_down", sensitivity=3)
    for watched in (
        replace(change, at=NOW),
        change,
        down,
        replace(down, sensitivity=2),
        replace(change, at=NOW + PERIOD_MS + 1),
    ):
        await store.writing(changes.add, [(RESOURCE.id, watched)])
    heard = await store.writing(watched_changes.of_watch, make_watch(1), after=0, limit=9)
    assert [(row.change.type, row.change.sensitivity) for row in heard] == [
        ("delisting", None),
        ("liveness_down", 2),
    ]
    deaf = make_watch(1, watch_request=WatchRequest(events=("price_change",)))
    assert await store.writing(watched_changes.of_watch, deaf, after=0, limit=9) == ()
    assert (
        await store.writing(watched_changes.of_watch, make_watch(1), after=heard[0].id, limit=9)
        == heard[1:]
    )


async def test_ended_watches_and_old_deliveries_are_deleted(store: Store) -> None:
    await start_watch(store)
    await store.writing(outbox.put, [alert(1)], now=NOW)
    await store.writing(outbox.drop, "wat_1", now=NOW)
    stored = await store.writing(watches.get, "wat_1")
    assert stored is not None
    assert await store.writing(watches.end, stored, WatchState.CANCELLED, now=NOW)
    gone = NOW + PERIOD_MS + READABLE_MS
    assert await store.writing(watch_payments.forget, now=gone, limit=9) == 0
    assert await store.writing(outbox.forget, now=NOW + 29 * DAY_MS, limit=9) == 0
    assert await store.writing(outbox.forget, now=NOW + 31 * DAY_MS, limit=9) == 1
    assert await store.writing(watch_payments.forget, now=gone + 1, limit=9) == 1
    assert await store.writing(watches.get, "wat_1") is None


@pytest.mark.parametrize("listed", [True, False])
async def test_crawl_reports_changed_terms_until_a_probe_has_seen_them(
    store: Store, listed: bool
) -> None:
    def item(amount: str) -> ListedItem:
        raw = {
            "resource": RESOURCE.url,
            "x402Version": 1,
            "accepts": [
                {
                    "scheme": "exact",
                    "network": "base",
                    "maxAmountRequired": amount,
                    "asset": "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
                    "payTo": "0x" + "aa" * 20,
                }
            ],
        }
        listing = read_item(raw)
        assert isinstance(listing, ListedItem)
        return listing

    for number, amount in enumerate(("100", "100", "200")):
        at = NOW + number * DAY_MS
        crawl = await store.writing(crawls.begin_crawl, "cdp", now=at)
        await store.writing(discovery.record_page, crawl, [item(amount)], next_offset=1, now=at)
        await store.writing(finish_crawl, crawl, complete=True, now=at)
        endpoint = await store.writing(endpoints.get, RESOURCE.id)
        assert isinstance(endpoint, Endpoint)
        if not listed and number == 0 and endpoint.quote is not None:
            seen = replace(endpoint.quote, amount=150)
            await store.writing(terms.observe_quotes, {endpoint.id: (seen, at)})
    incidents = await store.reading(changes.public, endpoint_id=RESOURCE.id)
    assert [incident.change.type for incident in incidents] == (["price_change"] if listed else [])


async def test_old_changes_are_deleted_unless_a_readable_watch_reports_them(store: Store) -> None:
    await start_watch(store)
    other = await store.writing(
        discovery.adopt, parse_resource("https://other.example.com/a"), source="request", now=NOW
    )
    for endpoint_id in (RESOURCE.id, other.id):
        for at in (NOW - 1, NOW + 1, NOW + 2):
            change = delisting(at=at, source="dir")
            await store.writing(changes.add, [(endpoint_id, change)])
    newest = await store.reading(changes.newest)
    later = NOW + 3 + CHANGES_MS
    assert await store.writing(changes.forget, now=later, limit=9) == 0  # not dispatched yet
    waiting = await store.writing(changes.lock_undispatched, limit=9)
    await store.writing(changes.mark_dispatched, [one.id for one in waiting], now=NOW)
    assert await store.writing(changes.forget, now=NOW + CHANGES_MS, limit=9) == 2
    assert [await store.writing(changes.forget, now=later, limit=1) for _ in range(3)] == [1, 0, 0]
    left = (await fetch(store, changes.change.select().order_by(changes.change.c.id))).all()
    assert [(row.endpoint_id, row.at) for row in left] == [
        (RESOURCE.id, NOW + 1),
        (RESOURCE.id, NOW + 2),
        (other.id, NOW + 2),  # the newest of all
    ]
    await execute(store, watches.watch.delete())
    assert await store.writing(changes.forget, now=later, limit=9) == 2
    assert await store.reading(changes.newest) == newest
