"""Requests to probe an endpoint now, on both databases."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.support.bundles import add, priced_endpoint
from tests.support.databases import on_both, on_sqlite

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS
from tollgauge.db.engine import Store
from tollgauge.monitor.recording import (
    RECHECK_PAUSE_MS,
    PayableError,
    RecheckedError,
    request_probe,
)
from tollgauge.store.endpoints import endpoints
from tollgauge.store.schedule import claims

pytestmark = on_sqlite

NOW = 1_795_000_000_000
FAILING = replace(
    priced_endpoint("/1"), payable=False, failing_since=NOW - HOUR_MS, next_due=NOW + HOUR_MS
)


async def request(store: Store, id_: str = FAILING.id, *, now: int = NOW) -> object:
    return await store.writing(request_probe, id_, now=now)


async def claim_due(store: Store, *, now: int) -> set[str]:
    due = await store.writing(claims.claim_due, owner="w", limit=9, now=now, lease_ms=MINUTE_MS)
    return {endpoint.id for endpoint in due}


async def test_failing_endpoint_becomes_due_at_once(store: Store) -> None:
    await add(store, FAILING)
    assert await claim_due(store, now=NOW) == set()
    assert await request(store) is not None
    assert await claim_due(store, now=NOW) == {FAILING.id}


async def test_payable_or_unprobed_endpoint_is_not_probed_on_request(store: Store) -> None:
    for payable in (True, None):
        endpoint = replace(priced_endpoint(f"/{payable}"), payable=payable, next_due=NOW + HOUR_MS)
        await add(store, endpoint)
        with pytest.raises(PayableError):
            await request(store, endpoint.id)
    assert await claim_due(store, now=NOW) == set()


async def test_pause_that_the_endpoint_asked_for_is_respected(store: Store) -> None:
    await add(store, replace(FAILING, paused_until=NOW + 5 * MINUTE_MS))
    await request(store)
    assert await claim_due(store, now=NOW) == set()
    assert await claim_due(store, now=NOW + 5 * MINUTE_MS) == {FAILING.id}


@on_both
async def test_host_is_probed_once_per_pause_for_all_its_endpoints(store: Store) -> None:
    other = replace(priced_endpoint("/2"), payable=False, next_due=NOW + HOUR_MS)
    assert other.host == FAILING.host
    await add(store, FAILING, other)
    accepted = await asyncio.gather(
        *(request(store, id_) for id_ in (FAILING.id, other.id) * 3), return_exceptions=True
    )
    rejected = [result for result in accepted if isinstance(result, RecheckedError)]
    assert len(rejected) == 5
    assert {error.next_at for error in rejected} == {NOW + RECHECK_PAUSE_MS}
    assert await request(store, other.id, now=NOW + RECHECK_PAUSE_MS) is not None


async def test_unknown_endpoint_is_reported(store: Store) -> None:
    assert await request(store, "0" * 16) is None
    await add(store, FAILING)
    assert await store.reading(endpoints.get, FAILING.id) == FAILING
