"""Rows of forecasts, and daily counts of those that came true.

A forecast is written once, in the hour it is made. The counts of a day
(core/score/calibration) are written once all its forecasts can be compared, and outlive the
forecasts. Rows contain their policy version; counts of different policies are never added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import HOUR_MS, day_of
from tollgauge.core.score.calibration import BASELINES, Cell, Forecast, Sums
from tollgauge.core.watch.watch_rules import FORECASTS_MS
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import metadata
from tollgauge.store import rows

calibration_day = sa.Table(
    "calibration_day",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("policy_version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("horizon", sa.Text, primary_key=True),
    sa.Column("measure", sa.Text, primary_key=True),
    # A forecast in permille, or the name of a grade, recommendation or age.
    sa.Column("value", sa.Text, primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("hits", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)
_HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastRow:
    """A stored forecast with its endpoint, policy and hour (since the epoch, UTC). It starts from
    the time of its score, `as_of`.
    """

    hour: int
    endpoint_id: str
    policy_version: int
    as_of: int
    forecast: Forecast


_BASELINES: Final = tuple(
    sa.Column(name.replace("-", "_"), sa.BigInteger, nullable=False) for name in BASELINES
)
forecast = sa.Table(
    "forecast",
    metadata,
    *columns_of(ForecastRow, key=("hour", "endpoint_id", "policy_version"), without=("forecast",)),
    *columns_of(Forecast, without=("baselines",)),
    *_BASELINES,
    sqlite_with_rowid=False,
)


def find_probed_since(tx: Connection, at: int) -> list[str]:
    """Return the IDs of endpoints whose last probe is after a time (ms UTC)."""
    query = sa.select(endpoint_table.c.id).where(endpoint_table.c.last_probed > at)
    return list(tx.execute(query).scalars())


def latest_hour(tx: Connection) -> int | None:
    """Return the last hour in which forecasts were stored."""
    return rows.highest(tx, forecast.c.hour)


def add(tx: Connection, forecasts: Sequence[ForecastRow]) -> None:
    """Store forecasts. Existing ones are not changed."""
    rows.add_missing(tx, forecast, [_columns(row) for row in forecasts])


def of_day(tx: Connection, day: int) -> tuple[ForecastRow, ...]:
    """Return the forecasts of a UTC day, grouped by endpoint, oldest first."""
    query = (
        sa.select(forecast)
        .where(forecast.c.hour.between(day * _HOURS, (day + 1) * _HOURS - 1))
        .order_by(forecast.c.endpoint_id, forecast.c.hour, forecast.c.policy_version)
    )
    return tuple(_row(row) for row in tx.execute(query))


def unscored_days(tx: Connection, *, before: int) -> tuple[int, ...]:
    """Return days with forecasts before a day whose counts are not stored yet, oldest first."""
    hours = sa.select(forecast.c.hour).distinct().where(forecast.c.hour < before * _HOURS)
    days = {hour // _HOURS for hour in tx.execute(hours).scalars()}
    known = sa.select(calibration_day.c.day).distinct().where(calibration_day.c.day.in_(days))
    return tuple(sorted(days - set(tx.execute(known).scalars())))


def save_day(tx: Connection, day: int, sums: dict[int, Sums]) -> None:
    """Store the counts of a day by policy version. Existing ones are not changed."""
    columns = [
        {
            "day": day,
            "policy_version": version,
            "horizon": cell.horizon,
            "measure": cell.measure,
            "value": str(cell.value),
            "count": count,
            "hits": hits,
        }
        for version, counted in sums.items()
        for cell, count, hits in counted.rows()
    ]
    rows.add_missing(tx, calibration_day, columns)


def sums_since(tx: Connection, day: int) -> dict[int, Sums]:
    """Return the counts since a day by policy version."""
    table = calibration_day.c
    keys = (table.policy_version, table.horizon, table.measure, table.value)
    query = (
        sa.select(*keys, sa.func.sum(table.count), sa.func.sum(table.hits))
        .where(table.day >= day)
        .group_by(*keys)
    )
    counts = rows.group(
        (version, (Cell(*cell), int(count), int(hits)))
        for version, *cell, count, hits in tx.execute(query)
    )
    return {version: Sums(counted) for version, counted in sorted(counts.items())}


def days_since(tx: Connection, day: int) -> tuple[int, ...]:
    """Return the days since a day whose counts are stored, in order."""
    query = sa.select(calibration_day.c.day).distinct().where(calibration_day.c.day >= day)
    return tuple(sorted(tx.execute(query).scalars()))


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` expired forecasts, oldest first; return their number. Their counts
    stay.
    """
    old = forecast.c.hour < day_of(now - FORECASTS_MS) * _HOURS
    return rows.delete_batch(tx, forecast, old, order_by=tuple(forecast.primary_key), limit=limit)


def hour_of(at: int) -> int:
    """Return the hour since the epoch that contains a time (ms UTC)."""
    return at // HOUR_MS


def _columns(row: ForecastRow) -> dict[str, Any]:
    baselines = zip(_BASELINES, row.forecast.baselines, strict=True)
    return {
        **rows.to_columns(row, "forecast"),
        **rows.to_columns(row.forecast, "baselines"),
        **{column.name: permille for column, permille in baselines},
    }


def _row(row: Any) -> ForecastRow:
    baselines = tuple(getattr(row, column.name) for column in _BASELINES)
    return rows.from_columns(
        ForecastRow, row, forecast=rows.from_columns(Forecast, row, baselines=baselines)
    )
