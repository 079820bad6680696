"""Saved scores and their order, against real databases."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.score_rows import NOW, endpoint, row, save

from tollgauge.core.base.units import DAY_MS, WINDOW_MS, day_of
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.probe.outcome import OUTCOMES, Outcome
from tollgauge.core.probe.probe import Spans
from tollgauge.core.probe.rollup import Rollup, encode_histogram
from tollgauge.core.score.evidence import Evidence, LatestState
from tollgauge.core.score.evidence_document import from_json
from tollgauge.core.score.score import score_from_json
from tollgauge.core.score.scoring import score
from tollgauge.core.score.window import ClosedDay, DayScore
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring
from tollgauge.store.endpoints import endpoints, rated_endpoints
from tollgauge.store.probes import window
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow


async def test_saved_score_can_be_recomputed_from_its_evidence(store: Store) -> None:
    one = endpoint("/")
    evidence = Evidence(
        resource=one.resource,
        as_of=NOW,
        first_seen=NOW - WINDOW_MS,
        days=(
            Rollup(
                day=19_999,
                probes=2,
                scored=2,
                up=2,
                compliant=1,
                payable=2,
                compliance=150,
                slots=3,
                latency_sum=200,
                latency=encode_histogram([(100, 2)]),
                spans=Spans(up=9, payable=9, compliance=700),
            ),
        ),
        state=LatestState(at=NOW, outcome="payment-required", up=True, payable=True),
    )
    await store.writing(endpoints.insert, one)
    saved = scoring.score_evidence(one.id, evidence)
    assert await store.writing(scores.save, saved)
    row = await store.reading(scores.get, one.id)
    assert row == saved
    assert from_json(row.evidence) == evidence
    assert row.digest == hashlib.sha256(row.evidence).hexdigest()
    assert score_from_json(row.result) == score(evidence)
    known = await store.reading(rated_endpoints.get_many, [one.id])
    assert (known[one.id].uptime_tenths, known[one.id].compliant) == (1_000, True)


FIGURES = [schema.endpoint.c[column.name] for column in schema.FIGURES]


@pytest.mark.parametrize(
    "later",
    [
        row("/", 500),
        row("/", 500, as_of=NOW + 1, latency_ms=70),
        row("/", 500, as_of=NOW + 1, payable_24h_permille=990),
        row("/", 500, 51, as_of=NOW + 1),
        row("/", 500, as_of=NOW + 1, recommendation="avoid"),
        row("/", 500, as_of=NOW + 1, uptime_tenths=None),
        row("/", 500, as_of=NOW + 1, compliant=True),
        row("/", None, as_of=NOW + 1),
        row("/", 501, as_of=NOW - 1),
        row("/", 500, as_of=NOW - 1, latency_ms=70),
    ],
)
async def test_scores_saved_together_rank_like_scores_saved_separately(
    store: Store, later: ScoreRow
) -> None:
    """Whether or not they rank as they did before."""
    elsewhere = replace(later, endpoint_id=endpoint("/alone").id)
    for path in ("/", "/alone"):
        await store.writing(endpoints.insert, endpoint(path))
    await save(store, row("/", 500), replace(row("/", 500), endpoint_id=elsewhere.endpoint_id))
    await store.writing(scores.save_many, [later])
    await store.writing(scores.save, elsewhere)

    def ranks(tx: Connection, endpoint_id: str) -> object:
        query = sa.select(*FIGURES).where(schema.endpoint.c.id == endpoint_id)
        return tuple(tx.execute(query).one())

    together = await store.reading(ranks, later.endpoint_id)
    assert together == await store.reading(ranks, elsewhere.endpoint_id)
    newest = await store.reading(scores.get, later.endpoint_id)
    alone = await store.reading(scores.get, elsewhere.endpoint_id)
    assert newest is not None
    assert alone == replace(newest, endpoint_id=elsewhere.endpoint_id)


async def test_older_score_does_not_replace_a_newer_one(store: Store) -> None:
    await store.writing(endpoints.insert, endpoint("/"))
    assert await store.writing(scores.save, row("/", 500))
    assert not await store.writing(scores.save, row("/", 900, as_of=NOW - 1))
    assert await store.writing(scores.save, row("/", 700, as_of=NOW))
    kept = await store.writing(scores.get, endpoint("/").id)
    assert kept == row("/", 700)


async def test_older_score_in_a_batch_does_not_change_the_rank(store: Store) -> None:
    await store.writing(endpoints.insert, endpoint("/"), endpoint("/new"))
    await store.writing(scores.save_many, [row("/", 500), row("/new", 500, as_of=NOW - 1)])
    await store.writing(scores.save_many, [row("/", 900, as_of=NOW - 1), row("/new", 700)])
    kept = [await store.reading(scores.get, endpoint(path).id) for path in ("/", "/new")]
    assert kept == [row("/", 500), row("/new", 700)]
    columns = schema.endpoint.c
    query = sa.select(columns.score_tenths, columns.scored_at).order_by(columns.resource)
    ranked = await store.reading(lambda tx: tx.execute(query).all())
    assert ranked == [(500, NOW), (700, NOW)]


@pytest.mark.parametrize("together", [True, False])
async def test_older_score_ends_its_claim(store: Store, together: bool) -> None:
    await store.writing(endpoints.insert, endpoint("/"))
    await save(store, row("/", 500))

    async def count_claimed(now: int) -> int:
        claim = {"now": now, "limit": 9, "max_age_ms": DAY_MS}
        return len(await store.writing(endpoints.claim_dirty, **claim))

    assert await count_claimed(NOW) == 1
    older = row("/", 900, as_of=NOW - 1)
    if together:
        await store.writing(scores.save_many, [older])
    else:
        await store.writing(scores.save, older)
    assert await count_claimed(NOW + DAY_MS - 1) == 0
    assert await count_claimed(NOW + DAY_MS) == 1


async def test_endpoints_of_a_host_are_sorted_best_first_and_unscored_last(store: Store) -> None:
    await store.writing(
        endpoints.insert,
        *[endpoint(path) for path in ("/low", "/high", "/none", "/new")],
    )
    await store.writing(endpoints.insert, endpoint("/other", host="b.com"))
    await save(store, row("/low", 100), row("/high", 900), row("/none", None))
    listed = await store.reading(rated_endpoints.of_host, "a.com", limit=9)
    assert [one.resource for one in listed[:2]] == ["https://a.com/high", "https://a.com/low"]
    assert {one.resource for one in listed[2:]} == {"https://a.com/none", "https://a.com/new"}
    assert await store.reading(rated_endpoints.of_host, "a.com", limit=1) == listed[:1]
    assert await store.reading(rated_endpoints.of_host, "a.com", limit=3) == listed[:3]


async def test_pages_of_a_host_have_no_gaps(store: Store) -> None:
    paths = [f"/{number}" for number in range(9)]
    await store.writing(endpoints.insert, *[endpoint(path) for path in paths])
    await store.writing(endpoints.insert, endpoint("/other", host="b.com"))
    await save(store, *(row(path, 500 + int(path[1:]) % 2) for path in paths[:6]))
    whole = await store.reading(rated_endpoints.of_host, "a.com", limit=20)
    assert len(whole) == 9
    for limit in (1, 2, 4, 9):
        pages: list[RatedEndpoint] = []
        while page := await store.reading(
            rated_endpoints.of_host, "a.com", after=pages[-1].id if pages else None, limit=limit
        ):
            pages += page
        assert tuple(pages) == whole
    of_another = endpoint("/other", host="b.com").id
    for unknown in (of_another, "0123456789abcdef", "no id"):
        listed = await store.reading(rated_endpoints.of_host, "a.com", after=unknown, limit=4)
        assert listed == whole[:4]


async def test_list_row_has_the_figures_of_the_newest_score(store: Store) -> None:
    await store.writing(endpoints.insert, endpoint("/"), endpoint("/new"))
    newest = row("/", 700, 40, payable_24h_permille=997)
    await save(store, newest, row("/", 300, as_of=NOW - 1, payable_24h_permille=3))
    scored, new = await store.reading(rated_endpoints.of_host, "a.com", limit=3)
    assert (scored.score_tenths, scored.confidence_hundredths, scored.grade) == (700, 40, "B")
    assert (scored.recommendation, scored.uptime_tenths) == ("proceed", 700)
    assert (scored.latency_ms, scored.payable_24h_permille) == (90, 997)
    assert (new.score_tenths, new.recommendation, new.latency_ms) == (None, "unverified", None)
    assert new.payable_24h_permille is None


async def path(
    store: Store,
    name: str,
    tenths: int,
    *,
    reason: str | None = None,
    flags: str = "",
    **known: Any,
) -> Endpoint:
    """A listed path of shop.co.uk with a score, known for 30 days and probed now."""
    one = replace(endpoint(name, host="api.shop.co.uk"), first_seen=NOW - 30 * DAY_MS)
    await store.writing(endpoints.insert, one)
    result = b'{"flags": [{"code": "%s"}]}' % flags.encode() if flags else b'{"flags": []}'
    await save(store, replace(row("/", tenths), endpoint_id=one.id, result=result))
    columns = {"last_probed": NOW, "outage_reason": reason, **known}
    change = schema.endpoint.update().where(schema.endpoint.c.id == one.id).values(columns)
    await store.writing(lambda tx: tx.execute(change))
    return one


def _insert_listing(tx: Connection, values: dict[str, Any]) -> None:
    tx.execute(schema.listing.insert(), values)


async def limit(store: Store, *, days: int = 0) -> int | None:
    """The limit of a new path of the site, some days after it was first seen."""
    new = endpoint("/new", host="www.shop.co.uk")
    found = await store.reading(scoring.gather, new, as_of=NOW + days * DAY_MS)
    return found.site_median_tenths


async def test_new_path_is_limited_by_the_median_of_its_site_for_a_week(store: Store) -> None:
    await path(store, "/one", 300)
    assert await limit(store) is None  # one path is not enough
    await path(store, "/two", 900)
    await path(store, "/three", 800)
    assert [await limit(store, days=days) for days in (0, 6, 7)] == [800, 800, None]


@pytest.mark.parametrize(
    "left_out",
    [
        {"last_probed": NOW - 7 * DAY_MS},
        {"first_seen": NOW - DAY_MS + 1},
        {"flags": "validates-before-402", "failing_since": NOW - DAY_MS},
    ],
)
async def test_path_not_probed_recently_or_validating_first_is_ignored(
    store: Store, left_out: dict[str, Any]
) -> None:
    for name in ("/one", "/two"):
        await path(store, name, 300)
    for name in ("/good", "/better", "/best"):
        await path(store, name, 900, **left_out)
    assert await limit(store) == 300


NOT_FOUND = OUTCOMES[Outcome.NOT_FOUND].buyer


@pytest.mark.parametrize(("days", "expected"), [(3, 440), (29, 440), (31, None)])
async def test_retired_path_counts_with_its_score_of_the_day_before(
    store: Store, days: int, expected: int | None
) -> None:
    gone = NOW - days * DAY_MS
    for name in ("/one", "/two"):
        one = await path(store, name, 120, reason=NOT_FOUND, failing_since=gone)
        day = day_of(gone) - 1
        closed = ClosedDay(Rollup(day=day), None, DayScore(440, 3))
        await store.writing(window.add_closed, {one.id: (closed, ())})
    assert await limit(store) == expected


async def test_delisted_path_is_retired(store: Store) -> None:
    for name in ("/one", "/two"):
        one = await path(store, name, 330, status=Listing.DELISTED)
        gone = {"endpoint_id": one.id, "source": "dir", "crawl_id": 1, "first_seen": 0}
        values = gone | {"last_seen": 0, "delisted_at": NOW - 31 * DAY_MS}
        await store.writing(_insert_listing, values)
    assert await limit(store) is None
    lately = schema.listing.update().values(delisted_at=NOW - DAY_MS)
    await store.writing(lambda tx: tx.execute(lately))
    assert await limit(store) == 330
