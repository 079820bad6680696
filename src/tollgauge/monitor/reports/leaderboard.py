"""Leaderboard: the best listed endpoints that may be paid, a few of each site.

monitor/ranking chooses the endpoints. Those that may not be paid any more, or are no longer listed,
are left out here; the others are in the order of their latest scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.score.advice import PAYABLE
from tollgauge.core.score.policy import POLICY
from tollgauge.monitor import ranking
from tollgauge.monitor.ranking import MoreOfSite
from tollgauge.store.endpoints import ranking as ranks
from tollgauge.store.endpoints import rated_endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """The best listed endpoints, best first (at most 25). `as_of` is when the last of them was
    scored. `more` is what is not shown of a site, by the id of the last row that is.
    """

    as_of: int
    policy_version: int
    rows: tuple[RatedEndpoint, ...]
    more: Mapping[str, MoreOfSite] = field(default_factory=dict)


def leaderboard(tx: Connection, *, now: int) -> Leaderboard:
    """The best listed endpoints, best first, as of the newest of their scores: it is the same,
    and keeps its entity tag, until one of them is scored again.
    """
    chosen = ranking.current(tx, now=now)
    sites = {candidate.endpoint_id: candidate.site for candidate in chosen.best}
    ids = ranks.still_candidates(tx, sites, recommended=PAYABLE)
    known = rated_endpoints.get_many(tx, ids)
    last_row = {sites[id_]: id_ for id_ in ids}
    return Leaderboard(
        as_of=max((endpoint.scored_at or 0 for endpoint in known.values()), default=now),
        policy_version=POLICY.version,
        rows=tuple(known[id_] for id_ in ids),
        more={last_row[more.site]: more for more in chosen.more if more.site in last_row},
    )
