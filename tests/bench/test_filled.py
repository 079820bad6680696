"""A filled store looks as if the service had probed all its endpoints from the beginning."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from bench import filled, lives
from bench.database import open_store
from bench.day import BEGIN, Clock, Day, load_endpoints
from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.schedule import NORMAL, interval_ms
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.store.chain import volumes
from tollgauge.store.probes import probes
from tollgauge.store.probes.change_rows import change
from tollgauge.store.schedule import claims
from tollgauge.store.scores import scores

NOW = BEGIN + DAY_MS // 2


@pytest.fixture(scope="module")
def filled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    asyncio.run(_fill(folder))
    return folder


async def _fill(folder: Path) -> None:
    async with open_store(folder) as store:
        await filled.fill(store, endpoints=400, days=1, now=NOW)


@pytest.fixture
async def store(filled_folder: Path, tmp_path: Path) -> AsyncIterator[Store]:
    shutil.copytree(filled_folder, tmp_path, dirs_exist_ok=True)
    async with open_store(tmp_path) as store:
        yield store


async def test_copies_are_spread_over_the_probe_schedule(store: Store) -> None:
    known = await store.reading(load_endpoints)
    for endpoint in known:
        assert endpoint.last_probed is not None
        assert endpoint.last_probed <= NOW
        assert NOW < endpoint.next_due <= NOW + interval_ms(endpoint, NORMAL, now=NOW)
    assert len({endpoint.last_probed for endpoint in known}) > len(known) * 9 // 10


async def test_last_probe_of_every_copy_has_a_row_of_today(store: Store) -> None:
    def without(tx: Connection) -> int:
        last = sa.select(schema.probe.c.at).where(probes.LAST).correlate(schema.endpoint)
        query = sa.select(sa.func.count()).select_from(schema.endpoint).where(~sa.exists(last))
        count: int = tx.execute(query).scalar_one()
        return count

    assert await store.reading(without) == 0


async def test_score_of_every_copy_includes_payments_to_its_pay_to(store: Store) -> None:
    known = await store.reading(load_endpoints)
    computed = await store.reading(scores.results, [endpoint.id for endpoint in known])
    scored, indexed = [], []
    for endpoint in known:
        settlement, quote = computed[endpoint.id].settlement, endpoint.quote
        if settlement is not None and quote is not None:
            demands = await store.reading(
                volumes.demands_of, filled.CHAIN, [quote.pay_to], as_of=NOW
            )
            scored.append(settlement.transfers)
            indexed.append(demands[quote.pay_to].transfers)
    assert len(scored) > len(known) // 2
    assert scored == indexed


async def test_hosts_are_due_with_their_first_due_endpoint(store: Store) -> None:
    census = await store.reading(claims.census, now=NOW)
    assert census.forgotten == {}
    assert {load.host for load in census.loads} == {place.host for place in lives.places(400)}


async def test_next_probes_of_filled_store_change_no_terms(store: Store) -> None:
    clock = Clock(NOW + HOUR_MS)
    day = Day(store, clock, ())
    (batch,) = day.invent_results(await day.claim(limit=15))
    assert len(batch) == 15
    await day.record(batch)

    def types(tx: Connection) -> set[str]:
        return set(tx.execute(sa.select(change.c.type).where(change.c.at > NOW)).scalars())

    assert await store.reading(types) <= {"liveness_down"}
