"""Calibration: forecasts compared with outcomes.

For each thousandth, the forecasts and their payable outcomes are counted, and the same for every
grade, recommendation and age. Counts of any days and processes add up exactly, and all figures are
computed from them:

- the Brier score, the mean of (forecast - outcome)^2: 0 is perfect, 1/4 is a coin;
- the log loss, the mean of -ln of the chance that was given to what happened, for which a forecast
  counts as at least 1/2000 and at most 1999/2000;
- the AUC, the chance that of two forecasts the one that came true was the higher one;
- the reliability table: for ten bins of forecasts, the share that came true.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from tollgauge.core.base.rounding import bounds, half_up
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.score.score import Score

NOW: Final = "now"
"""Forecasts of the next half hour against the next probe, where it comes soon."""
NEXT: Final = "next"
"""Groups against the next probe."""
DAY: Final = "24h"
"""Forecasts and groups against the probe nearest to 24 hours later."""

FORECAST: Final = "forecast"
BASE_RATE: Final = "base-rate"
BASELINES: Final = ("last-probe", "average-24h", "uptime-7d", "uptime-30d")
"""Simple rules that a forecast must beat: the result of the last probe, an average of all probes in
which one 24 hours old counts half, and the shares of payable probes of 7 and 30 days. The base
rate, the share of all outcomes, is computed from the counts."""
AGES: Final = ((1, "first day"), (7, "1 to 6 days"), (30, "7 to 29 days"))
OLD: Final = "30 days and more"
NOW_MAX_MS: Final = 2 * HOUR_MS
"""Maximum time to the next probe for a comparison with a forecast of the next half hour."""
DAY_NEAR_MS: Final = 30 * MINUTE_MS
"""Maximum distance of a probe from 24 hours later for a comparison with a forecast of a day."""
BIN_MIN: Final = 200
"""Minimum number of forecasts in a bin; below it, the bin shows `not enough data`."""
_BINS: Final = 10
_Z: Final = Fraction(196, 100)
_Table = Mapping[Fraction, tuple[int, int]]
"""The number of forecasts and of hits, by the forecast chance, in ascending order."""


class Cell(NamedTuple):
    """A counter at a horizon: of a `value` of a `measure`, such as a forecast in thousandths or a
    grade.
    """

    horizon: str
    measure: str
    value: int | str


KEPT: Final = Cell("any", "forecasts", "kept")
"""Counts all forecasts, whether or not their outcome is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The forecast for an endpoint at a time. Chances and baselines are in thousandths, the
    baselines in the order of BASELINES.
    """

    payable_now: int
    payable_24h: int
    grade: str
    recommendation: str
    age_days: int
    baselines: tuple[int, ...]


class Sums:
    """For every cell, the numbers of outcomes and of payable outcomes."""

    def __init__(self, rows: Iterable[tuple[Cell, int, int]] = ()) -> None:
        self._count: Counter[Cell] = Counter()
        self._hits: Counter[Cell] = Counter()
        for cell, count, hits in rows:
            self._count[cell] += count
            self._hits[cell] += hits

    def add(self, cell: Cell, *, payable: bool) -> None:
        """Count one outcome: whether the endpoint was payable."""
        self._count[cell] += 1
        self._hits[cell] += payable

    def add_forecast(self, forecast: Forecast, horizon: str, *, payable: bool) -> None:
        """Count the outcome of a forecast and of its baselines."""
        permille = forecast.payable_now if horizon == NOW else forecast.payable_24h
        self.add(Cell(horizon, FORECAST, permille), payable=payable)
        for name, baseline in zip(BASELINES, forecast.baselines, strict=True):
            self.add(Cell(horizon, name, baseline), payable=payable)

    def add_groups(self, forecast: Forecast, horizon: str, *, payable: bool) -> None:
        """Count the outcome for the grade, the recommendation and the age."""
        self.add(Cell(horizon, "grade", forecast.grade), payable=payable)
        self.add(Cell(horizon, "recommendation", forecast.recommendation), payable=payable)
        self.add(Cell(horizon, "age", age_group(forecast.age_days)), payable=payable)

    def update(self, other: Sums) -> None:
        """Add all counts of another."""
        self._count.update(other._count)
        self._hits.update(other._hits)

    def rows(self) -> Iterator[tuple[Cell, int, int]]:
        """Yield each cell with its outcomes and payable outcomes."""
        for cell, count in self._count.items():
            yield cell, count, self._hits[cell]

    def of(self, horizon: str, measure: str) -> dict[int | str, tuple[int, int]]:
        """Return (outcomes, payable outcomes) by value of one measure at one horizon."""
        return {
            cell.value: (count, hits)
            for cell, count, hits in self.rows()
            if (cell.horizon, cell.measure) == (horizon, measure)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The quality of a forecaster over `count` outcomes. Brier score and log loss are in
    millionths, AUC in ten thousandths; None if all outcomes are the same.
    """

    name: str
    count: int
    brier_millionths: int
    log_loss_millionths: int
    auc_e4: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One row of a reliability table: forecasts from `low` to below `high` (thousandths; the last
    bin includes 1000), their mean, and the share that came true with its 95% bounds in
    thousandths; None with fewer than BIN_MIN forecasts.
    """

    low: int
    high: int
    count: int
    mean: int | None = None
    came_true: int | None = None
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One row of a table by grade, recommendation or age: `count` forecasts, and the shares in
    ten thousandths that were payable at the next probe and after a day, None without outcomes.
    """

    name: str
    count: int
    next_e4: int | None
    day_e4: int | None


def forecast_of(score: Score, first_seen: int, baselines: tuple[int, ...]) -> Forecast:
    """Return the forecast of a score; `first_seen` is in ms UTC.

    If the score has no chances, its points out of 100 are used as a percentage.
    """
    now, day = score.payable_now_permille, score.payable_24h_permille
    return Forecast(
        payable_now=(score.score_tenths or 0) if now is None else now,
        payable_24h=(score.score_tenths or 0) if day is None else day,
        grade=score.grade or "none",
        recommendation=score.recommendation,
        age_days=max(score.as_of - first_seen, 0) // DAY_MS,
        baselines=baselines,
    )


def sample(endpoint_ids: Iterable[str], hour: int, *, limit: int) -> list[str]:
    """Return at most `limit` of these endpoints: those with the lowest hash of ID and hour (hours
    since the epoch), so the sample changes every hour and is the same in every process.
    """
    return nsmallest(
        limit, endpoint_ids, key=lambda id_: hashlib.sha256(f"{id_}:{hour}".encode()).digest()
    )


def age_group(days: int) -> str:
    """Return the name of an age in whole days since first seen."""
    return next((name for limit, name in AGES if days < limit), OLD)


def qualities(sums: Sums, horizon: str) -> tuple[Quality, ...]:
    """Return the qualities of forecast and baselines at a horizon; empty without outcomes."""
    tables = {name: _chances(sums, horizon, name) for name in (FORECAST, *BASELINES)}
    if not tables[FORECAST]:
        return ()
    count, hits = _whole(tables[FORECAST])
    tables[BASE_RATE] = {Fraction(hits, count): (count, hits)}  # the same forecast every time
    return tuple(_quality(name, table) for name, table in tables.items())


def reliability(sums: Sums, horizon: str) -> tuple[Bin, ...]:
    """Return the ten bins of the forecast at a horizon, lowest first."""
    table = _permilles(sums, horizon, FORECAST)
    width = 1_000 // _BINS
    return tuple(_bin(table, low, low + width) for low in range(0, 1_000, width))


def groups(sums: Sums, measure: str) -> tuple[Group, ...]:
    """Return the table of a measure's groups, in the order of their names or ages."""
    following, day = sums.of(NEXT, measure), sums.of(DAY, measure)
    names = sorted({str(name) for name in (*following, *day)}, key=_order)
    return tuple(
        Group(
            name=name,
            count=max(following.get(name, (0, 0))[0], day.get(name, (0, 0))[0]),
            next_e4=share_e4(*following.get(name, (0, 0))),
            day_e4=share_e4(*day.get(name, (0, 0))),
        )
        for name in names
    )


def share_e4(count: int, hits: int) -> int | None:
    """Return a share in ten thousandths, rounded half up; None if `count` is 0."""
    return half_up((hits, count), 10_000) if count else None


def _order(name: str) -> tuple[int, str]:
    ages = [words for _, words in AGES]
    return (ages.index(name) if name in ages else len(ages), name)


def _permilles(sums: Sums, horizon: str, name: str) -> dict[int, tuple[int, int]]:
    return {int(value): row for value, row in sorted(sums.of(horizon, name).items())}


def _chances(sums: Sums, horizon: str, name: str) -> _Table:
    rows = _permilles(sums, horizon, name).items()
    return {Fraction(permille, 1_000): row for permille, row in rows}


def _whole(table: Mapping[Any, tuple[int, int]]) -> tuple[int, int]:
    return sum(count for count, _ in table.values()), sum(hits for _, hits in table.values())


def _quality(name: str, table: _Table) -> Quality:
    count, _ = _whole(table)
    squares = sum(
        hits * (1 - chance) ** 2 + (total - hits) * chance**2
        for chance, (total, hits) in table.items()
    )
    return Quality(
        name=name,
        count=count,
        brier_millionths=half_up((squares / count).as_integer_ratio(), 1_000_000),
        log_loss_millionths=_log_loss(table),
        auc_e4=_auc(table),
    )


def _log_loss(table: _Table) -> int:
    """In millionths. Decimal logarithms are the same everywhere."""
    least = Fraction(1, 2_000)
    loss = Decimal(0)
    with localcontext(prec=28):
        for forecast, (count, hits) in table.items():
            chance = min(max(forecast, least), 1 - least)
            loss -= hits * _ln(chance) + (count - hits) * _ln(1 - chance)
        mean = Fraction(loss) / _whole(table)[0]
        return half_up(mean.as_integer_ratio(), 1_000_000)


def _ln(chance: Fraction) -> Decimal:
    return (Decimal(chance.numerator) / Decimal(chance.denominator)).ln()


def _auc(table: _Table) -> int | None:
    """In ten thousandths; None if all outcomes are the same."""
    count, hits = _whole(table)
    if not 0 < hits < count:
        return None
    doubled = misses_below = 0
    for total, true in table.values():
        doubled += true * (2 * misses_below + total - true)
        misses_below += total - true
    return half_up((doubled, 2 * hits * misses_below), 10_000)


def _bin(table: Mapping[int, tuple[int, int]], low: int, high: int) -> Bin:
    inside = {
        permille: row
        for permille, row in table.items()
        if low <= permille < high or permille == high == 1_000
    }
    count, hits = _whole(inside)
    if count < BIN_MIN:
        return Bin(low=low, high=high, count=count)
    least, most = bounds((hits, count), (count, 1), z=_Z)
    return Bin(
        low=low,
        high=high,
        count=count,
        mean=half_up((sum(p * row[0] for p, row in inside.items()), count)),
        came_true=half_up((hits, count), 1_000),
        least=half_up(least, 1_000),
        most=half_up(most, 1_000),
    )
