"""The ranked population: its order, its counts, and how its figures are distributed.

It contains every endpoint that a directory lists and that has a score, except those paid on a test
network, ordered by score, confidence and ID, all descending. Queries read the index of that order
(ix_endpoint_rank in db/schema). A count reads all of it: readers use monitor/ranking and
monitor/statistics, which store the results.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import TEST_NETWORKS
from tollgauge.core.endpoint.terms import Quote
from tollgauge.db.schema import RANKED as WITH_SCORE
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.db.schema import listing
from tollgauge.store import rows

_NETWORK: Final = endpoint_table.c.quote_network
RANKED: Final = sa.and_(
    WITH_SCORE, sa.or_(_NETWORK.is_(None), _NETWORK.not_in(sorted(TEST_NETWORKS)))
)
"""The condition of the ranked population. Its first part is that of the index."""
_BEST_FIRST: Final = (
    endpoint_table.c.score_tenths.desc(),
    endpoint_table.c.confidence_hundredths.desc(),
    endpoint_table.c.id.desc(),
)
"""The order of the ranked population, as the index has it."""
NO_BIN: Final = -1
"""The bin of endpoints without the figure."""
NOT_DOWN: Final = endpoint_table.c.outage_confirmed.is_not(sa.true())
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


def _behind(place: tuple[int, int, str]) -> sa.ColumnElement[bool]:
    """The condition for endpoints that come after a (score, confidence, id) in _BEST_FIRST."""
    return sa.tuple_(*(column.element for column in _BEST_FIRST)) < place


def at(tx: Connection, rank: int) -> str | None:
    """The id of the endpoint with a rank (1 is the best); None if the population is smaller."""
    query = sa.select(endpoint_table.c.id).where(RANKED).order_by(*_BEST_FIRST)
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
            *endpoint_table.c["score_tenths", "confidence_hundredths"],
            host_table.c.site,
        )
        .join(host_table, host_table.c.host == endpoint_table.c.host)
        .where(
            RANKED,
            endpoint_table.c.recommendation.in_(recommended),
            NOT_DOWN,
            host_table.c.site.not_in(without_sites),
        )
        .order_by(*_BEST_FIRST)
        .limit(limit)
    )
    if after is not None:
        place = (after.score_tenths, after.confidence_hundredths, after.endpoint_id)
        query = query.where(_behind(place))
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
            endpoint_table.c.recommendation.in_(recommended),
            NOT_DOWN,
        )
        .order_by(*_BEST_FIRST)
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
            endpoint_table.c.recommendation.in_(recommended),
            NOT_DOWN,
        )
        .limit(most)
    )
    return tx.execute(sa.select(sa.func.count()).select_from(query.subquery())).scalar_one()


def population(tx: Connection) -> Population:
    """Counts over the ranked population."""
    grade = endpoint_table.c.grade
    query = (
        sa.select(
            grade,
            sa.func.count().label("scored"),
            sa.func.count().filter(endpoint_table.c.uptime_tenths > 0).label("reachable"),
            sa.func.count().filter(endpoint_table.c.compliant).label("compliant"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBins:
    """The number of endpoints by the bins of their score and uptime, and by recommendation."""

    score: int
    uptime: int
    recommendation: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The number of endpoints by price and by the bin of their latency. `quote` is without its
    payTo; None if no price is known.
    """

    quote: Quote | None
    latency: int
    count: int


def by_figures(
    tx: Connection, *, scores: Sequence[int], uptimes: Sequence[int]
) -> tuple[ScoreBins, ...]:
    """Counts by score and uptime (tenths, in bins with these edges) and recommendation. Reads only
    the index.
    """
    columns = (
        _bin(endpoint_table.c.score_tenths, scores).label("score"),
        _bin(endpoint_table.c.uptime_tenths, uptimes).label("uptime"),
        endpoint_table.c.recommendation.label("recommendation"),
    )
    return tuple(
        ScoreBins(
            score=row.score, uptime=row.uptime, recommendation=row.recommendation, count=row.count_
        )
        for row in _counts(tx, columns)
    )


def by_price(tx: Connection, *, latencies: Sequence[int]) -> tuple[Priced, ...]:
    """Counts by price and latency (milliseconds, in bins with these edges)."""
    columns = (
        *endpoint_table.c["quote_network", "quote_asset", "quote_amount"],
        _bin(endpoint_table.c.latency_ms, latencies).label("latency"),
    )
    return tuple(
        Priced(quote=_quote(row), latency=row.latency, count=row.count_)
        for row in _counts(tx, columns)
    )


def by_source(tx: Connection) -> tuple[tuple[str, int], ...]:
    """The number of endpoints that each directory lists now."""
    query = (
        sa.select(listing.c.source, sa.func.count().label("count_"))
        .where(listing.c.gone_at.is_(None))
        .group_by(listing.c.source)
    )
    return tuple((row.source, row.count_) for row in tx.execute(query))


def _quote(row: Any) -> Quote | None:
    if row.quote_network is None:
        return None
    return Quote(
        network=row.quote_network, asset=row.quote_asset, amount=int(row.quote_amount), pay_to=""
    )


def _bin(column: sa.ColumnElement[int], edges: Sequence[int]) -> sa.ColumnElement[int]:
    """The number of a figure's bin. Literals, so that both databases group by what they select."""
    below = [(column < sa.literal_column(str(edge)), _number(at)) for at, edge in enumerate(edges)]
    return sa.case((column.is_(None), _number(NO_BIN)), *below, else_=_number(len(edges)))


def _number(value: int) -> sa.ColumnElement[int]:
    return sa.literal_column(str(value), sa.Integer)


def _counts(tx: Connection, columns: Sequence[sa.ColumnElement[Any]]) -> sa.CursorResult[Any]:
    count = sa.func.count().label("count_")
    return tx.execute(sa.select(*columns, count).where(WITH_SCORE).group_by(*columns))
