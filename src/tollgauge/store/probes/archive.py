"""Closing days: the fresh probe rows of an endpoint's past day become one packed row.

Rules:
- what is packed is exactly what is removed (`DELETE … RETURNING`), in one transaction: a probe
  that arrives meanwhile stays a fresh row and is merged the next time;
- one process closes at a time, and the oldest day first: the spans of a day need the last statement
  of the day before;
- a late probe of a closed day is merged into that day alone;
- what the closed days of an endpoint add up to is kept with each of them
  (store/probes/closed_days), and what its charts show of them (store/probes/past_days);
- a day keeps the score that the endpoint had when it was closed first, if that was computed on the
  day or within SCORED_WITHIN_MS after it.

What becomes of days that are too old to be kept one by one: store/probes/months.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.probe import ProbeResult
from tollgauge.core.rollup import merge, rollup
from tollgauge.core.spans import Statement, spans, statement
from tollgauge.core.units import DAY_MS, HOUR_MS
from tollgauge.db import meta
from tollgauge.db.codec import statement_from_json
from tollgauge.db.packing import pack, unpack
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store import rows
from tollgauge.store.endpoints import scores
from tollgauge.store.probes import closed_days, past_days, window
from tollgauge.store.probes.closed_days import CLOSE_TURN, ClosedDay
from tollgauge.store.probes.past_days import DayScore, past_day
from tollgauge.store.probes.probe_rows import day_from_row, day_to_row, result_from_row

SCORED_WITHIN_MS: Final = 6 * HOUR_MS
"""Days are closed soon after midnight, those of many endpoints one after the other."""


def close_days(tx: Connection, *, before_day: int, limit: int) -> int:
    """Pack at most `limit` (endpoint, day) pairs of days before `before_day`, oldest day first;
    returns how many. Call it again until it returns 0.
    """
    meta.take_turn(tx, CLOSE_TURN)
    query = (
        sa.select(probe_table.c.day, probe_table.c.endpoint_id)
        .where(probe_table.c.day < before_day)
        .distinct()
        .order_by(probe_table.c.day, probe_table.c.endpoint_id)
        .limit(limit)
    )
    pairs = [(day, endpoint_id) for day, endpoint_id in tx.execute(query)]
    for day, group in groupby(pairs, key=lambda pair: pair[0]):
        ids = [endpoint_id for _, endpoint_id in group]
        _close(tx, day, ids, before_day=before_day)
    return len(pairs)


def _close(tx: Connection, day: int, endpoint_ids: Sequence[str], *, before_day: int) -> None:
    on_day = sa.and_(probe_table.c.day == day, probe_table.c.endpoint_id.in_(endpoint_ids))
    removed = tx.execute(probe_table.delete().where(on_day).returning(*probe_table.c))
    fresh: dict[str, list[ProbeResult]] = {}
    for row in removed:
        fresh.setdefault(row.endpoint_id, []).append(result_from_row(row))
    known = sa.select(probe_day_table).where(
        probe_day_table.c.day == day, probe_day_table.c.endpoint_id.in_(endpoint_ids)
    )
    closed = {row.endpoint_id: row for row in tx.execute(known)}
    before = _last_statements(tx, day - 1, endpoint_ids)
    latest = scores.latest_tenths(tx, list(fresh))
    merged = {
        endpoint_id: _merged(
            day, endpoint_id, results, closed.get(endpoint_id), before.get(endpoint_id)
        )
        for endpoint_id, results in sorted(fresh.items())
    }
    scores_by_id = {id_: _score(day, closed.get(id_), latest.get(id_)) for id_ in merged}
    rows.put(
        tx,
        probe_day_table,
        [columns | _score_columns(scores_by_id[id_]) for id_, (columns, _) in merged.items()],
    )
    days = {id_: closed_day for id_, (_, closed_day) in merged.items()}
    window.keep(tx, closed_days.after(tx, day, days, before_day=before_day))
    past_days.keep(
        tx,
        day,
        {id_: past_day(one.sums, one.said, scores_by_id[id_]) for id_, one in days.items()},
    )


def _last_statements(
    tx: Connection, day: int, endpoint_ids: Sequence[str]
) -> dict[str, Statement | None]:
    """What the last probes of a closed day that speak say, by endpoint id."""
    query = sa.select(probe_day_table.c.endpoint_id, probe_day_table.c.last_statement).where(
        probe_day_table.c.day == day, probe_day_table.c.endpoint_id.in_(endpoint_ids)
    )
    return {row.endpoint_id: statement_from_json(row.last_statement) for row in tx.execute(query)}


def _score(
    day: int, row: sa.Row[Any] | None, latest: tuple[int, int, int | None] | None
) -> DayScore | None:
    """The score of a day: what its row has, if it was closed before, else the latest one, if that
    is one of this day.
    """
    if row is not None and row.score_tenths is not None:
        return DayScore(row.score_tenths, row.score_policy)
    if latest is not None and day * DAY_MS <= latest[0] < (day + 1) * DAY_MS + SCORED_WITHIN_MS:
        _, policy, tenths = latest
        return None if tenths is None else DayScore(tenths, policy)
    return None


def _score_columns(score: DayScore | None) -> dict[str, int | None]:
    """The score of a day as column values."""
    return {
        "score_tenths": score.tenths if score else None,
        "score_policy": score.policy_version if score else None,
    }


def _merged(
    day: int,
    endpoint_id: str,
    results: Sequence[ProbeResult],
    row: sa.Row[Any] | None,
    before: Statement | None,
) -> tuple[dict[str, Any], ClosedDay]:
    """The closed row of a day, of the fresh results with what was closed before; and the day.
    `before` is the last statement of the day before.
    """
    if row is not None and row.packed is None:  # pruned: only its sums are left
        sums = merge(day_from_row(row), rollup(day, results))
        last = statement_from_json(row.last_statement)
        columns = day_to_row(endpoint_id, sums, last=last, packed=None)
        return columns, ClosedDay(sums=sums, said=last, results=results)
    by_instant = {result.at: result for result in results}
    if row is not None:
        by_instant |= {result.at: result for result in unpack(row.packed)}
    ordered = [by_instant[at] for at in sorted(by_instant)]
    statements = [said for result in ordered if (said := statement(result)) is not None]
    spoken = spans(day, statements, before=before, until=(day + 1) * DAY_MS)
    sums = replace(rollup(day, ordered), spans=spoken)
    last = statements[-1] if statements else None
    columns = day_to_row(endpoint_id, sums, last=last, packed=pack(ordered))
    return columns, ClosedDay(sums=sums, said=last, results=ordered)
