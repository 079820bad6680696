"""Lock order of recording: endpoints by ID, then hosts.

On PostgreSQL, two transactions that lock the same rows in different orders deadlock, and one of
them fails. A row that references an endpoint locks it too, for example a closed day.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.probe_loop import START, endpoint
from tests.support.statements import open_transaction

from tollgauge.core.base.units import day_of
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.probe.exchange import Answer, Exchange, Lint, Timings
from tollgauge.core.probe.probe import judge
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store
from tollgauge.monitor import recording, vantages
from tollgauge.monitor.probing import Observation
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.probes import archive, probes
from tollgauge.store.probes import vantages as vantage_probes
from tollgauge.store.schedule import hosts

OpenStore = Callable[[], Store]
LINT = Lint(payable=False, compliant=False, version=None)
WAITING = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")

pytestmark = pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)


def of_host(host: str, count: int) -> list[Endpoint]:
    """Return endpoints of a host in the order of their IDs."""
    return sorted((endpoint(f"https://{host}/{n}") for n in range(count)), key=lambda one: one.id)


def sells_anywhere(one: Endpoint, *, wildcard: bool | None = True) -> Observation:
    """Return a 402 of an endpoint whose host answers 402 on every path."""
    exchange = Exchange(
        url=one.resource,
        method="GET",
        at=START,
        result=Answer(status=402),
        timings=Timings(total=9),
    )
    return Observation(endpoint=one, result=judge(exchange, LINT), learned=None, wildcard=wildcard)


def record_wave(tx: Connection, wave: Sequence[Observation]) -> None:
    recording.record(tx, wave, cadence=Cadence(), owner="one", now=START)


def record(tx: Connection, *observed: Endpoint) -> None:
    record_wave(tx, [sells_anywhere(one) for one in observed])


def record_requested(tx: Connection, one: Endpoint) -> None:
    recording.record_requested(
        tx,
        parse_resource(one.resource),
        sells_anywhere(one),
        cadence=Cadence(),
        owner="one",
        now=START,
    )


def count_waiting(tx: Connection) -> int:
    """Return the number of transactions that wait for a lock."""
    return int(tx.execute(WAITING).scalar_one())


async def somebody_waits(store: Store) -> None:
    async with asyncio.timeout(20):
        while not await store.reading(count_waiting):  # noqa: ASYNC110 - a lock has no event
            await asyncio.sleep(0.01)


async def claim_due(store: Store) -> set[str]:
    """Claim the endpoints that are due for scoring."""
    return set(await store.writing(endpoints.claim_dirty, now=START, limit=9, max_age_ms=1_000))


@pytest.mark.parametrize("recorded", [record, record_requested])
async def test_wildcard_host_is_recorded_during_a_crawl_of_it(
    store: Store, open_store: OpenStore, recorded: Callable[[Connection, Endpoint], None]
) -> None:
    first, last = of_host("a.com", 2)
    await store.writing(endpoints.insert, first, last)
    assert len(await claim_due(store)) == 2, "new endpoints are due; now they are claimed"
    async with open_transaction(open_store(), writing=True) as crawl:
        await crawl(listings.lock, [first.id])
        recording = asyncio.create_task(open_store().writing(recorded, last))
        await somebody_waits(store)
        await crawl(listings.lock, [last.id])
    await recording
    assert (await store.reading(hosts.get, "a.com")).wildcard
    assert await claim_due(store) == {first.id, last.id}


async def test_two_wildcard_hosts_are_recorded_during_a_crawl_of_them(
    store: Store, open_store: OpenStore
) -> None:
    (one,), (other, probed) = of_host("a.com", 1), of_host("b.com", 2)
    await store.writing(endpoints.insert, one, other, probed)
    async with open_transaction(open_store(), writing=True) as crawl:
        await crawl(listings.lock, [other.id])
        recording = asyncio.create_task(open_store().writing(record, one, probed))
        await somebody_waits(store)
        await crawl(endpoints.bring_forward, [endpoint("https://a.com/new")])
    await recording
    for host in ("a.com", "b.com"):
        assert (await store.reading(hosts.get, host)).wildcard


async def test_hosts_are_locked_in_the_same_order_regardless_of_wildcard_tests(
    store: Store, open_store: OpenStore
) -> None:
    (one,), (other,) = of_host("a.com", 1), of_host("b.com", 1)
    await store.writing(endpoints.insert, one, other)
    wave = (sells_anywhere(one, wildcard=None), sells_anywhere(other, wildcard=False))
    async with open_transaction(open_store(), writing=True) as crawl:
        await crawl(endpoints.bring_forward, [endpoint("https://a.com/new")])
        recording = asyncio.create_task(open_store().writing(record_wave, wave))
        await somebody_waits(store)
        await crawl(endpoints.bring_forward, [endpoint("https://b.com/new")])
    await recording
    assert (await store.reading(hosts.get, "b.com")).wildcard is False


async def test_unknown_resource_is_recorded_during_a_watch_of_its_host(
    store: Store, open_store: OpenStore
) -> None:
    known, new = of_host("a.com", 2)
    await store.writing(endpoints.insert, known)
    async with open_transaction(open_store(), writing=True) as watching:
        await watching(listings.lock, [known.id])
        recording = asyncio.create_task(open_store().writing(record_requested, new))
        await somebody_waits(store)
        await watching(hosts.bring_watched_forward, known.id, now=START)
    await recording
    assert await store.reading(endpoints.get, new.id) is not None


def record_probes(tx: Connection, instants: Mapping[Endpoint, int]) -> None:
    """Record a probe of each endpoint."""
    for one, at in instants.items():
        probes.record_many(tx, one.id, [replace(sells_anywhere(one).result, at=at)])


@asynccontextmanager
async def wave_of(
    store: Store, other: Store, first: Endpoint, last: Endpoint
) -> AsyncIterator[None]:
    """Start a wave that locks both endpoints in the order of their IDs. It locks the last one when
    the block has begun to wait for the first.
    """
    async with open_transaction(other, writing=True) as wave:
        await wave(endpoints.lock, [first.id])
        yield
        await somebody_waits(store)
        await wave(endpoints.lock, [last.id])


async def test_days_are_closed_during_a_wave(store: Store, open_store: OpenStore) -> None:
    first, last = of_host("a.com", 2)
    await store.writing(endpoints.insert, first, last)
    await store.writing(record_probes, {last: START, first: START})
    async with wave_of(store, open_store(), first, last):
        closing = asyncio.create_task(
            open_store().writing(archive.close_days, before_day=day_of(START) + 1, limit=9)
        )
    assert await closing == 2


async def test_endpoints_are_added_at_another_vantage_during_a_wave(
    store: Store, open_store: OpenStore
) -> None:
    first, last = of_host("a.com", 2)
    for one in (last, first):  # the order in which their rows are stored
        await store.writing(endpoints.insert, one)
    async with wave_of(store, open_store(), first, last):
        claiming = asyncio.create_task(
            open_store().writing(
                vantages.claim,
                "other",
                owner="two",
                now=START,
                limit=9,
                lease_ms=9,
                cadence=Cadence(),
            )
        )
    await claiming
    assert await store.reading(vantage_probes.find_unknown, "other", limit=9) == ()
