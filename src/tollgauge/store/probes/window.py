"""Windows: what the probes of endpoints add up to, for their evidence.

An endpoint's closed days are one row (store/probes/closed_days); with the rows of the probes that
are not closed yet that is all there is to read. Where a probe came late to a closed day, the packed
probes of that day are read too.

Reading several tables is exact only inside one transaction, which sees one moment.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import day_of
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.window import DAYS, NO_DAYS, Window, window_of
from tollgauge.db.packing import unpack
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store import rows
from tollgauge.store.probes import closed_days
from tollgauge.store.probes.probe_rows import result_from_row


def read(tx: Connection, endpoint_id: str, *, as_of: int) -> Window:
    """The window of an endpoint up to `as_of` (ms UTC)."""
    return read_many(tx, (endpoint_id,), as_of=as_of)[endpoint_id]


def read_many(tx: Connection, endpoint_ids: Sequence[str], *, as_of: int) -> dict[str, Window]:
    """The windows of several endpoints, by id."""
    today = day_of(as_of)
    closed = closed_days.recent(tx, endpoint_ids)
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
