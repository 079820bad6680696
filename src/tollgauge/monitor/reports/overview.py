"""Report on all endpoints: the leaderboard, recent incidents and counts."""

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
from tollgauge.store.chain import periods, volumes
from tollgauge.store.chain.periods import ChainPeriods
from tollgauge.store.endpoints import ranking as ranks
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes.change_rows import Incident


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """The best listed endpoints, best first, at most 25. `as_of` is the time of the newest of their
    scores. `more` contains the numbers of hidden endpoints per site, by the ID of the site's last
    row.
    """

    as_of: int
    policy_version: int
    rows: tuple[RatedEndpoint, ...]
    more: Mapping[str, MoreOfSite] = field(default_factory=dict)


def leaderboard(tx: Connection, *, now: int) -> Leaderboard:
    """Read the leaderboard. Its `as_of`, and with it the entity tag, changes only if a row is
    rescored.
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


def guide_endpoints(tx: Connection, *, now: int) -> tuple[RatedEndpoint, ...]:
    """Return monitored endpoints for the examples of the API guide, best first.

    These are the rows of the leaderboard. While no endpoint qualifies for it, it is the best one of
    the ranked population; none before the first score.
    """
    rows = leaderboard(tx, now=now).rows
    if rows:
        return rows
    ids = [example.endpoint_id for example in ranking.current(tx, now=now).examples[:1]]
    return tuple(rated_endpoints.get_many(tx, ids).values())


PAGE_ROWS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Incidents:
    """A page of public incidents of the last `days` UTC days, today included, newest first. `kind`
    is the selected type, None for all. `next_after` is the ID of the last incident if more follow.
    """

    today: int
    days: int
    kind: str | None
    rows: tuple[Incident, ...]
    next_after: int | None = None

    @property
    def first_day(self) -> int:
        """The oldest UTC day shown."""
        return self.today - self.days + 1


def incidents(
    tx: Connection, kind: str | None, days: int, after: int | None, *, now: int
) -> Incidents:
    """Read a page of incidents; `after` is the last ID of the previous page."""
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
    """Counts over all known endpoints, at most two minutes old (monitor/ranking). Shares are in
    permille of the `monitored` endpoints, those with a score.

    `demand` is that of all sellers in the last 30 days on every indexed chain, None without one;
    `receivers` is the number of sellers with demand. `indexed_permille` is the indexed share of
    these 30 days. `periods` has the settlements of each chain in the last 1, 7 and 30 complete UTC
    days.
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
    periods: tuple[ChainPeriods, ...] = ()


def ecosystem(tx: Connection, *, now: int) -> Ecosystem:
    """Read the counts over all endpoints."""
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
    """Sum up the settlements of all indexed chains; empty if none is indexed."""
    chains = periods.load_published(tx)
    if not chains:
        return {}
    wallets = sum(chain.wallets for chain in chains)
    indexed = sum(chain.indexed_permille * chain.wallets for chain in chains)
    return {
        "demand": ShownDemand(
            payers=sum(chain.window.buyers for chain in chains),
            volume=sum(chain.window.volume for chain in chains),
            proven_payers=sum(chain.window.proven_buyers for chain in chains),
            proven_volume=sum(chain.window.proven_volume for chain in chains),
            measured=len(volumes.anchors_of(tx)) >= MIN_OWNERS,
        ),
        "receivers": sum(chain.window.sellers for chain in chains),
        "indexed_permille": indexed // wallets if wallets else 0,
        "periods": chains,
    }


def _share(part: int, whole: int) -> int | None:
    return None if not whole else (part * 2000 + whole) // (2 * whole)
