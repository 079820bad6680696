"""Closed days: the sums of an endpoint's past days, all in one row.

The days that a score reads are one column, older days for charts another one: a score does not pay
for what it does not read. Both are msgpack of core/score/window's structs, compressed. Days are
dropped RAW_DAYS after the newest closed one, as the packed probes are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.window import NO_DAYS, ClosedDay, ClosedDays
from tollgauge.core.watch.watch_rules import RAW_DAYS
from tollgauge.db.compression import compress, decompress
from tollgauge.db.schema import metadata
from tollgauge.store import rows

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


def recent(tx: Connection, endpoint_ids: Sequence[str]) -> dict[str, ClosedDays]:
    """The closed days that a score of some endpoints reads, by id; those without are left out."""
    query = sa.select(*closed_days.c["endpoint_id", "recent"])
    known = rows.with_any(tx, query, closed_days.c.endpoint_id, endpoint_ids)
    return {row.endpoint_id: _DECODER.decode(decompress(row.recent)) for row in known}


def all_days(tx: Connection, endpoint_id: str) -> tuple[ClosedDay, ...]:
    """Every closed day of an endpoint that is known, oldest first."""
    query = sa.select(closed_days).where(closed_days.c.endpoint_id == endpoint_id)
    row = tx.execute(query).first()
    return () if row is None else (*_older(row), *_DECODER.decode(decompress(row.recent)).days)


def add(tx: Connection, closed: Mapping[str, tuple[ClosedDay, Sequence[ProbeResult]]]) -> None:
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
