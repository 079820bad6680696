"""Past days: what the charts of an endpoint show of its closed days, one by one, with the score
that it had at the end of each.

Rules:
- all of an endpoint's days are one row (`probe_chart`), to which the closing of a day adds it
  (store/probes/archive): the rows of the days themselves lie as far apart as the days do;
- a day without probes has what the last statement of the day before still says (core/window);
- days are kept as long as their probes (core/retention).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.latency import percentiles
from tollgauge.core.retention import RAW_DAYS
from tollgauge.core.rollup import Rollup
from tollgauge.core.spans import NO_SPANS, Spans, Statement
from tollgauge.core.window import spans_of_next_day
from tollgauge.db import upsert
from tollgauge.db.compression import compress, decompress
from tollgauge.db.prepared import Prepared, PreparedAny
from tollgauge.db.schema import metadata

probe_chart = sa.Table(
    "probe_chart",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    # Its closed days (`_pack`).
    sa.Column("days", sa.LargeBinary, nullable=False),
)

_CHARTS: Final = PreparedAny(
    lambda ids: sa.select(probe_chart).where(probe_chart.c.endpoint_id.in_(ids))
)
_KEEP: Final = Prepared(
    upsert.either(
        probe_chart,
        lambda insert: insert.on_conflict_do_update(
            index_elements=["endpoint_id"], set_={"days": insert.excluded["days"]}
        ),
    )
)


@dataclass(frozen=True, slots=True)
class DayScore:
    """The score in tenths that an endpoint had when a UTC day was closed, and its policy."""

    tenths: int
    policy_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBar:
    """One UTC day of an endpoint: for how many milliseconds probes say that it was up and that it
    was not, scored and up probes, and latency percentiles of the up ones. `score` is that of when
    the day was closed, of today the latest; None where none is kept.
    """

    day: int
    up_ms: int
    down_ms: int
    scored: int
    up: int
    excluded: int
    p50_ms: int | None
    p95_ms: int | None
    score: DayScore | None = None

    @property
    def spoken_ms(self) -> int:
        """The time that probes speak for."""
        return self.up_ms + self.down_ms


@dataclass(frozen=True, slots=True)
class PastDay:
    """A closed day, and what its last statement says of the day after it, if that has no probes."""

    bar: DayBar
    next_day: Spans


Days = dict[int, PastDay]
"""Closed days by their numbers."""
_Figures = tuple[Any, ...]
"""The figures of a past day, integers and None, its number first (`_from_figures`)."""


def bar_of(sums: Rollup, score: DayScore | None = None) -> DayBar:
    """What a chart shows of the sums of a day."""
    p50, p95 = percentiles((sums.latency,), (50, 95))
    return DayBar(
        day=sums.day,
        up_ms=sums.spans.up,
        down_ms=sums.spans.down,
        scored=sums.scored,
        up=sums.up,
        excluded=sums.probes - sums.scored,
        p50_ms=p50,
        p95_ms=p95,
        score=score,
    )


def past_day(sums: Rollup, said: Statement | None, score: DayScore | None) -> PastDay:
    """A day from its sums, and what its last probe that speaks says."""
    return PastDay(bar_of(sums, score), spans_of_next_day(sums.day, said))


def read(tx: Connection, endpoint_id: str, *, first_day: int, before_day: int) -> dict[int, DayBar]:
    """The closed days of an endpoint from one day to before another, by day; those of which nothing
    is known are left out.
    """
    days: Days = {}
    for row in _CHARTS.rows(tx, (endpoint_id,)):
        days |= {figures[0]: _from_figures(*figures) for figures in _unpacked(row.days)}
    shown = range(first_day, before_day)
    return {bar.day: bar for bar in _with_silent_days(days) if bar.day in shown}


def keep(tx: Connection, day: int, closed: Mapping[str, PastDay]) -> None:
    """Add a day that was closed, or closed again, to the charts of endpoints, by their ids; days
    that are too old by then are left out.
    """
    known = {row.endpoint_id: row.days for row in _CHARTS.rows(tx, tuple(closed))}
    columns = []
    for id_, past in closed.items():
        days = {figures[0]: figures for figures in _unpacked(known[id_])} if id_ in known else {}
        days[day] = _figures(past)
        newest = max(days)
        lasting = (days[number] for number in sorted(days) if number > newest - RAW_DAYS)
        columns.append({"endpoint_id": id_, "days": _pack(lasting)})
    _KEEP.run_each(tx, columns)


def _with_silent_days(days: Days) -> Iterator[DayBar]:
    """Days, and those without probes for which the day before still speaks."""
    for day, past in days.items():
        yield past.bar
        if past.next_day != NO_SPANS and day + 1 not in days:
            yield bar_of(Rollup(day=day + 1, spans=past.next_day))


def _pack(days: Iterable[_Figures]) -> bytes:
    """The bytes of days: a JSON array for each figure, compressed."""
    return compress(orjson.dumps(list(zip(*days, strict=True))))


def _unpacked(packed: bytes) -> Iterator[_Figures]:
    """The inverse of `_pack`."""
    return zip(*orjson.loads(decompress(packed)), strict=True)


def _figures(past: PastDay) -> _Figures:
    bar, next_day = past.bar, past.next_day
    tenths, policy = (bar.score.tenths, bar.score.policy_version) if bar.score else (None, None)
    counts = (bar.scored, bar.up, bar.excluded, bar.p50_ms, bar.p95_ms)
    return (bar.day, bar.up_ms, bar.down_ms, *counts, tenths, policy, next_day.up, next_day.down)


def _from_figures(
    day: int,
    up_ms: int,
    down_ms: int,
    scored: int,
    up: int,
    excluded: int,
    p50_ms: int | None,
    p95_ms: int | None,
    tenths: int | None,
    policy: int,
    next_up: int,
    next_down: int,
) -> PastDay:
    bar = DayBar(
        day=day,
        up_ms=up_ms,
        down_ms=down_ms,
        scored=scored,
        up=up,
        excluded=excluded,
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        score=None if tenths is None else DayScore(tenths, policy),
    )
    silent = not next_up and not next_down
    return PastDay(bar, NO_SPANS if silent else Spans(up=next_up, down=next_down))
