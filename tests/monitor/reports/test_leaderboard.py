"""The rows of the leaderboard."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import sqlalchemy as sa
from msgspec import structs
from sqlalchemy import Connection
from tests.support.databases import on_both, on_sqlite
from tests.support.evidences import AS_OF, dead, payable

from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.endpoint.identity import Endpoint, Listing, endpoint_id
from tollgauge.core.score.evidence import Evidence
from tollgauge.core.score.scoring import score
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs.score import rank_endpoints
from tollgauge.monitor import ranking, scoring
from tollgauge.monitor.ranking import MORE_MAX, MoreOfSite
from tollgauge.monitor.reports.overview import Leaderboard, leaderboard
from tollgauge.store.endpoints import endpoints
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow

pytestmark = on_sqlite

STALE = replace(payable(), as_of=AS_OF + 24 * HOUR_MS)
GOOD = payable()
assert GOOD.last is not None
NOT_PAYABLE = payable(last=replace(GOOD.last, accepts=0, payable=False))


async def add(
    store: Store, host: str, *paths: str, evidence: Evidence = GOOD, tenths: int | None = None
) -> None:
    """Add endpoints of a listed host, all with the same score."""
    for path in paths:
        resource = f"https://{host}{path}"
        endpoint = Endpoint(
            id=endpoint_id(resource),
            resource=resource,
            host=host,
            first_seen=AS_OF,
            last_seen=AS_OF,
            status=Listing.LISTED,
        )
        row = scoring.score_evidence(endpoint.id, evidence)
        if tenths is not None:
            row = with_points(row, tenths)
        await store.writing(endpoints.insert, endpoint)
        await store.writing(scores.save, row)


def with_points(row: ScoreRow, tenths: int) -> ScoreRow:
    """Return a score with another number of points."""
    assert row.figures is not None
    assert row.figures.rank_key is not None
    # The points are the most significant part of the rank key (compute_rank_key).
    rank_key = row.figures.rank_key + (tenths - (row.score_tenths or 0)) * 1_001 * 10_000**2 * 1_000
    figures = structs.replace(row.figures, score_tenths=tenths, rank_key=rank_key)
    return replace(row, score_tenths=tenths, figures=figures)


async def board(store: Store) -> Leaderboard:
    return await store.reading(leaderboard, now=AS_OF)


@pytest.mark.parametrize(
    ("evidence", "advice"),
    [
        (dead(), "avoid"),
        (payable(wildcard=True), "avoid"),
        (replace(GOOD, templated=True), "parameterize"),
        (STALE, "unverified"),
        (NOT_PAYABLE, "not-payable"),
    ],
)
async def test_endpoints_to_avoid_are_excluded_whatever_their_score(
    store: Store, evidence: Evidence, advice: str
) -> None:
    assert score(evidence).recommendation == advice
    await add(store, "bad.example.com", "/", evidence=evidence, tenths=1_000)
    await add(store, "good.example.org", "/")
    assert [row.host for row in (await board(store)).rows] == ["good.example.org"]


async def test_site_has_three_rows_and_the_rest_is_counted(store: Store) -> None:
    paths = [f"/{number}" for number in range(5)]
    await add(store, "a.shop.co.uk", *paths, tenths=990)
    await add(store, "b.shop.co.uk", *paths, tenths=980)
    await add(store, "shop.co.uk", "/")
    await add(store, "shop.co.uk", "/dead", evidence=dead())
    await add(store, "other.co.uk", "/1", "/2", "/3", tenths=970)
    shown = await board(store)
    assert Counter(row.host for row in shown.rows) == {"a.shop.co.uk": 3, "other.co.uk": 3}
    assert [row.score_tenths for row in shown.rows[:3]] == [990, 990, 990]
    assert shown.more == {shown.rows[2].id: MoreOfSite("shop.co.uk", 8)}


async def test_many_paths_of_one_site_do_not_displace_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "PAGE", 20)
    await add(store, "spam.example.com", *(f"/{n}" for n in range(70)), tenths=990)
    for number in range(30):
        await add(store, f"seller-{number:02}.org", "/", tenths=900 - number)
    shown = await board(store)
    assert len(shown.rows) == 25
    assert [row.host for row in shown.rows[3:]] == [f"seller-{n:02}.org" for n in range(22)]
    assert [more.count for more in shown.more.values()] == [67]


@on_both
async def test_thousands_of_listings_of_one_site_get_three_rows(store: Store) -> None:
    """Half of them are paths of one host; the other half have one host each."""
    await add(store, "spam.example.com", "/", tenths=990)
    await add(store, "seller.example.org", "/")
    spam = [f"spam.example.com/{number}" for number in range(1_500)]
    spam += [f"host-{number}.example.com/" for number in range(1_500)]
    added = [
        Endpoint(
            id=endpoint_id(f"https://{address}"),
            resource=f"https://{address}",
            host=address.partition("/")[0],
            first_seen=AS_OF,
            last_seen=AS_OF,
        )
        for address in spam
    ]
    await store.writing(endpoints.insert, *added)
    await store.writing(score_all_like, endpoint_id("https://spam.example.com/"))
    shown = await board(store)
    assert [row.host.endswith(".example.com") for row in shown.rows] == [True] * 3 + [False]
    assert shown.more[shown.rows[2].id].count == MORE_MAX


def score_all_like(tx: Connection, id_: str) -> None:
    """Give every endpoint without a score the figures of one."""
    table = schema.endpoint
    figures = [table.c[column.name] for column in schema.FIGURES]
    row = tx.execute(sa.select(*figures).where(table.c.id == id_)).one()
    tx.execute(table.update().values(dict(row._mapping)).where(table.c.scored_at.is_(None)))


@on_both
async def test_leaderboard_is_empty_without_scores(store: Store) -> None:
    shown = await board(store)
    assert (shown.rows, shown.more, shown.as_of) == ((), {}, AS_OF)


async def test_stored_ranking_omits_endpoints_that_became_unpayable(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "COUNTED_MAX", 0)
    for host, tenths in (("a.org", 990), ("b.org", 980), ("c.org", 970), ("d.org", 960)):
        await add(store, host, "/", tenths=tenths)
    await add(store, "shop.org", "/1", "/2", "/3", "/4", tenths=950)
    assert await rank_endpoints(store, clock=lambda: AS_OF) == {"ranked": 8}
    await rescore(store, "https://a.org/", dead(), tenths=990)
    gone = await store.reading(endpoints.get, endpoint_id("https://b.org/"))
    assert gone is not None
    await store.writing(endpoints.update, replace(gone, status=Listing.DELISTED))
    await rescore(store, "https://d.org/", GOOD, tenths=1_000)
    shown = await board(store)
    assert [row.host for row in shown.rows] == ["d.org", "c.org", *["shop.org"] * 3]
    assert shown.more == {shown.rows[-1].id: MoreOfSite("shop.org", 1)}


async def rescore(store: Store, resource: str, evidence: Evidence, *, tenths: int) -> None:
    row = scoring.score_evidence(endpoint_id(resource), evidence)
    assert await store.writing(scores.save, with_points(row, tenths))
