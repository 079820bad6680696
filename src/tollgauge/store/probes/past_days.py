"""Past days: the closed days of an endpoint one by one, with the score that it had at the end of
each. They are kept as long as their probes (core/retention); the days of a window that is scored
are store/probes/window's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.retention import RAW_DAYS
from tollgauge.core.rollup import Rollup
from tollgauge.core.window import with_silent_days
from tollgauge.db.codec import statement_from_json
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store.probes.probe_rows import day_from_row

_NAMES: Final = tuple(f"day_{number}" for number in range(RAW_DAYS))
_ROWS: Final = Prepared(
    sa.select(*(column for column in probe_day_table.c if column.name != "packed")).where(
        probe_day_table.c.day.in_([sa.bindparam(name, type_=sa.Integer) for name in _NAMES]),
        probe_day_table.c.endpoint_id == sa.bindparam("id"),
    )
)


@dataclass(frozen=True, slots=True)
class DayScore:
    """The score in tenths that an endpoint had when a UTC day was closed, and its policy."""

    tenths: int
    policy_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDays:
    """The sums of closed days, by day, and the scores of those that have one."""

    sums: dict[int, Rollup]
    scores: dict[int, DayScore]


def read(tx: Connection, endpoint_id: str, *, before_day: int, sums_before: int) -> PastDays:
    """The RAW_DAYS days before one. The sums are only of days before `sums_before`, because those
    of later ones are the window's.
    """
    numbers = dict(zip(_NAMES, range(before_day - RAW_DAYS, before_day), strict=True))
    rows = _ROWS.rows(tx, {"id": endpoint_id, **numbers})
    older = {
        row.day: (day_from_row(row), statement_from_json(row.last_statement))
        for row in rows
        if row.day < sums_before
    }
    return PastDays(
        sums={sums.day: sums for sums in with_silent_days(older, until=sums_before - 1)},
        scores=_scores(rows),
    )


def _scores(rows: Iterable[Any]) -> dict[int, DayScore]:
    return {
        row.day: DayScore(row.score_tenths, row.score_policy)
        for row in rows
        if row.score_tenths is not None
    }
