"""Every filter and every order of lists, against the same done one endpoint at a time."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.rated_endpoints import build_columns, quote

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import Listing, endpoint_id
from tollgauge.core.lists.columns import NOTHING, CursorError
from tollgauge.core.lists.rated_endpoint import (
    GRADES,
    Filter,
    RatedEndpoint,
    Sort,
    compute_rank_key,
    grades_from,
)
from tollgauge.core.score.evidence import Evidence
from tollgauge.core.score.score import ShownDemand, Stats
from tollgauge.core.score.scoring import score

INFINITE = float("inf")


def demand(proven: int) -> ShownDemand:
    return ShownDemand(payers=9, volume=9, proven_payers=proven, proven_volume=proven)


def figures(number: int, dice: random.Random) -> RatedEndpoint:
    host = f"h{dice.randrange(4)}.example.com"
    resource = f"https://{host}/{number}"
    measured = dice.random() < 0.8
    score = dice.randrange(0, 1_000, 50)
    return RatedEndpoint(
        id=endpoint_id(resource),
        resource=resource,
        host=host,
        status=dice.choice((Listing.LISTED,) * 3 + (Listing.DELISTED, Listing.UNLISTED)),
        quote=quote(
            dice.choice((None, 0, 1_000, 5_000, 10**30)),
            dice.choice((None, "0xaa")),
            dice.choice(("eip155:8453", "eip155:10")),
        ),
        recommendation=dice.choice(("proceed", "avoid", "unverified")),
        grade=dice.choice(GRADES) if measured else None,
        score_tenths=score if measured else None,
        rank_key=score * 10 + dice.randrange(3) if measured else None,
        demand=dice.choice((None, demand(0), demand(3))),
        uptime_tenths=dice.choice((None, 0, 995, 1_000)) if measured else None,
        latency_ms=dice.choice((None, 90, 120)) if measured else None,
        first_seen=dice.randrange(5),
    )


DICE = random.Random(8402)
KNOWN = [figures(number, DICE) for number in range(400)]
HIDDEN = [replace(figures(number, DICE), public=False) for number in (400, 401)]
PLACED = [*KNOWN[:200], HIDDEN[0], *KNOWN[200:], HIDDEN[1]]
COLUMNS = build_columns(PLACED)


def last(value: int | None, *, most_first: bool = False) -> float:
    return INFINITE if value is None else -value if most_first else value


ORDERS: dict[Sort, Callable[[RatedEndpoint], Any]] = {
    Sort.SCORE: lambda row: (
        last(row.rank_key, most_first=True),
        row.id,
    ),
    Sort.PRICE: lambda row: (last(row.price_micro_usd), row.id),
    Sort.UPTIME: lambda row: (last(row.uptime_tenths, most_first=True), row.id),
    Sort.LATENCY: lambda row: (last(row.latency_ms), row.id),
    Sort.NEWEST: lambda row: (-row.first_seen, row.id),
    Sort.NAME: lambda row: row.resource,
}


def drawn_filter(dice: random.Random) -> Filter:
    return Filter(
        status=dice.choice((None, *Listing)),
        host=dice.choice((None, None, "h1.example.com", "nobody.example.com")),
        network=dice.choice((None, None, "eip155:8453", "eip155:1")),
        recommendation=dice.choice((None, None, "proceed")),
        grades=dice.choice(("", "", "A", grades_from("C"))),
        max_price=dice.choice((None, None, 0, 1_000, 10**40)),
        min_proven_payers=dice.choice((None, None, None, 1, 3, 4, 10**40)),
    )


@pytest.mark.parametrize("sort", Sort)
def test_pages_of_any_filter_are_all_it_admits_in_order(sort: Sort) -> None:
    dice = random.Random(sort)
    for _ in range(30):
        wanted = drawn_filter(dice)
        expected = [row.id for row in sorted(KNOWN, key=ORDERS[sort]) if wanted.admits(row)]
        listed: list[str] = []
        cursor, cursors = "", [""]
        while True:
            page = COLUMNS.page(wanted, sort, after=cursor, limit=7)
            assert (page.total, page.before) == (len(expected), len(listed))
            assert page.previous == (cursors[-2] if len(cursors) > 1 else None)
            listed += page.ids
            if page.next is None:
                break
            cursors.append(cursor := page.next)
        assert listed == expected


def test_page_starts_after_its_cursor_despite_insertions_and_deletions() -> None:
    first = COLUMNS.page(Filter(), Sort.SCORE, limit=10)
    assert first.next is not None
    gone = {first.ids[-1], first.ids[3]}
    best = replace(
        KNOWN[0], id="0" * 16, status=Listing.LISTED, rank_key=10**6, resource="https://x.co/"
    )
    later = build_columns([best, *(row for row in KNOWN if row.id not in gone)])
    second = COLUMNS.page(Filter(), Sort.SCORE, after=first.next, limit=10)
    assert later.page(Filter(), Sort.SCORE, after=first.next, limit=10).ids == second.ids


@pytest.mark.parametrize(
    "cursor",
    ["x", "~", "1~", "~a", f"{10**18}~a", "1~a\n", "1.5~a", "\u0661~a", "1~" + "a" * 3_000],
)
def test_rejects_invalid_cursors(cursor: str) -> None:
    with pytest.raises(CursorError):
        COLUMNS.page(Filter(), Sort.SCORE, after=cursor, limit=1)


def test_nothing_known_is_an_empty_page() -> None:
    page = build_columns([]).page(Filter(), Sort.NAME, after="0~https://x.co/", limit=5)
    assert (page.ids, page.total, page.next) == ((), 0, None)
    assert build_columns([]).networks == ()


def test_networks_are_named_most_frequent_first() -> None:
    networks = ("a", "b", "b", None, "c", "c", "c")
    rows = [
        replace(KNOWN[0], quote=None if name is None else quote(1, network=name))
        for name in networks
    ]
    hidden = replace(rows[0], public=False)
    assert build_columns([*rows, hidden, hidden, hidden]).networks == ("c", "b", "a")


def test_equal_scores_are_ordered_by_range_then_proven_payers_then_age_then_hash() -> None:
    plain = score(Evidence(resource="https://a.example/", as_of=40 * DAY_MS, first_seen=0))
    base = dataclasses.replace(plain, score_tenths=850, low_tenths=800)

    def older(days: int) -> Stats:
        return dataclasses.replace(base.stats, observed_days=days)

    ascending = [
        dataclasses.replace(base, score_tenths=849, low_tenths=849, demand=demand(99)),
        dataclasses.replace(base, low_tenths=799, demand=demand(99)),
        dataclasses.replace(base, demand=demand(0), stats=older(10**6)),
        dataclasses.replace(base, demand=demand(1), stats=older(3)),
        dataclasses.replace(base, demand=demand(1), stats=older(4)),
        dataclasses.replace(base, score_tenths=1_000, low_tenths=1_000, demand=demand(10**9)),
    ]
    keys = [compute_rank_key(one, "https://a.example/") for one in ascending]
    assert keys == sorted(key for key in keys if key is not None)
    assert (keys[-1] or 0) < NOTHING
    urls = [f"https://{name}.example/" for name in "abcdefgh"]
    tomorrow = dataclasses.replace(base, as_of=base.as_of + DAY_MS)
    orders = [
        sorted(urls, key=lambda url: compute_rank_key(day, url) or 0) for day in (base, tomorrow)
    ]
    assert orders[0] != orders[1]
    assert compute_rank_key(plain, urls[0]) is None
