"""Read the latest state of an endpoint in one statement.

A sale reads all of it, and each further statement would be another round trip to the database.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint, Resource
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.db.schema import endpoint, host, probe, score
from tollgauge.store import rows
from tollgauge.store.endpoint_rows import from_row
from tollgauge.store.probes import probes
from tollgauge.store.probes.probe_rows import result_from_row
from tollgauge.store.probes.vantages import vantage_probe
from tollgauge.store.schedule.hosts import LEASE_UNTIL, HostState
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow

_TABLES: Final = (endpoint, host, probe, score)
_ROW_TYPES: Final[tuple[Any, ...]] = tuple(
    namedtuple(f"{table.name.capitalize()}Row", table.columns.keys())  # noqa: PYI024 - the names are the schema's
    for table in _TABLES
)
_ID: Final = sa.bindparam("id_", type_=sa.Text)
_ONE_ROW: Final = sa.select(sa.literal_column("1").label("one")).subquery("one_row")
_LATEST: Final = sa.select(
    *(column.label(f"{table.name}__{column.name}") for table in _TABLES for column in table.c),
    sa.exists()
    .where(vantage_probe.c.endpoint_id == _ID, vantage_probe.c.at.is_not(None))
    .label("seen_by_vantages"),
    LEASE_UNTIL,
).select_from(
    _ONE_ROW.outerjoin(endpoint, endpoint.c.id == _ID)
    .outerjoin(host, host.c.host == sa.bindparam("host_", type_=sa.Text))
    .outerjoin(probe, probes.LAST)
    .outerjoin(score, score.c.endpoint_id == _ID)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestProbe:
    """The latest state of an endpoint; missing parts are None, an unknown host has the defaults of
    HostState.

    `probe` is the last one, unless its day is closed. `named_at` is when a sold report last cited
    the score's evidence (ms UTC). `seen_by_vantages`: several vantages have results
    (store/probes/vantages).
    """

    endpoint: Endpoint | None
    host: HostState
    probe: ProbeResult | None
    score: ScoreRow | None
    named_at: int | None
    seen_by_vantages: bool


def of(tx: Connection, resource: Resource) -> LatestProbe:
    """Return the latest state of a resource's endpoint."""
    row = tx.execute(_LATEST, {"id_": resource.id, "host_": resource.host}).one()
    values = iter(row)
    known, at_host, last, scored = (
        _part(row_type._make(islice(values, len(row_type._fields)))) for row_type in _ROW_TYPES
    )
    return LatestProbe(
        endpoint=None if known is None else from_row(known),
        host=HostState(host=resource.host)
        if at_host is None
        else rows.from_columns(HostState, at_host, lease_until=row.lease_until),
        probe=None if last is None else result_from_row(last),
        score=None if scored is None else scores.from_row(scored),
        named_at=None if scored is None else scored.named_at,
        seen_by_vantages=row.seen_by_vantages,
    )


def _part(row: Any) -> Any:
    """Return the row of a joined table, or None if its key is NULL."""
    return None if row[0] is None else row
