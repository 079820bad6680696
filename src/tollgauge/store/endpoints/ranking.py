"""Order, counts and distributions of the ranked population.

It contains every listed endpoint with a score, except those paid on a test network, ordered by
rank key (core/lists/rated_endpoint) and ID, both descending. Queries use the index of that order
(ix_endpoint_rank in db/schema). Counts read the whole index, so callers use the stored results of
monitor/ranking and monitor/statistics.

Also the weekly shares: counts of endpoints by what their envelopes name, and of settlements by
facilitator. A week begins on Monday, UTC. Its rows are replaced at each count, so that the last
count of a week remains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import HOUR_MS, TEST_NETWORKS, day_of
from tollgauge.core.endpoint.terms import Quote
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import RANKED as WITH_SCORE
from tollgauge.db.schema import ForeignText, metadata
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows

_NETWORK: Final = endpoint_table.c.quote_network
RANKED: Final = sa.and_(
    WITH_SCORE, sa.or_(_NETWORK.is_(None), _NETWORK.not_in(sorted(TEST_NETWORKS)))
)
"""Condition of the ranked population. Its first part is the condition of the partial index."""
_BEST_FIRST: Final = (endpoint_table.c.rank_key.desc(), endpoint_table.c.id.desc())
"""Order of the ranked population and of its index."""
NO_BIN: Final = -1  # bin of endpoints without a value
NOT_DOWN: Final = endpoint_table.c.outage_confirmed.is_not(sa.true())
"""Condition for endpoints without a confirmed outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An endpoint of the ranked population with its sort key and site."""

    endpoint_id: str
    site: str
    rank_key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Counts of the ranked population: endpoints with a score, those that were up at least once in
    the window (`reachable`), mostly `compliant` ones, and (grade, count) from the best grade down.
    """

    scored: int
    reachable: int
    compliant: int
    grades: tuple[tuple[str, int], ...]


def at(tx: Connection, rank: int) -> str | None:
    """Return the ID of the endpoint with a rank (1 is the best), or None."""
    query = sa.select(endpoint_table.c.id).where(RANKED).order_by(*_BEST_FIRST)
    return tx.execute(query.limit(1).offset(rank - 1)).scalar_one_or_none()


def _is_qualified(recommended: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition for ranked endpoints with one of these recommendations and without a
    confirmed outage.
    """
    return sa.and_(RANKED, endpoint_table.c.recommendation.in_(recommended), NOT_DOWN)


def candidates(
    tx: Connection,
    *,
    recommended: Collection[str],
    without_sites: Collection[str],
    after: Candidate | None,
    limit: int,
) -> tuple[Candidate, ...]:
    """Return the best ranked endpoints with one of these recommendations and without a confirmed
    outage.

    Best first, after `after`, without the endpoints of some sites.
    """
    query = (
        sa.select(
            endpoint_table.c.id.label("endpoint_id"),
            endpoint_table.c.rank_key,
            host_table.c.site,
        )
        .join(host_table, host_table.c.host == endpoint_table.c.host)
        .where(_is_qualified(recommended), host_table.c.site.not_in(without_sites))
        .order_by(*_BEST_FIRST)
        .limit(limit)
    )
    if after is not None:
        place = sa.tuple_(endpoint_table.c.rank_key, endpoint_table.c.id)
        query = query.where(place < (after.rank_key, after.endpoint_id))
    return tuple(rows.from_columns(Candidate, row) for row in tx.execute(query))


def still_candidates(
    tx: Connection, endpoint_ids: Collection[str], *, recommended: Collection[str]
) -> tuple[str, ...]:
    """Return those of the endpoints that still qualify as candidates, best first."""
    query = (
        sa.select(endpoint_table.c.id)
        .where(endpoint_table.c.id.in_(endpoint_ids), _is_qualified(recommended))
        .order_by(*_BEST_FIRST)
    )
    return tuple(tx.execute(query).scalars())


def count_of_site(tx: Connection, site: str, *, recommended: Collection[str], most: int) -> int:
    """Count a site's ranked endpoints with one of these recommendations and without a confirmed
    outage, up to `most`.
    """
    query = (
        sa.select(endpoint_table.c.id)
        .join(host_table, host_table.c.host == endpoint_table.c.host)
        .where(host_table.c.site == site, _is_qualified(recommended))
        .limit(most)
    )
    return tx.execute(sa.select(sa.func.count()).select_from(query.subquery())).scalar_one()


def population(tx: Connection) -> Population:
    """Count the ranked population."""
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


def by_figures(
    tx: Connection, *, scores: Sequence[int], uptimes: Sequence[int]
) -> Sequence[tuple[int, int, str, int]]:
    """Count by score and uptime (tenths, in bins with these edges) and recommendation. Reads only
    the index.
    """
    columns = (
        _bin(endpoint_table.c.score_tenths, scores),
        _bin(endpoint_table.c.uptime_tenths, uptimes),
        endpoint_table.c.recommendation,
    )
    return _counts(tx, columns)


def by_price(tx: Connection, *, latencies: Sequence[int]) -> list[tuple[Quote | None, int, int]]:
    """Count by price, without its payTo, and latency (ms, in bins with these edges)."""
    terms = endpoint_table.c["quote_network", "quote_asset", "quote_amount"]
    latency = _bin(endpoint_table.c.latency_ms, latencies).label("latency")
    counted = _counts(tx, (*terms, latency), sa.literal("").label("quote_pay_to"))
    return [(rows.to_quote(row), row.latency, row.number) for row in counted]


def by_offer(
    tx: Connection,
) -> Sequence[tuple[tuple[str, ...], tuple[str, ...], int | None, int]]:
    """Count by the forms of payment, the extensions (core/endpoint/terms) and the x402 version of
    the last envelope; the version is None without one.
    """
    return _counts(tx, tuple(endpoint_table.c["forms", "extensions", "version"]))


def _bin(column: sa.ColumnElement[int], edges: Sequence[int]) -> sa.ColumnElement[int]:
    """Return the expression of a value's bin number.

    The numbers are literals: both databases require GROUP BY to repeat the selected expression.
    """
    below = [(column < sa.literal_column(str(edge)), _number(at)) for at, edge in enumerate(edges)]
    return sa.case((column.is_(None), _number(NO_BIN)), *below, else_=_number(len(edges)))


def _number(value: int) -> sa.ColumnElement[int]:
    return sa.literal_column(str(value), sa.Integer)


def _counts(
    tx: Connection, columns: Sequence[sa.ColumnElement[Any]], *others: sa.ColumnElement[Any]
) -> Sequence[Any]:
    query = sa.select(*columns, sa.func.count().label("number"), *others)
    return tx.execute(query.where(WITH_SCORE).group_by(*columns)).all()


SHARES_REFRESH_MS: Final = HOUR_MS
_MONDAY: Final = 3  # 1 January 1970 was a Thursday


@dataclass(frozen=True, slots=True)
class Share:
    """A count of a week; `kind` is `scheme`, for example. `name` is empty for the sum of the
    remaining ones.
    """

    kind: str
    name: str
    count: int


share = sa.Table(
    "share",
    metadata,
    # The first UTC day of the week, in days since the epoch.
    sa.Column("week", sa.BigInteger, primary_key=True, autoincrement=False),
    *columns_of(Share, key=("kind", "name"), name=ForeignText),
    sa.Column("counted_at", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekShares:
    """The counts of the week that began on the UTC day `week`, made at `counted_at` (ms UTC)."""

    week: int
    counted_at: int
    shares: tuple[Share, ...]


def week_of(at: int) -> int:
    """Return the first UTC day of the week of a time (ms UTC)."""
    day = day_of(at)
    return day - (day + _MONDAY) % 7


def are_shares_due(tx: Connection, *, now: int) -> bool:
    """Return whether the counts of this week are missing or an hour old."""
    counted_at = rows.highest(tx, share.c.counted_at, share.c.week == week_of(now))
    return counted_at is None or counted_at <= now - SHARES_REFRESH_MS


def save_shares(tx: Connection, shares: Iterable[Share], *, now: int) -> None:
    """Replace the counts of the present week."""
    week = week_of(now)
    tx.execute(share.delete().where(share.c.week == week))
    values = [rows.to_columns(one, week=week, counted_at=now) for one in shares]
    rows.put(tx, share, values)


def load_shares(tx: Connection, *, limit: int) -> tuple[WeekShares, ...]:
    """Return the newest counted weeks, newest first, each with the largest counts first."""
    newest = sa.select(share.c.week).distinct().order_by(share.c.week.desc()).limit(limit)
    query = (
        sa.select(share)
        .where(share.c.week.in_(newest.scalar_subquery()))
        .order_by(share.c.week.desc(), share.c.kind, share.c.count.desc(), share.c.name)
    )
    by_week = rows.group(
        ((week, counted_at), Share(kind, name, count))
        for week, kind, name, count, counted_at in tx.execute(query)
    )
    return tuple(
        WeekShares(week=week, counted_at=counted_at, shares=tuple(shares))
        for (week, counted_at), shares in by_week.items()
    )
