"""Window, day by day: what the rows of each day say, where their sums are not at hand.

Rules:
- a closed day comes from its sums. Its probes are unpacked only if fresh rows came late to it, if
  it may have the latest probe that is looked for, or if `recent` reaches into it;
- the rows of days that are not closed are read once and only counted. Their spans begin with what
  the last statement of the day before carries over.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.latest_probes import NOTHING, Latest
from tollgauge.core.open_day import NO_PROBES, DayProbes, OpenDay
from tollgauge.core.rollup import Rollup
from tollgauge.core.spans import NO_SPANS, Statement
from tollgauge.core.units import DAY_MS, day_of
from tollgauge.core.window import DAYS, Window
from tollgauge.db.codec import statement_from_json
from tollgauge.db.packing import unpack
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store.probes import open_days
from tollgauge.store.probes.probe_rows import day_from_row

_ID: Final = sa.bindparam("id", type_=sa.Text)
_NAMES: Final = tuple(f"day_{number}" for number in range(DAYS + 1))
"""The day before the window is read too, for what it carries over."""
_DAYS: Final = [sa.bindparam(name, type_=sa.Integer) for name in _NAMES]
_CLOSED: Final = Prepared(
    sa.select(
        *(column for column in probe_day_table.c if column.name not in ("endpoint_id", "packed")),
        sa.case((probe_day_table.c.day >= sa.bindparam("near"), probe_day_table.c.packed)).label(
            "packed"
        ),
    ).where(probe_day_table.c.day.in_(_DAYS), probe_day_table.c.endpoint_id == _ID)
)
_PACKED: Final = Prepared(
    sa.select(probe_day_table.c.packed).where(
        probe_day_table.c.day == sa.bindparam("day"), probe_day_table.c.endpoint_id == _ID
    )
)


def read(tx: Connection, endpoint_id: str, *, as_of: int, recent_ms: int) -> Window:
    """The window of an endpoint up to `as_of` (ms UTC); `recent` reaches `recent_ms` back."""
    since = as_of - recent_ms
    window = _Rows(tx, endpoint_id, as_of=as_of, since=since)
    return Window(
        open_days=_days(window), recent=_recent(window, since=since), latest=_latest(window)
    )


class _Rows:
    """The rows of a window's days and of the day before (`span`), read once; a closed day is
    unpacked when it is needed.
    """

    def __init__(self, tx: Connection, endpoint_id: str, *, as_of: int, since: int) -> None:
        today = day_of(as_of)
        self.span = range(today - DAYS, today + 1)
        self.as_of = as_of
        self.fresh = {
            day: opened[endpoint_id]
            for day in open_days.days(tx, self.span)
            if (opened := open_days.probes_of(tx, (endpoint_id,), day=day, as_of=as_of))
        }
        near = day_of(since)
        numbers = dict(zip(_NAMES, self.span, strict=True))
        values = {"id": endpoint_id, "near": near, **numbers}
        self.closed = {row.day: row for row in _CLOSED.rows(tx, values)}
        self._tx, self._id, self._near = tx, endpoint_id, near
        self._unpacked: dict[int, DayProbes] = {}

    def is_closed(self, day: int) -> bool:
        """Whether all probes of a day are in its closed row, and none is later than `as_of`."""
        ended = (day + 1) * DAY_MS - 1 <= self.as_of
        return day in self.closed and day not in self.fresh and ended

    def unpacked(self, day: int) -> DayProbes:
        """The probes of a closed day up to `as_of`; none once they were pruned."""
        if day not in self._unpacked:
            packed = self.closed[day].packed
            if day < self._near:
                packed = _PACKED.first(self._tx, {"id": self._id, "day": day}).packed
            results = unpack(packed) if packed is not None else ()
            self._unpacked[day] = DayProbes.of([one for one in results if one.at <= self.as_of])
        return self._unpacked[day]


def _latest(window: _Rows) -> Latest:
    """The latest probes of the window; a day is unpacked only if it may have one that no later day
    has.
    """
    latest = NOTHING
    for day in reversed(window.span[1:]):
        of_day = window.fresh.get(day, NO_PROBES).latest
        if (row := window.closed.get(day)) is not None:
            speaks = row.last_statement and not (latest.last and latest.state)
            if speaks or ((row.up or row.up_ms) and not latest.envelope):
                of_day = of_day.after(window.unpacked(day).latest)
        latest = latest.after(of_day)
    return latest


def _days(window: _Rows) -> tuple[Rollup, ...]:
    """The sums of the window, by day."""
    days: dict[int, Rollup] = {}
    last: dict[int, Statement | None] = {}
    for day in window.span:
        if window.is_closed(day):
            days[day] = day_from_row(window.closed[day])
            continue
        before = last.get(day - 1)
        if window.is_closed(day - 1):
            before = statement_from_json(window.closed[day - 1].last_statement)
        if before is not None or day in window.fresh or day in window.closed:
            probes = window.fresh.get(day, NO_PROBES)
            if day in window.closed:
                probes += window.unpacked(day)
            opened = OpenDay(sums=Rollup(day=day)).followed_by(probes, before=before)
            days[day], last[day] = opened.until(window.as_of, before=before), opened.said
    days.pop(window.span[0], None)
    return tuple(sums for sums in days.values() if sums.probes or sums.spans != NO_SPANS)


def _recent(window: _Rows, *, since: int) -> tuple[int, int]:
    """(scored, up) of the probes after `since`."""
    ups: list[bool] = []
    for day in range(max(day_of(since), window.span[1]), window.span[-1] + 1):
        probes = window.fresh.get(day, NO_PROBES)
        if day in window.closed and window.closed[day].scored:
            probes += window.unpacked(day)
        ups += [up for at, up in probes.ups if at > since]
    return len(ups), sum(ups)
