"""Reports on all endpoints: the leaderboard, recent incidents, and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.score.advice import LEADING
from tollgauge.core.score.demand import MIN_OWNERS
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import ShownDemand
from tollgauge.monitor import ranking
from tollgauge.monitor.ranking import MoreOfSite
from tollgauge.store.chain import volumes
from tollgauge.store.endpoints import ranking as ranks
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes.change_rows import Incident


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
    ids = ranks.still_candidates(tx, sites, recommended=LEADING)
    known = rated_endpoints.get_many(tx, ids)
    last_row = {sites[id_]: id_ for id_ in ids}
    return Leaderboard(
        as_of=max((endpoint.scored_at or 0 for endpoint in known.values()), default=now),
        policy_version=POLICY.version,
        rows=tuple(known[id_] for id_ in ids),
        more={last_row[more.site]: more for more in chosen.more if more.site in last_row},
    )


PAGE_ROWS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Incidents:
    """A page of the public incidents of so many UTC days, today included, newest first. `kind` is
    the one type that is shown, None for all; `next_after` the id of the last incident where more
    follow.
    """

    today: int
    days: int
    kind: str | None
    rows: tuple[Incident, ...]
    next_after: int | None = None

    @property
    def first_day(self) -> int:
        """The oldest UTC day that is shown."""
        return self.today - self.days + 1


def incidents(
    tx: Connection, kind: str | None, days: int, after: int | None, *, now: int
) -> Incidents:
    """The incidents of some days; `after` is the id of the last one on the page before."""
    today = day_of(now)
    since = (today - days + 1) * DAY_MS
    rows = changes.public_since(tx, since=since, kind=kind, after=after, limit=PAGE_ROWS + 1)
    shown = rows[:PAGE_ROWS]
    return Incidents(
        today=today,
        days=days,
        kind=kind,
        rows=shown,
        next_after=shown[-1].id if len(rows) > PAGE_ROWS else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ecosystem:
    """Counts over all known endpoints as of an instant, at most two minutes ago
    (monitor/ranking); shares are in thousandths of the `monitored` ones, which have a score.

    `demand` is that of all sellers in the last 30 days on every indexed chain, None while none is;
    `receivers` is how many sellers it reached. `indexed_permille` is the share of these 30 days
    that is indexed.
    """

    as_of: int
    listed: int
    delisted: int
    monitored: int
    reachable_permille: int | None
    compliant_permille: int | None
    grades: tuple[tuple[str, int], ...]
    simulated: bool = False
    demand: ShownDemand | None = None
    receivers: int | None = None
    indexed_permille: int | None = None


def ecosystem(tx: Connection, *, now: int) -> Ecosystem:
    """Counts over everything that is known."""
    counted = ranking.current(tx, now=now)
    population = counted.population
    return Ecosystem(
        as_of=counted.as_of,
        listed=counted.listed,
        delisted=counted.delisted,
        monitored=population.scored,
        reachable_permille=_share(population.reachable, population.scored),
        compliant_permille=_share(population.compliant, population.scored),
        grades=population.grades,
        simulated=counted.simulated > 0,
        **_settlements(tx),
    )


def _settlements(tx: Connection) -> dict[str, Any]:
    """The settlements of all indexed chains together; nothing while none is indexed."""
    chains = volumes.published(tx)
    if not chains:
        return {}
    wallets = sum(chain.wallets for chain in chains)
    indexed = sum(chain.indexed_permille * chain.wallets for chain in chains)
    return {
        "demand": ShownDemand(
            payers=sum(chain.payers for chain in chains),
            volume=sum(chain.volume for chain in chains),
            proven_payers=sum(chain.proven_payers for chain in chains),
            proven_volume=sum(chain.proven_volume for chain in chains),
            measured=len(volumes.anchors_of(tx)) >= MIN_OWNERS,
        ),
        "receivers": sum(chain.receivers for chain in chains),
        "indexed_permille": indexed // wallets if wallets else 0,
    }


def _share(part: int, whole: int) -> int | None:
    return None if not whole else (part * 2000 + whole) // (2 * whole)
