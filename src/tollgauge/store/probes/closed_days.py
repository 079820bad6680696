"""Closed days: what those of an endpoint add up to, written whenever one of them is closed.

A later day is added to the stored sums; where late probes came to a day, the sums come from the
rows of all days. The latest probes are those of the day that is being
closed, or those that were stored before. Only where nothing is stored yet the packed days are
searched for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.evidence import RECENT_MS
from tollgauge.core.latest_probes import Latest
from tollgauge.core.probe import ProbeResult
from tollgauge.core.rollup import Rollup
from tollgauge.core.spans import Statement
from tollgauge.core.units import DAY_MS
from tollgauge.core.window import DAYS, ClosedDays
from tollgauge.db.codec import statement_from_json
from tollgauge.db.packing import unpack
from tollgauge.db.prepared import Prepared, PreparedAny
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store import rows
from tollgauge.store.probes import window
from tollgauge.store.probes.probe_rows import day_from_row

CLOSE_TURN: Final = "close-days"
"""The turn of whoever closes days."""
_TOGETHER: Final = 10
"""Of how many endpoints the days are read at once."""
_NAMES: Final = tuple(f"day_{number}" for number in range(DAYS))
_SUMS: Final = PreparedAny(
    lambda ids: sa.select(
        *(column for column in probe_day_table.c if column.name != "packed")
    ).where(
        probe_day_table.c.day.in_([sa.bindparam(name, type_=sa.Integer) for name in _NAMES]),
        probe_day_table.c.endpoint_id.in_(ids),
    )
)
_PACKED: Final = Prepared(
    sa.select(probe_day_table.c.packed).where(
        probe_day_table.c.day == sa.bindparam("day"),
        probe_day_table.c.endpoint_id == sa.bindparam("id"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedDay:
    """A day whose row was just written: its sums, its last statement (`said`), and its probes,
    oldest first, as far as they are still there.
    """

    sums: Rollup
    said: Statement | None
    results: Sequence[ProbeResult]


Days = dict[int, tuple[Rollup, Statement | None]]
"""The sums of days, each with what its last probe that speaks says."""


def after(
    tx: Connection, day: int, closed: Mapping[str, ClosedDay], *, before_day: int
) -> Iterator[tuple[str, ClosedDays]]:
    """The closed days of endpoints, each with its id, after the rows of a day were written
    (`closed`); days are being closed up to `before_day`.
    """
    known = window.latest_closed(tx, list(closed))
    late: dict[int, list[str]] = {}
    for id_, before in known.items():
        if before.day >= day:
            late.setdefault(before.day, []).append(id_)
            continue
        added = closed[id_]
        yield (
            id_,
            before.followed_by(
                added.sums,
                added.said,
                latest=Latest.of(added.results).after(before.latest),
                tail=_tail(day, added.results),
            ),
        )
    for newest, ids in late.items():
        for id_, days in _days(tx, ids, newest):
            before, whole = known[id_], closed[id_].results
            latest = Latest.of(whole).after(before.latest)
            tail = _tail(day, whole) if day == newest else before.tail
            yield id_, ClosedDays.of(days, day=newest, latest=latest, tail=tail)
    unknown = [id_ for id_ in closed if id_ not in known]
    made = dict(built(tx, unknown, before_day=max(day + 1, before_day)))
    # A day may be closed so late that it lies before all that is read for `before_day`.
    made |= built(tx, [id_ for id_ in unknown if id_ not in made], before_day=day + 1)
    yield from ((id_, made[id_]) for id_ in unknown)


def built(
    tx: Connection, ids: Sequence[str], *, before_day: int
) -> Iterator[tuple[str, ClosedDays]]:
    """The closed days of endpoints of which nothing is kept, from the rows of their days."""
    for id_, days in _days(tx, ids, before_day - 1):
        newest = max(days)
        if newest < before_day - 1:
            ((_, days),) = _days(tx, [id_], newest)
        latest, tail = Latest(), None
        for day in sorted(days, reverse=True):
            if latest.last and latest.envelope and latest.state:
                break
            packed = _PACKED.first(tx, {"day": day, "id": id_}).packed
            results = () if packed is None else unpack(packed)
            latest = latest.after(Latest.of(results))
            tail = _tail(day, results) if tail is None else tail
        yield id_, ClosedDays.of(days, day=newest, latest=latest, tail=tail or ())


def _days(tx: Connection, ids: Sequence[str], newest: int) -> Iterator[tuple[str, Days]]:
    """The closed days of endpoints up to one, as far back as a window may look, each with its id,
    in the order of `ids`; without any an endpoint is left out. Few at a time are in memory: a day
    has dozens of buckets.
    """
    numbers = dict(zip(_NAMES, range(newest - DAYS + 1, newest + 1), strict=True))
    for chunk in rows.chunks(ids, _TOGETHER):
        days: dict[str, Days] = {}
        for row in _SUMS.rows(tx, chunk, numbers):
            said = statement_from_json(row.last_statement)
            days.setdefault(row.endpoint_id, {})[row.day] = (day_from_row(row), said)
        # A new row locks its endpoint, as a wave of probes does in the order of the ids.
        yield from ((id_, days[id_]) for id_ in chunk if id_ in days)


def _tail(day: int, results: Sequence[ProbeResult]) -> list[tuple[int, bool]]:
    """(at, up) of the counted probes of a day's last hours."""
    since = (day + 1) * DAY_MS - RECENT_MS
    return [
        (probe.at, probe.up)
        for probe in results
        if probe.at > since and probe.scored and not probe.confirms
    ]
