"""The probe interval of an endpoint on a crowded host, and its reason."""

from __future__ import annotations

from dataclasses import replace

import orjson

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.core.score.evidence_document import from_json
from tollgauge.db.engine import Store
from tollgauge.jobs import probe
from tollgauge.monitor import scoring
from tollgauge.monitor.reports.endpoint import view
from tollgauge.monitor.reports.snapshots import Pace
from tollgauge.monitor.reports.trust_reports import live
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.web.wire import examples
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.trust import trust_report

NOW = 20_700 * DAY_MS + 13 * HOUR_MS
REASON = "Probed every 1 h: 4,000 endpoints share its host's probe budget."


def endpoint(host: str, number: int) -> Endpoint:
    url = f"https://{host}/{number}"
    return Endpoint(
        id=endpoint_id(url), resource=url, host=host, first_seen=NOW - DAY_MS, last_seen=NOW
    )


PROBE = ProbeResult(
    at=NOW - 1,
    outcome=Outcome.SERVER_ERROR,
    attribution=Attribution.TARGET,
    up=False,
    timings=Timings(total=9),
)


async def test_interval_of_a_crowded_host_is_in_evidence_report_and_page(store: Store) -> None:
    crowd = [endpoint("big.com", number) for number in range(4_000)]
    alone = endpoint("small.com", 0)
    await store.writing(endpoints.insert, *crowd, alone)
    await probe.plan_intervals(store, cadence=NORMAL, catch_up=2, clock=lambda: NOW)
    for one, pace in ((crowd[0], Pace(every_ms=4_210_527, sharing=4_000)), (alone, None)):
        await store.writing(probes.record_many, one.id, [replace(PROBE)])
        (row,) = (await scoring.score_and_save(store, [one.id], cadence=NORMAL, now=NOW)).rows
        shown = await store.reading(view, one.id, now=NOW)
        report = await store.reading(live, one, PROBE, cadence=NORMAL, now=NOW)
        assert shown is not None
        assert (shown.pace, report.pace) == (pace, pace)
        assert pace is None or from_json(row.evidence).interval == pace.every_ms
        document = orjson.loads(dump(trust_report(report, base_url=examples.BASE_URL)))
        assert document.get("pace") == (
            None if pace is None else {"everySeconds": 4_210, "reason": REASON}
        )
