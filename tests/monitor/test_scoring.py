"""The evidence of an endpoint, from its rows on both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tollgauge.core.endpoint import Endpoint, endpoint_id
from tollgauge.core.exchange import Timings
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.units import DAY_MS, HOUR_MS, day_of
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, probes

NOW = 20_700 * DAY_MS + 13 * HOUR_MS
RESOURCE = "https://api.shop.com/a"
ENDPOINT = Endpoint(
    id=endpoint_id(RESOURCE),
    resource=RESOURCE,
    host="api.shop.com",
    first_seen=NOW - 40 * DAY_MS,
    last_seen=NOW,
)
EMPTY = ProbeResult(
    at=0,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.THEIRS,
    up=True,
    status=402,
    timings=Timings(total=80),
    accepts=0,
)
TIMED_OUT = ProbeResult(
    at=0,
    outcome=Outcome.TIMEOUT,
    attribution=Attribution.THEIRS,
    up=False,
    timings=Timings(total=10_000),
)


@pytest.mark.parametrize("closed", [False, True])
async def test_a_time_out_does_not_hide_the_envelope_before_it(store: Store, closed: bool) -> None:
    seen = replace(EMPTY, at=NOW - 5 * DAY_MS)
    failed = [replace(TIMED_OUT, at=NOW - hours * HOUR_MS) for hours in (100, 30, 1)]
    await store.writing(endpoints.insert, ENDPOINT)
    await store.writing(probes.record_many, ENDPOINT.id, [seen, *failed])
    if closed:
        await store.writing(archive.close_days, before_day=day_of(NOW), limit=100)
    found = await store.reading(scoring.gather, ENDPOINT, as_of=NOW)
    assert found.last is not None
    assert found.last.at == NOW - HOUR_MS
    assert found.envelope is not None
    assert (found.envelope.at, found.envelope.accepts) == (seen.at, 0)


async def test_an_envelope_older_than_the_window_is_forgotten(store: Store) -> None:
    results = [replace(EMPTY, at=NOW - 31 * DAY_MS), replace(TIMED_OUT, at=NOW - HOUR_MS)]
    await store.writing(endpoints.insert, ENDPOINT)
    await store.writing(probes.record_many, ENDPOINT.id, results)
    found = await store.reading(scoring.gather, ENDPOINT, as_of=NOW)
    assert found.envelope is None
    assert sum(day.probes for day in found.days) == 1
