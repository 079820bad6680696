"""Reports that are shared by those who share a probe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection
from tests.support.record_probe import record_probe

from tollgauge.core.endpoint import Endpoint, endpoint_id, parse_resource
from tollgauge.core.exchange import Timings
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.schedule import NORMAL
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import reports
from tollgauge.store.endpoints import endpoints, scores
from tollgauge.store.probes import latest
from tollgauge.web import wire

NOW = 1_760_000_000_000
URL = "https://api.shop.com/a"
ENDPOINT = Endpoint(
    id=endpoint_id(URL), resource=URL, host="api.shop.com", first_seen=NOW - 1_000, last_seen=NOW
)
PROBE = ProbeResult(
    at=NOW + 1_000,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.THEIRS,
    up=True,
    status=402,
    timings=Timings(total=80),
)


@pytest.fixture
async def sold(store: Store) -> reports.TrustReport:
    """A report of the probe, as it was sold and kept."""

    def sell(tx: Connection) -> reports.TrustReport:
        endpoints.insert(tx, ENDPOINT)
        record_probe(tx, ENDPOINT.id, PROBE)
        report = reports.live(tx, ENDPOINT, PROBE, cadence=NORMAL, now=NOW + 2_000)
        scores.save(tx, report.row)
        return report

    return await store.writing(sell)


async def shared(
    store: Store, *, probe: ProbeResult = PROBE, **changes: Any
) -> reports.TrustReport | None:
    """The report that can be shared, of an endpoint of which something else has changed."""

    def read(tx: Connection) -> reports.TrustReport | None:
        known = latest.of(tx, parse_resource(ENDPOINT.resource))
        assert known.endpoint is not None
        return reports.shared(
            tx, replace(known, endpoint=replace(known.endpoint, **changes)), probe
        )

    return await store.reading(read)


async def test_the_next_caller_gets_the_same(store: Store, sold: reports.TrustReport) -> None:
    again = await shared(store)
    assert again is not None
    assert (again.score, again.row, again.probe) == (sold.score, sold.row, sold.probe)
    one, other = (wire.trust_report(report, base_url="") for report in (again, sold))
    assert wire.dump(one) == wire.dump(other)


async def test_a_later_probe_is_not_in_it(store: Store, sold: reports.TrustReport) -> None:
    assert await shared(store, probe=replace(PROBE, at=PROBE.at + 1)) is None


async def test_what_a_directory_or_a_probe_told_since_is_not_in_it(
    store: Store, sold: reports.TrustReport
) -> None:
    since = sold.row.as_of + 1
    assert await shared(store, last_seen=since) is None
    assert await shared(store, quote_at=since) is None


async def test_a_score_of_another_policy_is_made_anew(
    store: Store, sold: reports.TrustReport
) -> None:
    def older(tx: Connection) -> None:
        tx.execute(schema.score.update().values(policy_version=0, result=b'{"old": 1}'))

    await store.writing(older)
    assert await shared(store) is None
