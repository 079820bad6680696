"""Incidents: what changed at all endpoints, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes.change_rows import Incident

PAGE_ROWS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Incidents:
    """A page of the public incidents of so many UTC days, today included, newest first. `kind` is
    the one type that is shown, None for all; `next_after` the id of the last incident where more
    follow.
    """

    today: int
    days: int
    kind: str | None
    rows: tuple[Incident, ...]
    next_after: int | None = None

    @property
    def first_day(self) -> int:
        """The oldest UTC day that is shown."""
        return self.today - self.days + 1


def incidents(
    tx: Connection, kind: str | None, days: int, after: int | None, *, now: int
) -> Incidents:
    """The incidents of some days; `after` is the id of the last one on the page before."""
    today = day_of(now)
    since = (today - days + 1) * DAY_MS
    rows = changes.public_since(tx, since=since, kind=kind, after=after, limit=PAGE_ROWS + 1)
    shown = rows[:PAGE_ROWS]
    return Incidents(
        today=today,
        days=days,
        kind=kind,
        rows=shown,
        next_after=shown[-1].id if len(rows) > PAGE_ROWS else None,
    )
