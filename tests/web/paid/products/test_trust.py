"""The trust report: who shares the report of a probe, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest
from sqlalchemy import Connection
from tests.support.http_service import NOW, WEATHER, Running, configuration, opened
from tests.support.ledger_world import held_claim
from tests.support.record_probe import record_probe
from tests.support.statements import execute

from tollgauge.core.endpoint import Endpoint, endpoint_id
from tollgauge.core.exchange import Timings
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.schedule import NORMAL
from tollgauge.db import schema
from tollgauge.monitor import reports
from tollgauge.store.endpoints import endpoints, scores
from tollgauge.web import wire
from tollgauge.web.paid.claim import HeldClaim
from tollgauge.web.paid.live_probe import SHARE_MS
from tollgauge.web.paid.products import trust

ENDPOINT = Endpoint(
    id=endpoint_id(WEATHER),
    resource=WEATHER,
    host="weather.example",
    first_seen=NOW - 1_000,
    last_seen=NOW - 1_000,
)
PROBE = ProbeResult(
    at=NOW,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.THEIRS,
    up=True,
    status=402,
    timings=Timings(total=80),
)


@pytest.fixture
async def running(database: str) -> AsyncIterator[Running]:
    async with opened(configuration(store_url=database)) as service:
        yield service


async def answered(running: Running, *, verified_after_ms: int) -> dict[str, object]:
    """The report of a sale whose payment is claimed now and verified after a while."""
    product = trust.product(running.service.server())
    sale = product.sale()
    order = sale.validate({"resource": WEATHER})
    claim = await held_claim(running.service.store, now=running.clock())
    seen = await running.service.store.reading(sale.check, order)
    await execute(running.service.store, schema.score.delete())  # what was seen is all there is
    running.clock.now += verified_after_ms
    body = await sale.compute(order, HeldClaim(store=claim.store, row=claim.row, seen=seen))
    report: dict[str, object] = orjson.loads(body)
    return report


async def sold_before(running: Running) -> bytes:
    """A report of the probe, as it was sold and kept."""

    def sell(tx: Connection) -> reports.TrustReport:
        endpoints.insert(tx, ENDPOINT)
        record_probe(tx, ENDPOINT.id, PROBE)
        made = reports.live(tx, ENDPOINT, PROBE, cadence=NORMAL, now=NOW + 100)
        scores.save(tx, made.row)
        return made

    running.clock.now += 1_000
    report = await running.service.store.writing(sell)
    return wire.dump(wire.short(wire.trust_report(report, base_url=running.service.base_url)))


async def test_the_report_that_the_claim_saw_is_the_answer(running: Running) -> None:
    before = orjson.loads(await sold_before(running))
    assert await answered(running, verified_after_ms=SHARE_MS - 2_000) == before


async def test_a_probe_that_grew_old_while_the_payment_was_verified_is_made_anew(
    running: Running,
) -> None:
    before = orjson.loads(await sold_before(running))
    report = await answered(running, verified_after_ms=SHARE_MS - 1_000)
    assert report["liveProbe"] != before["liveProbe"]
