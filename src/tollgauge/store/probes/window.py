"""Day sums: closed days, and the windows that evidence is made of.

All closed days of an endpoint are one row: the days that a score reads in one column, older days
for charts in another, so that a score does not pay for what it does not read. Both are compressed
msgpack of core/score/window's structs. Days are dropped RAW_DAYS after the newest closed day, like
the packed probes.

A window is the closed days and the rows of the probes that are not closed yet. Where a probe came
late to a closed day, the packed probes of that day are read too. Reading several tables is exact
only inside one transaction.
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
    """The closed days that a score of some endpoints reads, by id; those without are left out."""
    query = sa.select(*closed_days.c["endpoint_id", "recent"])
    known = rows.with_any(tx, query, closed_days.c.endpoint_id, endpoint_ids)
    return {row.endpoint_id: _DECODER.decode(decompress(row.recent)) for row in known}


def all_days(tx: Connection, endpoint_id: str) -> tuple[ClosedDay, ...]:
    """Every closed day of an endpoint that is known, oldest first."""
    query = sa.select(closed_days).where(closed_days.c.endpoint_id == endpoint_id)
    row = tx.execute(query).first()
    return () if row is None else (*_older(row), *_DECODER.decode(decompress(row.recent)).days)


def add_closed(
    tx: Connection, closed: Mapping[str, tuple[ClosedDay, Sequence[ProbeResult]]]
) -> None:
    """Add a closed day to the rows of endpoints, by id, with all its probes in the order of time.
    A day that is there already is replaced.
    """
    known = {
        row.endpoint_id: row
        for row in rows.with_any(tx, sa.select(closed_days), closed_days.c.endpoint_id, closed)
    }
    # A new row locks its endpoint, as a wave of probes does in the order of the ids.
    columns = [_added(known.get(id_), id_, *closed[id_]) for id_ in sorted(closed)]
    rows.put(tx, closed_days, columns)


def _added(
    row: Any, endpoint_id: str, day: ClosedDay, results: Sequence[ProbeResult]
) -> dict[str, Any]:
    """The row of an endpoint with a day; `row` is what it has so far, None without one."""
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
    """The window of an endpoint up to `as_of` (ms UTC)."""
    return read_many(tx, (endpoint_id,), as_of=as_of)[endpoint_id]


def read_many(tx: Connection, endpoint_ids: Sequence[str], *, as_of: int) -> dict[str, Window]:
    """The windows of several endpoints, by id."""
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
    """Late probes with the others of their days, in the order of time."""
    query = sa.select(probe_day_table.c.packed).where(
        probe_day_table.c.day.in_(days), probe_day_table.c.endpoint_id == endpoint_id
    )
    packed = [one for row in tx.execute(query) for one in unpack(row.packed)]
    by_instant = {one.at: one for one in (*results, *packed)}
    return [by_instant[at] for at in sorted(by_instant)]
