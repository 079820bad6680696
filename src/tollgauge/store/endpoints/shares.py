"""Weekly counts of endpoints by what their envelopes name, and of settlements by facilitator.

A week begins on Monday, UTC. Its rows are replaced at each count, so that the last count of a week
remains.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import HOUR_MS, day_of
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import ForeignText, metadata
from tollgauge.store import rows

REFRESH_MS: Final = HOUR_MS
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


def is_due(tx: Connection, *, now: int) -> bool:
    """Return whether the counts of this week are missing or an hour old."""
    counted_at = rows.highest(tx, share.c.counted_at, share.c.week == week_of(now))
    return counted_at is None or counted_at <= now - REFRESH_MS


def save(tx: Connection, shares: Iterable[Share], *, now: int) -> None:
    """Replace the counts of the present week."""
    week = week_of(now)
    tx.execute(share.delete().where(share.c.week == week))
    values = [rows.to_columns(one, week=week, counted_at=now) for one in shares]
    rows.put(tx, share, values)


def load(tx: Connection, *, limit: int) -> tuple[WeekShares, ...]:
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
