"""How the figures of the ranked population are spread (store/lists/ranking), as counts.

Every function reads all endpoints, or all listings: readers use monitor/statistics, which stores
what it counts. A figure falls into the bin whose number is that of the first edge above it; the
figure of an endpoint that has none falls into NO_BIN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.terms import Quote
from tollgauge.db.schema import RANKED, listing
from tollgauge.db.schema import endpoint as endpoint_table

NO_BIN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How many endpoints have a score and an uptime of these bins, and a recommendation."""

    score: int
    uptime: int
    recommendation: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """How many endpoints ask for a price and have a latency of a bin. `quote` is without its payTo,
    and None where no price is known.
    """

    quote: Quote | None
    latency: int
    count: int


def by_figures(
    tx: Connection, *, scores: Sequence[int], uptimes: Sequence[int]
) -> tuple[Figures, ...]:
    """Counts by score and uptime (tenths, in bins of these edges) and recommendation, from the
    index of ranks alone.
    """
    columns = (
        _bin(endpoint_table.c.ranked_score, scores).label("score"),
        _bin(endpoint_table.c.ranked_uptime, uptimes).label("uptime"),
        endpoint_table.c.ranked_recommendation.label("recommendation"),
    )
    return tuple(
        Figures(
            score=row.score, uptime=row.uptime, recommendation=row.recommendation, count=row.count_
        )
        for row in _counts(tx, columns)
    )


def by_price(tx: Connection, *, latencies: Sequence[int]) -> tuple[Priced, ...]:
    """Counts by price and latency (milliseconds, in bins of these edges)."""
    columns = (
        *endpoint_table.c["quote_network", "quote_asset", "quote_amount"],
        _bin(endpoint_table.c.ranked_latency, latencies).label("latency"),
    )
    return tuple(
        Priced(quote=_quote(row), latency=row.latency, count=row.count_)
        for row in _counts(tx, columns)
    )


def by_source(tx: Connection) -> tuple[tuple[str, int], ...]:
    """How many endpoints each directory lists now."""
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
    return tx.execute(sa.select(*columns, count).where(RANKED).group_by(*columns))
