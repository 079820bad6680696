"""Compute the leaderboard and counts over all endpoints.

The leaderboard has at most SIZE endpoints, at most SITE_ROWS of them from one site, and only those
with the advice to proceed (core/score/advice.LEADING). A ranking of more than COUNTED_MAX endpoints
is stored by a worker (jobs/score), recomputed after REFRESH_MS and used for USE_MS; a smaller one
is computed per request. It contains endpoint IDs; their values are read for each response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import TypeAdapter
from sqlalchemy import Connection

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.score.advice import LEADING
from tollgauge.db.meta import CachedValue
from tollgauge.store.endpoints import endpoints, ranking
from tollgauge.store.endpoints.ranking import Candidate, Population

SIZE: Final = 25
SITE_ROWS: Final = 3
MORE_MAX: Final = 1_000
PAGE: Final = 200
PAGES: Final = 20
COUNTED_MAX: Final = 2_000
REFRESH_MS: Final = 45_000
USE_MS: Final = 2 * MINUTE_MS

Role = Literal["best", "median", "worst"]


@dataclass(frozen=True, slots=True)
class MoreOfSite:
    """Number of further endpoints of a site that qualify for the leaderboard, at most MORE_MAX."""

    site: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleEndpoint:
    """The best, median or worst endpoint of the ranked population, with its rank (1 is the
    best).
    """

    role: Role
    rank: int
    endpoint_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Figures computed from all endpoints, as of a time (ms UTC).

    `best` contains the leaderboard's rows, best first, and `more` the numbers of endpoints of their
    sites that are not shown. `examples` has fewer than three entries for a tiny population.
    `simulated` counts endpoints created by the demo.
    """

    as_of: int
    population: Population
    listed: int
    delisted: int
    simulated: int
    best: tuple[Candidate, ...]
    more: tuple[MoreOfSite, ...]
    examples: tuple[ExampleEndpoint, ...]


_CACHED: Final = CachedValue(
    key="ranking", form=TypeAdapter(Ranking), refresh_ms=REFRESH_MS, use_ms=USE_MS
)
is_due: Final = _CACHED.is_due


def current(tx: Connection, *, now: int) -> Ranking:
    """Return the stored ranking if it is fresh enough, otherwise a computed one."""
    return _CACHED.usable(tx, now=now) or count(tx, now=now)


def count(tx: Connection, *, now: int) -> Ranking:
    """Compute the ranking."""
    population = ranking.population(tx)
    known = endpoints.counts(tx)
    best = _best(tx)
    return Ranking(
        as_of=now,
        population=population,
        listed=known["listed"],
        delisted=known["delisted"],
        simulated=known["simulated"],
        best=tuple(best),
        more=tuple(_more(tx, best)),
        examples=tuple(_examples(tx, population.scored)),
    )


def keep(tx: Connection, counted: Ranking) -> bool:
    """Store a ranking of more than COUNTED_MAX endpoints and return True; otherwise delete the
    stored one.
    """
    worthwhile = counted.population.scored > COUNTED_MAX
    _CACHED.keep(tx, counted, worthwhile=worthwhile)
    return worthwhile


def _examples(tx: Connection, size: int) -> list[ExampleEndpoint]:
    ranks: dict[int, Role] = {}
    roles: tuple[tuple[Role, int], ...] = (
        ("best", 1),
        ("median", (size + 1) // 2),
        ("worst", size),
    )
    for role, rank in roles if size else ():
        ranks.setdefault(rank, role)
    return [
        ExampleEndpoint(role=role, rank=rank, endpoint_id=id_)
        for rank, role in ranks.items()
        if (id_ := ranking.at(tx, rank)) is not None
    ]


def _best(tx: Connection) -> list[Candidate]:
    """Return the leaderboard's rows."""
    best: list[Candidate] = []
    rows_by_site: Counter[str] = Counter()
    after: Candidate | None = None
    for _ in range(PAGES):
        # Sites with all their rows are excluded from the next page: a site with thousands of paths
        # could otherwise fill every page.
        full = [site for site, shown in rows_by_site.items() if shown == SITE_ROWS]
        page = ranking.candidates(
            tx, recommended=LEADING, without_sites=full, after=after, limit=PAGE
        )
        for candidate in page:
            if rows_by_site[candidate.site] < SITE_ROWS:
                rows_by_site[candidate.site] += 1
                best.append(candidate)
            if len(best) == SIZE:
                return best
        if len(page) < PAGE:
            break
        after = page[-1]
    return best


def _more(tx: Connection, best: Sequence[Candidate]) -> list[MoreOfSite]:
    more = []
    for site, shown in Counter(candidate.site for candidate in best).items():
        if shown == SITE_ROWS:
            most = shown + MORE_MAX
            of_site = ranking.count_of_site(tx, site, recommended=LEADING, most=most)
            if of_site > shown:
                more.append(MoreOfSite(site, of_site - shown))
    return more
