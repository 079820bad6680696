"""Window: what the probes of endpoints add up to, for their evidence.

Rules (docs/methodology.md, *time, not probe counts*):
- the window is the UTC day of `as_of` and the 30 days before it; only its last day is cut;
- the closed days of an endpoint are one row (`probe_window`), written when a day is closed
  (store/probes/archive), and with the rows of the open days that is all there is to read;
- where that row does not say it (there is none, late probes came to a closed day, `as_of` lies in
  the past), the rows of each day are read (store/probes/window_days).

Reading several tables is exact only inside one transaction, which sees one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.evidence import RECENT_MS
from tollgauge.core.latency import Columns
from tollgauge.core.latest_probes import NOTHING, Latest
from tollgauge.core.open_day import NO_PROBES, OpenDay
from tollgauge.core.rollup import Rollup, Totals
from tollgauge.core.spans import NO_SPANS, Spans, Statement
from tollgauge.core.units import DAY_MS, day_of
from tollgauge.core.window import DAYS, ClosedDays, DayTexts, WeightedTime, Window
from tollgauge.db.compression import compress, decompress
from tollgauge.db.prepared import PreparedAny
from tollgauge.db.schema import metadata
from tollgauge.store import rows
from tollgauge.store.probes import open_days, window_days
from tollgauge.store.probes.open_days import Opened, latest_from

probe_window = sa.Table(
    "probe_window",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    # The newest closed day.
    sa.Column("day", sa.Integer, nullable=False),
    # What the closed days add up to (`pack`), and the texts of the days (core/window), both packed.
    sa.Column("closed", sa.LargeBinary, nullable=False),
    sa.Column("texts", sa.LargeBinary, nullable=False),
)

_CLOSED: Final = PreparedAny(
    lambda ids: sa.select(probe_window).where(probe_window.c.endpoint_id.in_(ids))
)
TOTALS: Final = tuple(
    field.name for field in fields(Totals) if field.name not in ("latency", "excluded", "spans")
)
"""The sums that are one number each, in the order in which they are packed."""


def read(tx: Connection, endpoint_id: str, *, as_of: int, recent_ms: int = RECENT_MS) -> Window:
    """The window of an endpoint up to `as_of` (ms UTC); `recent` reaches `recent_ms` back."""
    return read_many(tx, (endpoint_id,), as_of=as_of, recent_ms=recent_ms)[endpoint_id]


def read_many(
    tx: Connection, endpoint_ids: Sequence[str], *, as_of: int, recent_ms: int = RECENT_MS
) -> dict[str, Window]:
    """The windows of several endpoints, by id."""
    since, today = as_of - recent_ms, day_of(as_of)
    closed = {row.endpoint_id: row for row in _CLOSED.rows(tx, endpoint_ids)}
    # Sums that are kept say which probes were up only as far back as a score looks.
    kept = recent_ms <= RECENT_MS
    opened = {
        day: open_days.read(tx, endpoint_ids, day=day, as_of=as_of, kept=kept)
        for day in open_days.days(tx, range(today - DAYS, today + 1))
    }
    windows: dict[str, Window] = {}
    for id_ in endpoint_ids:
        row = closed.get(id_)
        days = {
            day: of_day[id_]
            for day, of_day in opened.items()
            if id_ in of_day and not (row and _is_closed(day, row.day, of_day[id_]))
        }
        if row is None or _suffices(row.day, days, since, today):
            windows[id_] = _window(row, days, as_of=as_of, since=since)
        else:
            windows[id_] = window_days.read(tx, id_, as_of=as_of, recent_ms=recent_ms)
    return windows


def latest_closed(tx: Connection, endpoint_ids: Sequence[str]) -> dict[str, ClosedDays]:
    """The closed days of endpoints as they were kept last, by id; those without are left out."""
    return {row.endpoint_id: unpack(row) for row in _CLOSED.rows(tx, endpoint_ids)}


def keep(tx: Connection, closed: Iterable[tuple[str, ClosedDays]]) -> None:
    """Keep the closed days of endpoints, each with its id."""
    rows.put(tx, probe_window, [{"endpoint_id": id_, **pack(days)} for id_, days in closed])


def _is_closed(day: int, newest: int, opened: Opened) -> bool:
    """Whether a day is one of the closed ones up to `newest` and has no fresh probes: the sums that
    a score kept of it may be there for longer.
    """
    _, probes = opened
    return day <= newest and not probes.newest


def _suffices(newest: int, opened: Mapping[int, Opened], since: int, today: int) -> bool:
    """Whether the row of the closed days up to `newest` says all that the rows of the days do: that
    was yesterday, or yesterday is still open; no probe came late to one of them; and the recent
    probes begin no earlier than its tail.
    """
    ended, first = (newest + 1) * DAY_MS, min(opened, default=newest + 1)
    yesterday = newest == today - 1 or (newest == today - 2 and first == today - 1)
    return yesterday and first > newest and since >= ended - RECENT_MS


def _window(row: Any, opened: Mapping[int, Opened], *, as_of: int, since: int) -> Window:
    """The window of a row of closed days, if there is one, and of the open days after it, in the
    order of days.
    """
    today = day_of(as_of)
    first = today - DAYS + 1
    latest = NOTHING
    for kept, probes in opened.values():
        latest = probes.latest.after(kept.latest).after(latest)
    closed = None if row is None else unpack(row, later=latest)
    newest, said = (first - 2, None) if closed is None else (closed.day, closed.said)
    of_days: list[Rollup] = []
    recent: list[bool] = []
    of_today: OpenDay | None = None
    for number in range(max(newest + 1, first - 1), today + 1):
        before = said if said is not None and day_of(said.at) == number - 1 else None
        if before is None and number not in opened:
            continue
        kept, probes = opened.get(number, (OpenDay(sums=Rollup(day=number)), NO_PROBES))
        of_today = kept.followed_by(probes, before=before)
        said = of_today.said
        sums = of_today.until(as_of, before=before)
        recent += [up for at, up in of_today.ups if at > since]
        if number >= first and (sums.probes or sums.spans != NO_SPANS):
            of_days.append(sums)
    if closed is not None:
        latest = latest.after(closed.latest)
        recent += [up for at, up in closed.tail if at > since]
        if closed.day < today - 1:  # some of its days have left the window
            of_days = [sums for sums in closed.rollups() if sums.day >= first] + of_days
            closed = None
    return Window(
        open_days=tuple(of_days),
        recent=(len(recent), sum(recent)),
        latest=latest.since(first * DAY_MS),
        closed=closed,
        today=of_today if today in opened else None,
    )


def pack(closed: ClosedDays) -> dict[str, Any]:
    """Closed days as column values."""
    totals = closed.totals
    head = (
        tuple(closed.weighted),
        [getattr(totals, name) for name in TOTALS],
        *totals.latency,
        totals.excluded,
        totals.spans,
        closed.latest,
        None if closed.said is None else tuple(closed.said),
        closed.tail,
    )
    return {
        "day": closed.day,
        "closed": compress(orjson.dumps(head)),
        "texts": compress(closed.texts.text),
    }


def unpack(row: Any, *, later: Latest = NOTHING) -> ClosedDays:
    """The inverse of `pack`. Where `later` probes are known, the latest ones are only those that
    these lack.
    """
    head = orjson.loads(decompress(row.closed))
    weighted, sums, buckets, counts, excluded, spans, latest, said, tail = head
    return ClosedDays(
        day=row.day,
        weighted=WeightedTime(*weighted),
        totals=Totals(
            **dict(zip(TOTALS, sums, strict=True)),
            latency=Columns(buckets, counts),
            excluded=tuple(map(tuple, excluded)),
            spans=Spans(**spans),
        ),
        texts=DayTexts(row.texts, decompress),
        latest=latest_from(latest, later=later),
        said=None if said is None else Statement(*said),
        tail=tail,
    )
