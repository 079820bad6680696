"""Day sums of closed days, and the windows that evidence consists of.

All closed days of an endpoint are one row: the days that a score reads in one column, older days
for charts in another, which a score does not read. Both are compressed msgpack of
core/score/window's structs. Days are deleted RAW_DAYS after the newest closed day.

A window combines closed days with the rows of probes that are not closed yet. If a probe arrived
late for a closed day, that day's packed probes are read too. Reads of several tables are consistent
only within one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import day_of
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.window import DAYS, NO_DAYS, ClosedDay, ClosedDays, Window, window_of
from tollgauge.core.watch.watch_rules import RAW_DAYS
from tollgauge.db.codec import compress, decompress
from tollgauge.db.schema import metadata
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store import rows
from tollgauge.store.probes.probe_rows import result_from_row, unpack

closed_days = sa.Table(
    "closed_days",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    # ClosedDays: the newest closed day and the 30 days before it.
    sa.Column("recent", sa.LargeBinary, nullable=False),
    # The days before them, each a ClosedDay; NULL without any.
    sa.Column("older", sa.LargeBinary),
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(ClosedDays)
_OLDER_DECODER: Final = msgspec.msgpack.Decoder(tuple[ClosedDay, ...])


def recent_days(tx: Connection, endpoint_ids: Sequence[str]) -> dict[str, ClosedDays]:
    """Return the closed days that scores read, by endpoint ID."""
    query = sa.select(*closed_days.c["endpoint_id", "recent"])
    known = rows.with_any(tx, query, closed_days.c.endpoint_id, endpoint_ids)
    return {row.endpoint_id: _DECODER.decode(decompress(row.recent)) for row in known}


def all_days(tx: Connection, endpoint_id: str) -> tuple[ClosedDay, ...]:
    """Return all closed days of an endpoint, oldest first."""
    query = sa.select(closed_days).where(closed_days.c.endpoint_id == endpoint_id)
    row = tx.execute(query).first()
    return () if row is None else (*_older(row), *_DECODER.decode(decompress(row.recent)).days)


def add_closed(
    tx: Connection, closed: Mapping[str, tuple[ClosedDay, Sequence[ProbeResult]]]
) -> None:
    """Add or replace a closed day of endpoints, by ID, with all its probes in order of time."""
    known = {
        row.endpoint_id: row
        for row in rows.with_any(tx, sa.select(closed_days), closed_days.c.endpoint_id, closed)
    }
    # A new row locks its endpoint: sorted by ID, like all batches of probes, to avoid deadlocks.
    columns = [_added(known.get(id_), id_, *closed[id_]) for id_ in sorted(closed)]
    rows.put(tx, closed_days, columns)


def _added(
    row: Any, endpoint_id: str, day: ClosedDay, results: Sequence[ProbeResult]
) -> dict[str, Any]:
    """Return the row of an endpoint after a day was added; `row` is the current one, if any."""
    before = NO_DAYS if row is None else _DECODER.decode(decompress(row.recent))
    after, leaving = before.with_day(day, results)
    older = row.older if row is not None else None
    if leaving:
        first = after.days[-1].day - RAW_DAYS + 1
        days = {one.day: one for one in (*_older(row), *leaving) if one.day >= first}
        older = compress(_ENCODER.encode([days[number] for number in sorted(days)]))
    recent_days = compress(_ENCODER.encode(after))
    return {"endpoint_id": endpoint_id, "recent": recent_days, "older": older}


def _older(row: Any) -> tuple[ClosedDay, ...]:
    if row is None or row.older is None:
        return ()
    return _OLDER_DECODER.decode(decompress(row.older))


def read(tx: Connection, endpoint_id: str, *, as_of: int) -> Window:
    """Read the window of an endpoint up to `as_of` (ms UTC)."""
    return read_many(tx, (endpoint_id,), as_of=as_of)[endpoint_id]


def read_many(tx: Connection, endpoint_ids: Sequence[str], *, as_of: int) -> dict[str, Window]:
    """Read the windows of endpoints by ID."""
    today = day_of(as_of)
    closed = recent_days(tx, endpoint_ids)
    opened: dict[str, list[ProbeResult]] = {id_: [] for id_ in endpoint_ids}
    fresh = (
        sa.select(probe_table)
        .where(probe_table.c.day.between(today - DAYS, today), probe_table.c.at <= as_of)
        .order_by(probe_table.c.endpoint_id, probe_table.c.at)
    )
    for row in rows.with_any(tx, fresh, probe_table.c.endpoint_id, endpoint_ids):
        opened[row.endpoint_id].append(result_from_row(row))
    windows = {}
    for id_ in endpoint_ids:
        days, results = closed.get(id_, NO_DAYS), opened[id_]
        late = {day_of(one.at) for one in results} & {one.day for one in days.days}
        if late:
            results = _with_packed(tx, id_, results, late)
        windows[id_] = window_of(days, results, as_of=as_of)
    return windows


def _with_packed(
    tx: Connection, endpoint_id: str, results: list[ProbeResult], days: set[int]
) -> list[ProbeResult]:
    """Merge late probes with the packed ones of their days, in order of time."""
    query = sa.select(probe_day_table.c.packed).where(
        probe_day_table.c.day.in_(days), probe_day_table.c.endpoint_id == endpoint_id
    )
    packed = [one for row in tx.execute(query) for one in unpack(row.packed)]
    by_instant = {one.at: one for one in (*results, *packed)}
    return [by_instant[at] for at in sorted(by_instant)]
