"""The latest state of an endpoint, read in one statement, on both databases."""

from __future__ import annotations

from dataclasses import replace

from tests.support.probe_rows import record_probe

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lists.rated_endpoint import ScoreFigures
from tollgauge.core.probe.exchange import Finding, Severity, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, latest, vantages
from tollgauge.store.probes.latest import LatestProbe
from tollgauge.store.probes.vantages import VantageResult
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import HostState
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow

NOW = 1_760_000_000_000
RESOURCE = parse_resource("https://api.shop.com/a")
QUOTE = Quote(network="eip155:8453", asset="0xaa", amount=2**256 - 1, pay_to="0xbb")
ENDPOINT = Endpoint(
    id=RESOURCE.id,
    resource=RESOURCE.url,
    host=RESOURCE.host,
    first_seen=NOW - 1_000,
    last_seen=NOW,
    tags=("weather",),
    quote=QUOTE,
    quote_at=NOW,
)
PROBE = ProbeResult(
    at=NOW,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.TARGET,
    up=True,
    status=402,
    timings=Timings(connect=4, total=80),
    quote=QUOTE,
    findings=(Finding(rule="cors-expose", severity=Severity.WARN, message="m", where="header"),),
)
SCORE = ScoreRow(
    endpoint_id=RESOURCE.id,
    as_of=NOW,
    policy_version=1,
    score_tenths=842,
    evidence=b'{"some": "evidence"}',
    result=b"{}",
    figures=ScoreFigures(scored_at=NOW),
)


async def test_unknown_endpoint_has_no_latest_state(store: Store) -> None:
    nothing = LatestProbe(
        endpoint=None,
        host=HostState(host=RESOURCE.host),
        probe=None,
        score=None,
        named_at=None,
        seen_by_vantages=False,
    )
    assert await store.reading(latest.of, RESOURCE) == nothing


async def test_latest_state_equals_separate_queries(store: Store) -> None:
    other = parse_resource("https://api.shop.com/b")
    await store.writing(
        endpoints.insert, ENDPOINT, replace(ENDPOINT, id=other.id, resource=other.url)
    )
    for at in (NOW - 5_000, NOW):
        await store.writing(record_probe, RESOURCE.id, replace(PROBE, at=at), learned="GET")
    await store.writing(record_probe, other.id, replace(PROBE, at=NOW + 1))
    await store.writing(scores.save, SCORE)
    await store.writing(scores.keep_evidence, SCORE, now=NOW + 7)
    await store.writing(hosts.set_wildcards, {RESOURCE.host: False}, at=NOW)
    known = await store.reading(latest.of, RESOURCE)
    assert known.endpoint == await store.reading(endpoints.get, RESOURCE.id)
    assert known.endpoint is not None
    assert (known.endpoint.quote, known.endpoint.learned) == (QUOTE, "GET")
    assert known.host == await store.reading(hosts.get, RESOURCE.host)
    assert known.host.wildcard is False
    assert (known.probe, known.score) == (PROBE, SCORE)
    assert (known.named_at, known.seen_by_vantages) == (NOW + 7, False)
    of_other = await store.reading(latest.of, other)
    assert of_other.probe is not None
    assert (of_other.probe.at, of_other.score, of_other.named_at) == (NOW + 1, None, None)


async def test_probe_of_a_closed_day_is_not_returned_as_the_last(store: Store) -> None:
    await store.writing(endpoints.insert, ENDPOINT)
    await store.writing(record_probe, RESOURCE.id, PROBE)
    await store.writing(archive.close_days, before_day=day_of(NOW + DAY_MS), limit=9)
    assert (await store.reading(latest.of, RESOURCE)).probe is None


async def test_reports_whether_vantages_have_results(store: Store) -> None:
    await store.writing(endpoints.insert, ENDPOINT)
    await store.writing(vantages.add, "oslo", {RESOURCE.id: NOW})
    assert not (await store.reading(latest.of, RESOURCE)).seen_by_vantages
    seen = VantageResult(endpoint_id=RESOURCE.id, result=PROBE)
    await store.writing(vantages.save_primary, "home", [seen])
    assert (await store.reading(latest.of, RESOURCE)).seen_by_vantages
