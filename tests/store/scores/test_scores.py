"""Saved scores and their order, against real databases."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.score_rows import NOW, endpoint, row, save

from tollgauge.core.base.units import DAY_MS, WINDOW_MS
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.probe.rollup import Rollup
from tollgauge.core.probe.spans import Spans
from tollgauge.core.score.evidence import Evidence, LatestState, from_json
from tollgauge.core.score.score import score_from_json
from tollgauge.core.score.scoring import score
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring
from tollgauge.store.endpoints import endpoints, rated_endpoints
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow


async def test_a_saved_score_is_the_one_that_its_evidence_gives(store: Store) -> None:
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
                latency=((100, 2),),
                spans=Spans(up=9, payable=9, compliance=700),
            ),
        ),
        state=LatestState(at=NOW, outcome="payment-required", up=True, payable=True),
    )
    await store.writing(endpoints.insert, one)
    saved = scoring.scored(one.id, evidence)
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
async def test_scores_that_are_saved_together_rank_their_endpoints_as_one_that_is_saved_alone(
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


async def test_an_older_score_never_replaces_a_newer(store: Store) -> None:
    await store.writing(endpoints.insert, endpoint("/"))
    assert await store.writing(scores.save, row("/", 500))
    assert not await store.writing(scores.save, row("/", 900, as_of=NOW - 1))
    assert await store.writing(scores.save, row("/", 700, as_of=NOW))
    kept = await store.writing(scores.get, endpoint("/").id)
    assert kept == row("/", 700)


async def test_an_older_score_of_several_ranks_nothing(store: Store) -> None:
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
async def test_an_older_score_ends_the_claim_that_it_was_computed_under(
    store: Store, together: bool
) -> None:
    await store.writing(endpoints.insert, endpoint("/"))
    await save(store, row("/", 500))

    async def claimed(now: int) -> int:
        claim = {"now": now, "limit": 9, "max_age_ms": DAY_MS}
        return len(await store.writing(endpoints.claim_dirty, **claim))

    assert await claimed(NOW) == 1
    older = row("/", 900, as_of=NOW - 1)
    if together:
        await store.writing(scores.save_many, [older])
    else:
        await store.writing(scores.save, older)
    assert await claimed(NOW + DAY_MS - 1) == 0
    assert await claimed(NOW + DAY_MS) == 1


async def test_a_hosts_endpoints_come_best_first_and_unscored_last(store: Store) -> None:
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


async def test_pages_of_a_host_follow_each_other_without_a_gap(store: Store) -> None:
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


async def test_a_row_of_a_list_has_the_figures_of_the_newest_score(store: Store) -> None:
    await store.writing(endpoints.insert, endpoint("/"), endpoint("/new"))
    newest = row("/", 700, 40, payable_24h_permille=997)
    await save(store, newest, row("/", 300, as_of=NOW - 1, payable_24h_permille=3))
    scored, new = await store.reading(rated_endpoints.of_host, "a.com", limit=3)
    assert (scored.score_tenths, scored.confidence_hundredths, scored.grade) == (700, 40, "B")
    assert (scored.recommendation, scored.uptime_tenths) == ("proceed", 700)
    assert (scored.latency_ms, scored.payable_24h_permille) == (90, 997)
    assert (new.score_tenths, new.recommendation, new.latency_ms) == (None, "unverified", None)
    assert new.payable_24h_permille is None


async def test_the_median_of_a_site_is_of_the_endpoints_that_were_known_before(
    store: Store,
) -> None:
    old = [endpoint(f"/{number}", host=f"api{number % 2}.shop.co.uk") for number in range(5)]
    others = [endpoint("/new", host="api0.shop.co.uk"), endpoint("/", host="other.co.uk")]
    known = [replace(one, first_seen=NOW - DAY_MS) for one in old]
    await store.writing(endpoints.insert, *known, *others)
    saved = [
        replace(row("/", tenths), endpoint_id=one.id)
        for one, tenths in zip([*known, *others], [100, 900, 300, 400, None, 999, 999], strict=True)
    ]
    await save(store, *saved)
    earlier, later = NOW - DAY_MS, NOW + 1
    assert await store.reading(scores.site_medians, "shop.co.uk", before={earlier, NOW, later}) == {
        earlier: None,
        NOW: 300,
        later: 400,
    }


async def test_a_large_site_is_measured_by_the_endpoints_that_are_known_for_longest(
    store: Store,
) -> None:
    """Those of the host that sorts last came first, so many that they alone are asked."""
    paths = [(host, number) for host in ("a", "z") for number in range(scores.SITE_MAX)]
    listed = [
        replace(
            endpoint(f"/{number}", host=f"{host}.shop.co.uk"),
            first_seen=NOW - (2 if host == "z" else 1) * DAY_MS,
        )
        for host, number in paths
    ]
    await store.writing(endpoints.insert, *listed)
    for one in listed:
        tenths = 200 if one.host == "z.shop.co.uk" else 900
        await save(store, replace(row("/", tenths), endpoint_id=one.id))
    medians = await store.reading(scores.site_medians, "shop.co.uk", before={NOW})
    assert medians == {NOW: 200}


async def test_a_new_path_of_a_known_site_is_measured_by_the_site_for_a_week(store: Store) -> None:
    old = replace(endpoint("/old", host="api.shop.co.uk"), first_seen=NOW - 30 * DAY_MS)
    sibling = replace(endpoint("/sibling", host="api.shop.co.uk"), first_seen=NOW - DAY_MS)
    new = endpoint("/new", host="www.shop.co.uk")
    await store.writing(endpoints.insert, old, sibling, new)
    await save(store, replace(row("/", 300), endpoint_id=old.id))
    medians = [
        (await store.reading(scoring.gather, one, as_of=NOW + days * DAY_MS)).site_median_tenths
        for one, days in ((new, 0), (new, 6), (new, 7), (old, 0))
    ]
    assert medians == [300, 300, None, None]
    await save(store, replace(row("/", 900), endpoint_id=sibling.id))
    evidence = await store.reading(scoring.gather, new, as_of=NOW)
    assert evidence.site_median_tenths == 300
