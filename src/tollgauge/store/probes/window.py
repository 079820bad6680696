"""Day sums of closed days, and the windows that evidence consists of.

All closed days of an endpoint are one row: the days that a score reads in one column, older days
for charts in another, which a score does not read. Both are compressed JSON of
core/score/window's structs. Days are deleted RAW_DAYS after the newest closed day.

A window combines closed days with the rows of probes that are not closed yet. If a probe arrived
late for a closed day, that day's packed probes are read too. Reads of several tables are consistent
only within one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import day_of
from tollgauge.core.probe.probe import AnyProbe, DayProbe, ProbeResult
from tollgauge.core.score.window import DAYS, NO_DAYS, ClosedDay, ClosedDays, Window, window_of
from tollgauge.core.watch.watch_rules import RAW_DAYS
from tollgauge.db.codec import Encoded, compress, decompress
from tollgauge.db.schema import metadata
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store import rows
from tollgauge.store.probes.probe_rows import unpack


def _pack(value: Any) -> bytes:
    """Encode msgspec values as compressed JSON."""
    return compress(msgspec.json.encode(value))


_RECENT: Final = msgspec.json.Decoder(ClosedDays)
_OLDER: Final = msgspec.json.Decoder(tuple[ClosedDay, ...])
_BYTES: Final = sa.LargeBinary()


def _unpack_recent(stored: bytes) -> ClosedDays:
    return _RECENT.decode(decompress(stored))


def _unpack_older(stored: bytes) -> tuple[ClosedDay, ...]:
    return _OLDER.decode(decompress(stored))


closed_days = sa.Table(
    "closed_days",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    # The newest closed day and the 30 days before it.
    sa.Column("recent", Encoded(_pack, _unpack_recent, _BYTES), nullable=False),
    # The days before them; NULL without any.
    sa.Column("older", Encoded(_pack, _unpack_older, _BYTES)),
)

_CLOSED_DAYS: Final = sa.select(closed_days).where(rows.any_of(closed_days.c.endpoint_id))
_RECENT_DAYS: Final = sa.select(
    closed_days.c.endpoint_id, sa.type_coerce(closed_days.c.recent, _BYTES).label("recent")
).where(rows.any_of(closed_days.c.endpoint_id))
_OLDEST: Final = sa.select(sa.func.min(probe_table.c.day))
_OPEN: Final = (
    sa.select(
        probe_table.c.endpoint_id,
        *[probe_table.c["rules" if n == "findings" else n] for n in DayProbe.__struct_fields__],
    )
    .where(
        probe_table.c.day.in_(sa.bindparam("days", expanding=True)),
        rows.any_of(probe_table.c.endpoint_id),
        probe_table.c.at <= sa.bindparam("as_of"),
    )
    .order_by(probe_table.c.endpoint_id, probe_table.c.at)
)


def recent_days(tx: Connection, endpoint_ids: Sequence[str]) -> dict[str, ClosedDays]:
    """Return the closed days that scores read, by endpoint ID."""
    return {
        row.endpoint_id: _unpack_recent(row.recent)
        for row in rows.with_any(tx, _RECENT_DAYS, endpoint_ids)
    }


def all_days(tx: Connection, endpoint_id: str) -> tuple[ClosedDay, ...]:
    """Return all closed days of an endpoint, oldest first."""
    query = sa.select(closed_days).where(closed_days.c.endpoint_id == endpoint_id)
    row = tx.execute(query).first()
    return () if row is None else (*(row.older or ()), *row.recent.days)


def add_closed(
    tx: Connection, closed: Mapping[str, tuple[ClosedDay, Sequence[ProbeResult]]]
) -> None:
    """Add or replace a closed day of endpoints, by ID, with all its probes in order of time."""
    known = {row.endpoint_id: row for row in rows.with_any(tx, _CLOSED_DAYS, closed)}
    # A new row locks its endpoint: sorted by ID, like all batches of probes, to avoid deadlocks.
    columns = [_add_day(known.get(id_), id_, *closed[id_]) for id_ in sorted(closed)]
    rows.put(tx, closed_days, columns)


def _add_day(
    row: Any, endpoint_id: str, day: ClosedDay, results: Sequence[ProbeResult]
) -> dict[str, Any]:
    """Return the row of an endpoint after a day was added; `row` is the current one, if any."""
    before, older = (NO_DAYS, None) if row is None else (row.recent, row.older)
    after, leaving = before.with_day(day, results)
    if leaving:
        first = after.days[-1].day - RAW_DAYS + 1
        days = {one.day: one for one in (*(older or ()), *leaving) if one.day >= first}
        older = tuple(days[number] for number in sorted(days))
    return {"endpoint_id": endpoint_id, "recent": after, "older": older}


def read(tx: Connection, endpoint_id: str, *, as_of: int) -> Window:
    """Read the window of an endpoint up to `as_of` (ms UTC)."""
    return next(read_each(tx, (endpoint_id,), as_of=as_of))


def read_each(tx: Connection, endpoint_ids: Sequence[str], *, as_of: int) -> Iterator[Window]:
    """Yield the windows of endpoints up to `as_of` (ms UTC), in the given order.

    Rows are decoded one endpoint at a time: a batch of windows is 100,000 objects, and the garbage
    collector would visit all of them several times (0.5 of 2 ms per score).
    """
    closed = {row.endpoint_id: row.recent for row in rows.with_any(tx, _RECENT_DAYS, endpoint_ids)}
    opened = _read_open(tx, endpoint_ids, as_of=as_of)
    for id_ in endpoint_ids:
        days = _unpack_recent(closed[id_]) if id_ in closed else NO_DAYS
        results: list[AnyProbe] = [DayProbe(*values) for values in opened.get(id_, ())]
        late = {day_of(one.at) for one in results} & {one.day for one in days.days}
        if late:
            results = _with_packed(tx, id_, results, late)
        yield window_of(days, results, as_of=as_of)


def _read_open(
    tx: Connection, endpoint_ids: Sequence[str], *, as_of: int
) -> dict[str, list[list[Any]]]:
    """Return the values of DayProbes up to `as_of` of days that are not closed, by endpoint ID, in
    order of time.
    """
    oldest = tx.execute(_OLDEST).scalar_one()
    if oldest is None:
        return {}
    today = day_of(as_of)
    # A list of days, not BETWEEN: with a range SQLite reads the rows of all endpoints. Rows of
    # earlier days are few and soon closed, so the list has one or two days.
    days = list(range(max(oldest, today - DAYS), today + 1))
    found = rows.with_any(tx, _OPEN, endpoint_ids, days=days, as_of=as_of)
    return rows.group((id_, values) for id_, *values in map(tuple, found))


def _with_packed(
    tx: Connection, endpoint_id: str, results: list[AnyProbe], days: set[int]
) -> list[AnyProbe]:
    """Merge late probes with the packed ones of their days, in order of time."""
    query = sa.select(probe_day_table.c.packed).where(
        probe_day_table.c.day.in_(days), probe_day_table.c.endpoint_id == endpoint_id
    )
    packed = [one for row in tx.execute(query) for one in unpack(row.packed)]
    by_time: dict[int, AnyProbe] = {one.at: one for one in (*results, *packed)}
    return [by_time[at] for at in sorted(by_time)]
