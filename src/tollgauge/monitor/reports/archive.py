"""Archive: the probes of an endpoint as they were seen."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from tollgauge.core.probe import ProbeResult
from tollgauge.core.units import DAY_MS, day_of
from tollgauge.store.probes import probes


def history(
    tx: Connection, endpoint_id: str, *, since: int, until: int
) -> Iterator[tuple[ProbeResult, ...]]:
    """The probes with `since < at <= until`, oldest first, one batch a UTC day: each stored day is
    read once, and no more than one is held.
    """
    while since < until:
        edge = min((day_of(since + 1) + 1) * DAY_MS - 1, until)
        yield probes.history(tx, endpoint_id, since=since, until=edge)
        since = edge
