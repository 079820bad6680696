"""Months: what the days of an endpoint add up to that are too old to be kept one by one.

Rules:
- a day is folded into its month whole, with its probes, and removed, in one transaction; the oldest
  days first, and a late probe of such a day follows when its day is closed again;
- only what is due is read, because `probe_day` is keyed by day;
- who was checked how often is still known of each day, because a watch may be older (`counts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.latency import NO_LATENCIES, plus
from tollgauge.core.rollup import NO_TOTALS, Totals, totals
from tollgauge.core.spans import Spans
from tollgauge.core.units import date_of, month_of
from tollgauge.db import meta
from tollgauge.db.packing import pack_counts, pack_histogram, unpack_counts, unpack_histogram
from tollgauge.db.schema import probe_day, probe_month
from tollgauge.store import rows
from tollgauge.store.probes.closed_days import CLOSE_TURN
from tollgauge.store.probes.probe_rows import day_from_row

_SUMS: Final = tuple(column for column in probe_day.c if column.name != "packed")


def fold(tx: Connection, *, before_day: int, limit: int) -> int:
    """Fold at most `limit` (endpoint, day) pairs of days before `before_day` into their months,
    oldest day first; returns how many. Call it again until it returns 0.
    """
    query = (
        sa.select(probe_day.c.day, probe_day.c.endpoint_id)
        .where(probe_day.c.day < before_day)
        .order_by(probe_day.c.day, probe_day.c.endpoint_id)
        .limit(limit)
    )
    meta.take_turn(tx, CLOSE_TURN)
    pairs = [(day, endpoint_id) for day, endpoint_id in tx.execute(query)]
    for day, group in groupby(pairs, key=lambda pair: pair[0]):
        _fold(tx, day, [endpoint_id for _, endpoint_id in group])
    return len(pairs)


def counts(tx: Connection, endpoint_id: str, *, first_day: int, last_day: int) -> tuple[int, int]:
    """(probes, scored probes) of those of some whole days that were folded."""
    query = sa.select(probe_month.c.month, probe_month.c.counts).where(
        probe_month.c.endpoint_id == endpoint_id,
        probe_month.c.month.between(month_of(first_day), month_of(last_day)),
    )
    days = range(first_day, last_day + 1)
    wanted = {(month_of(day), _day_of_month(day)) for day in days}
    probes = scored = 0
    for row in tx.execute(query):
        for day, day_probes, day_scored in unpack_counts(row.counts):
            if (row.month, day) in wanted:
                probes += day_probes
                scored += day_scored
    return probes, scored


def _fold(tx: Connection, day: int, endpoint_ids: Sequence[str]) -> None:
    """Add a day of some endpoints to its month, and remove it."""
    month = month_of(day)
    of_day = sa.and_(probe_day.c.day == day, probe_day.c.endpoint_id.in_(endpoint_ids))
    removed = tx.execute(probe_day.delete().where(of_day).returning(*_SUMS)).all()
    known = sa.select(probe_month).where(
        probe_month.c.month == month, probe_month.c.endpoint_id.in_(endpoint_ids)
    )
    before = {row.endpoint_id: row for row in tx.execute(known)}
    # A new row locks its endpoint, as a wave of probes does in the order of the ids.
    removed = sorted(removed, key=attrgetter("endpoint_id"))
    rows.put(tx, probe_month, [_added(month, row, before.get(row.endpoint_id)) for row in removed])


def _added(month: int, day: Any, before: Any) -> dict[str, Any]:
    """The row of a month with a day's row added; `before` is the month's row, None without one."""
    sums = totals([day_from_row(day)], NO_TOTALS if before is None else _totals(before))
    counted = {_day_of_month(day.day): (day.probes, day.scored)}
    if before is not None:
        counted = _counts_sum(unpack_counts(before.counts), counted)
    return rows.to_columns(
        sums,
        "spans",
        endpoint_id=day.endpoint_id,
        month=month,
        latency=pack_histogram(sums.latency.pairs),
        excluded=orjson.dumps(sums.excluded).decode(),
        up_ms=sums.spans.up,
        payable_ms=sums.spans.payable,
        down_ms=sums.spans.down,
        compliance_ms=sums.spans.compliance,
        failures=sums.spans.failures,
        repairs=sums.spans.repairs,
        counts=pack_counts([(number, *counted[number]) for number in sorted(counted)]),
    )


def _counts_sum(
    before: Iterable[tuple[int, int, int]], added: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """(probes, scored probes) by day of the month."""
    counted = {day: (probes, scored) for day, probes, scored in before}
    for day, (probes, scored) in added.items():
        more_probes, more_scored = counted.get(day, (0, 0))
        counted[day] = (probes + more_probes, scored + more_scored)
    return counted


def _totals(row: Any) -> Totals:
    """The sums of a month's row."""
    return rows.from_columns(
        Totals,
        row,
        latency=plus(NO_LATENCIES, unpack_histogram(row.latency)),
        excluded=tuple(map(tuple, orjson.loads(row.excluded))),
        spans=Spans(
            up=row.up_ms,
            payable=row.payable_ms,
            down=row.down_ms,
            compliance=row.compliance_ms,
            failures=row.failures,
            repairs=row.repairs,
        ),
    )


def _day_of_month(day: int) -> int:
    """The place (1..31) of a UTC day in its month."""
    return date_of(day).day
