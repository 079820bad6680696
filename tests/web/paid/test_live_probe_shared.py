"""Reports that are shared by those who share a probe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection
from tests.support.probe_rows import record_probe

from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor.reports import trust_reports
from tollgauge.monitor.reports.trust_reports import TrustReport, live
from tollgauge.store.endpoints import endpoints
from tollgauge.store.scores import scores
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.trust import trust_report

NOW = 1_760_000_000_000
URL = "https://api.shop.com/a"
ENDPOINT = Endpoint(
    id=endpoint_id(URL), resource=URL, host="api.shop.com", first_seen=NOW - 1_000, last_seen=NOW
)
PROBE = ProbeResult(
    at=NOW + 1_000,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.TARGET,
    up=True,
    status=402,
    timings=Timings(total=80),
)


@pytest.fixture
async def sold(store: Store) -> TrustReport:
    """A report of the probe, as it was sold and kept."""

    def sell(tx: Connection) -> TrustReport:
        endpoints.insert(tx, ENDPOINT)
        record_probe(tx, ENDPOINT.id, PROBE)
        report = live(tx, ENDPOINT, PROBE, cadence=NORMAL, now=NOW + 2_000)
        scores.save(tx, report.row)
        return report

    return await store.writing(sell)


async def load_report(
    store: Store, *, probe: ProbeResult = PROBE, **changes: Any
) -> TrustReport | None:
    """The shared report of an endpoint that has changed otherwise."""

    def read(tx: Connection) -> TrustReport | None:
        known = endpoints.get_with_host(tx, ENDPOINT.id)
        assert known is not None
        endpoint, host = known
        return trust_reports.read_shared(tx, replace(endpoint, **changes), host, probe)

    return await store.reading(read)


async def test_next_caller_receives_the_same_report(store: Store, sold: TrustReport) -> None:
    again = await load_report(store)
    assert again is not None
    assert (again.score, again.row, again.probe) == (sold.score, sold.row, sold.probe)
    one, other = (trust_report(report, base_url="") for report in (again, sold))
    assert dump(one) == dump(other)


async def test_shared_report_excludes_later_probes(store: Store, sold: TrustReport) -> None:
    assert await load_report(store, probe=replace(PROBE, at=PROBE.at + 1)) is None


async def test_shared_report_excludes_later_listings_and_probes(
    store: Store, sold: TrustReport
) -> None:
    since = sold.row.as_of + 1
    assert await load_report(store, last_seen=since) is None
    assert await load_report(store, quote_at=since) is None


async def test_score_of_another_policy_is_recomputed(store: Store, sold: TrustReport) -> None:
    def older(tx: Connection) -> None:
        tx.execute(schema.score.update().values(policy_version=0, result=b'{"old": 1}'))

    await store.writing(older)
    assert await load_report(store) is None
