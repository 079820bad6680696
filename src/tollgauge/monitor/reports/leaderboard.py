"""Leaderboard: the best listed endpoints that may be paid, a few of each site.

Rules:
- only what is advised to be paid, with or without caution (core/advice.PAYABLE);
- at most SITE_ROWS of one site; the last of them says how many more the site has (counted up to
  MORE_MAX);
- the candidates are read in pages from the index of scores, without the sites that are full, at
  most PAGES pages: many paths of one site hide nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.advice import PAYABLE
from tollgauge.core.policy import CURRENT
from tollgauge.monitor.reports.snapshots import Snapshot, snapshot_of
from tollgauge.store.endpoints import endpoints, scores
from tollgauge.store.endpoints.scores import Candidate

SIZE: Final = 25
SITE_ROWS: Final = 3
MORE_MAX: Final = 1_000
PAGE: Final = 200
PAGES: Final = 20


@dataclass(frozen=True, slots=True)
class MoreOfSite:
    """How many endpoints of a site could stand on the leaderboard and do not; MORE_MAX stands for
    that many or more.
    """

    site: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """The best listed endpoints, best first (at most 25). `as_of` is when the last of them was
    scored. `more` is what is not shown of a site, by the id of the last row that is.
    """

    as_of: int
    policy_version: int
    rows: tuple[Snapshot, ...]
    more: Mapping[str, MoreOfSite] = field(default_factory=dict)


def leaderboard(tx: Connection, *, now: int) -> Leaderboard:
    """The best listed endpoints, best first, as of the newest of their scores: it is the same,
    and keeps its entity tag, until one of them is scored again.
    """
    best = _best(tx)
    ids = [candidate.endpoint_id for candidate in best]
    known, latest = endpoints.get_many(tx, ids), scores.get_many(tx, ids)
    rows = [latest[id_] for id_ in ids if id_ in latest and id_ in known]
    return Leaderboard(
        as_of=max((row.as_of for row in rows), default=now),
        policy_version=CURRENT.version,
        rows=tuple(snapshot_of(known[row.endpoint_id], row, now=row.as_of) for row in rows),
        more=_more(tx, best),
    )


def _best(tx: Connection) -> list[Candidate]:
    """The rows of the leaderboard."""
    best: list[Candidate] = []
    rows_by_site: Counter[str] = Counter()
    after: Candidate | None = None
    for _ in range(PAGES):
        full = [site for site, shown in rows_by_site.items() if shown == SITE_ROWS]
        page = scores.candidates(
            tx, recommended=PAYABLE, without_sites=full, after=after, limit=PAGE
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


def _more(tx: Connection, best: Sequence[Candidate]) -> dict[str, MoreOfSite]:
    rows_by_site = Counter(candidate.site for candidate in best)
    last_row = {candidate.site: candidate.endpoint_id for candidate in best}
    more: dict[str, MoreOfSite] = {}
    for site, shown in rows_by_site.items():
        if shown == SITE_ROWS:
            most = shown + MORE_MAX
            count = scores.count_of_site(tx, site, recommended=PAYABLE, most=most)
            if count > shown:
                more[last_row[site]] = MoreOfSite(site, count - shown)
    return more
