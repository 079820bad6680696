"""The ranked population, against real databases and a count of everything."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.crawls import finish_crawl
from tests.support.databases import on_sqlite
from tests.support.score_rows import NOW, endpoint, row, save
from tests.support.statements import query_plans

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory.listing import ListedItem
from tollgauge.core.endpoint.identity import Listing, Resource, parse_resource
from tollgauge.core.score.score import Down
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery
from tollgauge.store import tables
from tollgauge.store.endpoints import crawls, endpoints, ranking, rated_endpoints
from tollgauge.store.endpoints.ranking import Candidate, Population
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.scores import scores


async def order(store: Store, count: int) -> list[str | None]:
    return [await store.reading(ranking.at, rank) for rank in range(1, count + 1)]


async def test_listed_endpoints_are_ordered_by_rank_key_then_id(
    store: Store,
) -> None:
    listed = {"/90": (900, 50), "/80a": (800, 50), "/80b": (800, 60), "/0": (0, 99)}
    await store.writing(endpoints.insert, *[endpoint(path) for path in [*listed, "/none"]])
    await store.writing(endpoints.insert, replace(endpoint("/gone"), status=Listing.DELISTED))
    await store.writing(endpoints.insert, endpoint("/asked"), adopted=True)
    hidden = [row("/none", None), row("/gone", 999), row("/asked", 999)]
    await save(store, *(row(path, *values) for path, values in listed.items()), *hidden)
    wanted = [endpoint(path).id for path in ("/90", "/80b", "/80a", "/0")]
    assert await order(store, 5) == [*wanted, None]
    assert await store.reading(ranking.population) == Population(
        scored=4, reachable=3, compliant=1, grades=(("A", 1), ("B", 3))
    )


async def test_equal_scores_are_ordered_by_id_like_the_index(store: Store) -> None:
    paths = [f"/{i}" for i in range(9)]
    await store.writing(endpoints.insert, *[endpoint(path) for path in paths])
    await save(store, *(row(path, 500) for path in paths))
    assert await order(store, 9) == sorted((endpoint(path).id for path in paths), reverse=True)


@on_sqlite
async def test_endpoints_of_a_site_are_counted_up_to_the_limit(store: Store) -> None:
    paths = [f"/{i}" for i in range(5)]
    await store.writing(endpoints.insert, *[endpoint(path) for path in paths])
    await store.writing(endpoints.insert, endpoint("/", host="b.com"))
    await save(store, *(row(path, 500) for path in paths[:4]))
    await save(store, row("/4", 500, recommendation="avoid"))

    async def count(most: int) -> int:
        return await store.reading(
            ranking.count_of_site, "a.com", recommended={"proceed"}, most=most
        )

    assert [await count(most) for most in (3, 4, 9)] == [3, 4, 4]


@on_sqlite
async def test_endpoint_with_a_confirmed_outage_is_not_a_candidate(store: Store) -> None:
    outages = {
        "/up": None,
        "/failed": Down(since=NOW, reason="it failed (5xx)", confirmed=False),
        "/down": Down(since=NOW, reason="it failed (5xx)", confirmed=True),
    }
    await store.writing(endpoints.insert, *[endpoint(path) for path in outages])
    await save(store, *(row(path, 850, down=down) for path, down in outages.items()))
    ids = [endpoint(path).id for path in outages]

    def find(tx: Connection) -> tuple[list[str], tuple[str, ...], int]:
        recommended = {"proceed"}
        found = ranking.candidates(
            tx, recommended=recommended, without_sites=(), after=None, limit=9
        )
        still = ranking.still_candidates(tx, ids, recommended=recommended)
        count = ranking.count_of_site(tx, "a.com", recommended=recommended, most=9)
        return [one.endpoint_id for one in found], still, count

    found, still, count = await store.reading(find)
    assert set(found) == set(still) == set(ids[:2])
    assert count == 2
    known = await store.reading(rated_endpoints.get_many, ids)
    assert {one.id for one in known.values() if one.offered} == set(ids[:2])
    assert known[ids[2]].down == outages["/down"]


@on_sqlite
async def test_population_without_scores_is_empty(store: Store) -> None:
    assert await order(store, 2) == [None, None]
    assert await store.reading(ranking.population) == Population(
        scored=0, reachable=0, compliant=0, grades=()
    )


@on_sqlite
async def test_former_candidates_are_left_out(store: Store) -> None:
    paths = ("/bad", "/gone", "/best", "/good")
    await store.writing(endpoints.insert, *[endpoint(path) for path in paths])
    await save(store, row("/bad", 999, recommendation="avoid"), row("/gone", 950))
    await save(store, row("/best", 900), row("/good", 800))
    gone = replace(endpoint("/gone"), status=Listing.DELISTED)
    await store.writing(endpoints.update, gone)
    still = await store.reading(
        ranking.still_candidates,
        [endpoint(path).id for path in paths],
        recommended={"proceed", "caution"},
    )
    assert still == (endpoint("/best").id, endpoint("/good").id)


@pytest.mark.parametrize(
    ("index", "read", "values"),
    [
        ("ix_endpoint_rank", ranking.at, {"rank": 3}),
        ("ix_endpoint_rank", ranking.population, {}),
        (
            "ix_endpoint_rank",
            ranking.candidates,
            {
                "recommended": {"proceed"},
                "without_sites": ["a.com"],
                "after": Candidate(endpoint_id="8", site="", rank_key=50_050),
                "limit": 9,
            },
        ),
        ("ix_endpoint_host_score", rated_endpoints.of_host, {"host": "a.com", "limit": 9}),
        (
            "ix_endpoint_host_score",
            rated_endpoints.of_host,
            {"host": "a.com", "after": endpoint("/").id, "limit": 9},
        ),
        ("ix_endpoint_simulated", endpoints.counts, {}),
        ("ix_flip_host", changes.public, {"host": "a.com"}),
        ("ix_flip_at", changes.public_since, {"since": 1, "limit": 9}),
        ("ix_flip_type_at", changes.public_since, {"since": 1, "kind": "payto_change", "limit": 9}),
        ("ix_endpoint_rank", ranking.by_figures, {"scores": (500,), "uptimes": (500,)}),
        ("USING PRIMARY KEY", rated_endpoints.with_prefix, {"prefix": "a", "limit": 9}),
        (
            "ix_endpoint_score_due",
            endpoints.claim_dirty,
            {"now": NOW, "limit": 9, "max_age_ms": DAY_MS},
        ),
    ],
)
async def test_queries_over_many_endpoints_use_an_index_order(
    index: str, read: Callable[..., Any], values: dict[str, Any]
) -> None:
    store = Store.open("sqlite://")
    await store.migrate()
    await store.writing(endpoints.insert, endpoint("/"))
    await save(store, row("/", 500))
    plan = await store.reading(query_plans, read, **values)
    assert index in plan
    assert "ORDER BY" not in plan
    assert "SCAN endpoint\n" not in f"{plan}\n"
    await store.close()


async def test_population_matches_listings_and_scores_after_random_events(
    store: Store,
) -> None:
    dice = random.Random(7)
    resources = [parse_resource(f"https://{h}.com/{p}") for h in "abc" for p in range(4)]
    for step in range(60):
        now = NOW + step * DAY_MS
        resource = dice.choice(resources)
        match dice.randrange(5):
            case 0:
                listed = dice.sample(resources, dice.randrange(1, 7))
                await crawl(store, dice.choice("xy"), listed, now=now)
            case 1:
                await store.writing(discovery.adopt, resource, source="us", now=now)
            case 2:
                await store.writing(tables.forget_never_public, now=now, limit=9)
            case _:
                at = now - dice.choice((0, 3)) * DAY_MS
                tenths = dice.choice((None, 0, 500, 900))
                score = row(
                    "/",
                    tenths,
                    dice.randrange(3),
                    as_of=at,
                    recommendation=dice.choice(("proceed", "avoid")),
                )
                await store.writing(scores.save, replace(score, endpoint_id=resource.id))
        ids, population = await store.reading(count_ranked)
        assert await order(store, len(ids) + 1) == [*ids, None]
        assert await store.reading(ranking.population) == population


async def crawl(store: Store, source: str, resources: list[Resource], *, now: int) -> None:
    """One complete crawl of a source that lists these."""
    begun = await store.writing(crawls.begin_crawl, source, now=now)
    items = [ListedItem(resource=resource) for resource in resources]
    await store.writing(discovery.record_page, begun, items, next_offset=len(items), now=now)
    await store.writing(finish_crawl, begun, complete=True, now=now)


def count_ranked(tx: Connection) -> tuple[list[str], Population]:
    """The order and the counts, from all endpoints that have a row of a score."""
    ids = tx.execute(sa.select(schema.score.c.endpoint_id)).scalars()
    known = rated_endpoints.get_many(tx, ids)
    ranked = [
        one
        for one in known.values()
        if one.status is Listing.LISTED and one.score_tenths is not None
    ]
    grades = [one.grade for one in ranked]
    ranked.sort(key=lambda one: (one.rank_key, one.id), reverse=True)
    return [one.id for one in ranked], Population(
        scored=len(ranked),
        reachable=sum((one.uptime_tenths or 0) > 0 for one in ranked),
        compliant=sum(one.compliant for one in ranked),
        grades=tuple((grade, grades.count(grade)) for grade in sorted(set(filter(None, grades)))),
    )
