"""The evidence of an endpoint, from its rows on both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Connection
from tests.support.databases import on_both, on_sqlite
from tests.support.gathering import gather_many
from tests.support.probe_archive import close_all, lively

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, day_of
from tollgauge.core.endpoint.identity import Endpoint, Listing, endpoint_id
from tollgauge.core.endpoint.terms import KnownOffer, Quote
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import NORMAL, Cadence
from tollgauge.core.score.evidence_document import from_json, to_json
from tollgauge.core.score.scoring import score
from tollgauge.db.engine import Store
from tollgauge.monitor import recording, scoring
from tollgauge.monitor.probing import Observation
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, change_rows, probes
from tollgauge.store.scores.scores import ScoreRow
from tollgauge.store.watches.watches import Watch

pytestmark = on_sqlite

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
    attribution=Attribution.TARGET,
    up=True,
    status=402,
    timings=Timings(total=80),
    accepts=0,
)
TIMED_OUT = ProbeResult(
    at=0,
    outcome=Outcome.TIMEOUT,
    attribution=Attribution.TARGET,
    up=False,
    timings=Timings(total=10_000),
)


@pytest.mark.parametrize("closed", [False, True])
async def test_timeout_does_not_hide_the_previous_envelope(store: Store, closed: bool) -> None:
    seen = replace(EMPTY, at=NOW - 5 * DAY_MS)
    failed = [replace(TIMED_OUT, at=NOW - hours * HOUR_MS) for hours in (100, 30, 1)]
    await store.writing(endpoints.insert, ENDPOINT)
    await store.writing(probes.record_many, ENDPOINT.id, [seen, *failed])
    if closed:
        await store.writing(archive.close_days, before_day=day_of(NOW), limit=100)
    evidence = await store.reading(scoring.gather, ENDPOINT, as_of=NOW)
    assert evidence.last is not None
    assert evidence.last.at == NOW - HOUR_MS
    assert evidence.envelope is not None
    assert (evidence.envelope.at, evidence.envelope.accepts) == (seen.at, 0)


@on_both
async def test_envelope_older_than_the_window_is_ignored(store: Store) -> None:
    results = [replace(EMPTY, at=NOW - 31 * DAY_MS), replace(TIMED_OUT, at=NOW - HOUR_MS)]
    await store.writing(endpoints.insert, ENDPOINT)
    await store.writing(probes.record_many, ENDPOINT.id, results)
    evidence = await store.reading(scoring.gather, ENDPOINT, as_of=NOW)
    assert evidence.envelope is None
    assert sum(day.probes for day in evidence.days) == 1


PAYABLE = replace(EMPTY, accepts=1, payable=True, compliant=True, compliance=100)


def record_probe_of_loop(tx: Connection, result: ProbeResult) -> Endpoint:
    """Return the endpoint after one probe of the loop."""
    endpoint = endpoints.get(tx, ENDPOINT.id)
    assert endpoint is not None
    seen = Observation(endpoint=endpoint, result=result, learned=None)
    recording.record(tx, (seen,), cadence=NORMAL, owner="one", now=result.at)
    after = endpoints.get(tx, ENDPOINT.id)
    assert after is not None
    return after


@pytest.mark.parametrize("confirmed_by", [PAYABLE, TIMED_OUT])
async def test_first_failure_is_confirmed_before_it_limits_a_score(
    store: Store, confirmed_by: ProbeResult
) -> None:
    month = range(NOW - 20 * DAY_MS, NOW, 30 * MINUTE_MS)
    await store.writing(endpoints.insert, ENDPOINT)
    await store.writing(probes.record_many, ENDPOINT.id, [replace(PAYABLE, at=at) for at in month])
    failed = await store.writing(record_probe_of_loop, replace(TIMED_OUT, at=NOW))
    evidence = await store.reading(scoring.gather, failed, as_of=NOW)
    assert evidence.state is not None
    assert (evidence.state.payable, evidence.state.unconfirmed) == (False, True)
    first = score(evidence)
    assert (first.grade, first.recommendation, first.caps) == ("A", "caution", ())
    later = failed.next_due
    assert 40 * SECOND_MS <= later - NOW <= 80 * SECOND_MS
    asked = await store.writing(record_probe_of_loop, replace(confirmed_by, at=later))
    again = await store.reading(scoring.gather, asked, as_of=later + MINUTE_MS)
    assert again.state is not None
    assert (again.state.payable, again.state.unconfirmed) == (confirmed_by is PAYABLE, False)
    second = score(again)
    assert bool(second.caps) == (confirmed_by is TIMED_OUT)
    assert second.stats.probes == first.stats.probes, "it extends time, not counts"
    lasts = later - NOW + (0 if confirmed_by is PAYABLE else MINUTE_MS)
    assert again.days[-1].spans.down == lasts
    gap = asked.next_due - later
    assert 5 * MINUTE_MS <= gap <= 55 * MINUTE_MS, "a regular probe is next"


async def test_outage_lasts_from_the_first_failure_until_a_payable_probe(store: Store) -> None:
    await store.writing(endpoints.insert, ENDPOINT)
    outages = []
    for minute, result in enumerate((PAYABLE, TIMED_OUT, TIMED_OUT, TIMED_OUT, PAYABLE, TIMED_OUT)):
        at = NOW + minute * MINUTE_MS
        probed = await store.writing(record_probe_of_loop, replace(result, at=at))
        down = score(await store.reading(scoring.gather, probed, as_of=at)).down
        outages.append(None if down is None else ((down.since - NOW) // MINUTE_MS, down.confirmed))
    assert outages == [None, (1, False), (1, True), (1, True), None, (5, False)]


async def test_evidence_has_the_forms_of_the_last_envelope(store: Store) -> None:
    offer = KnownOffer("eip155:8453", "upto", "0xa", 5)
    upto = replace(PAYABLE, forms=("eip155:8453 upto",), offers=(offer,))
    await store.writing(endpoints.insert, ENDPOINT)
    await store.writing(record_probe_of_loop, replace(upto, at=NOW))
    probed = await store.writing(record_probe_of_loop, replace(TIMED_OUT, at=NOW + MINUTE_MS))
    evidence = await store.reading(scoring.gather, probed, as_of=NOW + MINUTE_MS)
    assert evidence.forms == ("eip155:8453 upto",)
    assert from_json(to_json(evidence)).forms == evidence.forms
    solana = Quote(
        network="solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", asset="x", amount=1, pay_to="y"
    )
    listed = replace(ENDPOINT, quote=solana)
    unseen = await store.reading(scoring.gather, listed, as_of=NOW)
    assert score(unseen).coverage == {solana.network: {"exact": "not-read"}}


@on_both
async def test_confirmation_probe_is_not_a_result_of_a_watch(store: Store) -> None:
    """A watch reports an endpoint as down after two failures in a row, five minutes apart."""
    watched = replace(ENDPOINT, watched_until=NOW + DAY_MS)
    await store.writing(endpoints.insert, watched)
    for at, result in ((0, PAYABLE), (5, PAYABLE), (10, TIMED_OUT), (11, TIMED_OUT)):
        await store.writing(record_probe_of_loop, replace(result, at=NOW + at * MINUTE_MS))
    watch = Watch(
        id="w", secret_hash="h", endpoint_id=ENDPOINT.id, created_at=NOW - 1, expires_at=NOW
    )
    counted = await store.reading(change_rows.checks, watch, since=NOW - 1, until=NOW + DAY_MS)
    states = await store.reading(change_rows.change_states, [ENDPOINT.id])
    assert counted == (3, 3)
    assert states[ENDPOINT.id].recent == "110"


def read_shown(row: ScoreRow) -> tuple[bytes, str, bytes]:
    return row.evidence, row.digest, row.result


async def test_batch_evidence_equals_evidence_of_single_endpoints(store: Store) -> None:
    quote = Quote(network="eip155:8453", asset="0x" + "a" * 40, amount=5, pay_to="0x" + "b" * 40)
    batch = [
        replace(
            ENDPOINT,
            id=endpoint_id(f"{RESOURCE}/{number}"),
            resource=f"{RESOURCE}/{number}",
            host=f"api{number % 3}.shop.com",
            quote=quote if number % 2 else None,
            first_seen=NOW - number * DAY_MS,
        )
        for number in range(12)
    ]
    await store.writing(endpoints.insert, *batch)
    for number, endpoint in enumerate(batch):
        past = lively(number, first=NOW - 40 * DAY_MS, last=NOW, number=5 * number)
        await store.writing(probes.record_many, endpoint.id, past)
    await close_all(store, day_of(NOW) - 1)
    documents = []
    for _ in range(2):
        together = await store.reading(gather_many, batch, as_of=NOW, cadence=NORMAL)
        alone = [await store.reading(scoring.gather, endpoint, as_of=NOW) for endpoint in batch]
        assert list(together.values()) == alone
        rows = [
            (await store.reading(scoring.compute, endpoint, as_of=NOW, cadence=NORMAL))[1]
            for endpoint in batch
        ]
        assert list(map(read_shown, rows)) == [
            read_shown(scoring.score_evidence(endpoint.id, evidence))
            for endpoint, evidence in zip(batch, alone, strict=True)
        ]
        documents.append([row.evidence for row in rows])
        await close_all(store, day_of(NOW))
    assert documents[0] == documents[1], "closing a day must not change evidence"


async def test_evidence_names_the_effective_cadence(store: Store) -> None:
    await store.writing(endpoints.insert, ENDPOINT)
    for endpoint, interval in (
        (ENDPOINT, 20 * MINUTE_MS),
        (replace(ENDPOINT, watched_until=NOW + 1), 5 * MINUTE_MS),
        (replace(ENDPOINT, status=Listing.DELISTED), DAY_MS),
    ):
        cadence = Cadence(every_ms=20 * MINUTE_MS)
        evidence = await store.reading(scoring.gather, endpoint, as_of=NOW, cadence=cadence)
        assert evidence.interval == interval


@on_both
async def test_new_path_is_limited_by_its_site_in_the_same_batch(store: Store) -> None:
    urls = [f"https://api.shop.com/{name}" for name in ("new", "old", "older")]
    young, *others = (
        replace(ENDPOINT, id=endpoint_id(url), resource=url, host="api.shop.com") for url in urls
    )
    young = replace(young, first_seen=NOW - 3 * DAY_MS)
    await store.writing(endpoints.insert, young, *others)
    down = [replace(TIMED_OUT, at=NOW - hour * HOUR_MS) for hour in range(1, 200)]
    shaky = [
        replace(TIMED_OUT if hour % 5 == 4 else PAYABLE, at=NOW - hour * HOUR_MS)
        for hour in range(1, 70)
    ]
    for other in others:
        await store.writing(probes.record_many, other.id, down)
    await store.writing(probes.record_many, young.id, shaky)
    ids = [young.id, *(other.id for other in others)]
    outcome = await scoring.score_and_save(store, ids, cadence=NORMAL, now=NOW)
    tenths = {row.endpoint_id: row.score_tenths for row in outcome.rows}
    assert tenths[young.id] == tenths[others[0].id]
