"""The ranked population: its counts, and the order of its endpoints.

Rules:
- it is every listed endpoint that a directory names and that has a score, but those that are paid
  on a test network;
- its order is score, confidence and id, all descending;
- everything here reads the index of that order (ix_endpoint_rank in db/schema), the network of its
  endpoints and the hosts.
  The columns `ranked_*` of an endpoint are written with its score (store/scores/scores).

The time of a count grows with the number of endpoints: readers use monitor/ranking, which stores
it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import TEST_NETWORKS
from tollgauge.db.schema import RANKED as WITH_SCORE
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows

_NETWORK: Final = endpoint_table.c.quote_network
RANKED: Final = sa.and_(
    WITH_SCORE, sa.or_(_NETWORK.is_(None), _NETWORK.not_in(sorted(TEST_NETWORKS)))
)
"""The condition of the ranked population. Its first part is that of the index."""
BEST_FIRST: Final = (
    endpoint_table.c.ranked_score.desc(),
    endpoint_table.c.ranked_confidence.desc(),
    endpoint_table.c.id.desc(),
)
"""The order of the ranked population, as the index has it."""
NOT_DOWN: Final = endpoint_table.c.ranked_down_confirmed.is_not(sa.true())
"""The condition for endpoints without a confirmed outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An endpoint of the ranked population, by what ranks it, and its site."""

    endpoint_id: str
    site: str
    score_tenths: int
    confidence_hundredths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The ranked population: how many endpoints it has, how many of them were ever up in their
    window (`reachable`), how many were mostly `compliant`, and (grade, count) from
    the best grade down.
    """

    scored: int
    reachable: int
    compliant: int
    grades: tuple[tuple[str, int], ...]


def behind(place: tuple[int, int, str]) -> sa.ColumnElement[bool]:
    """The condition for endpoints that come after a (score, confidence, id) in BEST_FIRST."""
    return sa.tuple_(*(column.element for column in BEST_FIRST)) < place


def at(tx: Connection, rank: int) -> str | None:
    """The id of the endpoint with a rank (1 is the best); None if the population is smaller."""
    query = sa.select(endpoint_table.c.id).where(RANKED).order_by(*BEST_FIRST)
    return tx.execute(query.limit(1).offset(rank - 1)).scalar_one_or_none()


def candidates(
    tx: Connection,
    *,
    recommended: Collection[str],
    without_sites: Collection[str],
    after: Candidate | None,
    limit: int,
) -> tuple[Candidate, ...]:
    """The best of the ranked population with one of these recommendations and without a confirmed
    outage, best first: those behind `after`, without the endpoints of some sites.
    """
    query = (
        sa.select(
            endpoint_table.c.id.label("endpoint_id"),
            endpoint_table.c.ranked_score.label("score_tenths"),
            endpoint_table.c.ranked_confidence.label("confidence_hundredths"),
            host_table.c.site,
        )
        .join(host_table, host_table.c.host == endpoint_table.c.host)
        .where(
            RANKED,
            endpoint_table.c.ranked_recommendation.in_(recommended),
            NOT_DOWN,
            host_table.c.site.not_in(without_sites),
        )
        .order_by(*BEST_FIRST)
        .limit(limit)
    )
    if after is not None:
        place = (after.score_tenths, after.confidence_hundredths, after.endpoint_id)
        query = query.where(behind(place))
    return tuple(rows.from_columns(Candidate, row) for row in tx.execute(query))


def still_candidates(
    tx: Connection, endpoint_ids: Collection[str], *, recommended: Collection[str]
) -> tuple[str, ...]:
    """Those of some endpoints that are in the ranked population with one of these recommendations
    and without a confirmed outage, best first.
    """
    query = (
        sa.select(endpoint_table.c.id)
        .where(
            endpoint_table.c.id.in_(endpoint_ids),
            RANKED,
            endpoint_table.c.ranked_recommendation.in_(recommended),
            NOT_DOWN,
        )
        .order_by(*BEST_FIRST)
    )
    return tuple(tx.execute(query).scalars())


def count_of_site(tx: Connection, site: str, *, recommended: Collection[str], most: int) -> int:
    """How many of the ranked population are of a site, have one of these recommendations and no
    confirmed outage; `most` and no further.
    """
    query = (
        sa.select(endpoint_table.c.id)
        .join(host_table, host_table.c.host == endpoint_table.c.host)
        .where(
            RANKED,
            host_table.c.site == site,
            endpoint_table.c.ranked_recommendation.in_(recommended),
            NOT_DOWN,
        )
        .limit(most)
    )
    return tx.execute(sa.select(sa.func.count()).select_from(query.subquery())).scalar_one()


def population(tx: Connection) -> Population:
    """Counts over the ranked population."""
    grade = endpoint_table.c.ranked_grade
    query = (
        sa.select(
            grade,
            sa.func.count().label("scored"),
            sa.func.count().filter(endpoint_table.c.ranked_uptime > 0).label("reachable"),
            sa.func.count().filter(endpoint_table.c.ranked_compliant).label("compliant"),
        )
        .where(RANKED)
        .group_by(grade)
        .order_by(grade)
    )
    by_grade = tx.execute(query).all()
    return Population(
        scored=sum(row.scored for row in by_grade),
        reachable=sum(row.reachable for row in by_grade),
        compliant=sum(row.compliant for row in by_grade),
        grades=tuple((row[0], row.scored) for row in by_grade if row[0] is not None),
    )
