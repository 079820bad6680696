"""Close days: pack an endpoint's probe rows of a completed day into one row.

- Exactly the deleted rows are packed (`DELETE … RETURNING`), in one transaction. A probe that
  arrives in the meantime stays a fresh row and is merged the next time.
- One process closes days at a time, oldest day first: the spans of a day depend on the last result
  of the day before.
- A late probe is merged only into its own day.
- The sums of a day are added to the endpoint's closed days (store/probes/window), with the
  endpoint's score if it was computed on that day or within SCORED_WITHIN_MS after it.
- Days older than RAW_DAYS are deleted; watches keep counts of their probes (`forget`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, HOUR_MS, day_of
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.window import NO_DAYS, ClosedDay, ClosedDays, DayScore, day_of_probes
from tollgauge.core.watch.watch_rules import RAW_DAYS
from tollgauge.db import meta
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store import rows
from tollgauge.store.probes import window
from tollgauge.store.probes.probe_rows import pack, result_from_row, unpack
from tollgauge.store.scores import scores
from tollgauge.store.watches import watches

CLOSE_TURN: Final = "close-days"
# Closing the days of all endpoints takes a while after midnight.
SCORED_WITHIN_MS: Final = 6 * HOUR_MS


def close_days(tx: Connection, *, before_day: int, limit: int) -> int:
    """Pack at most `limit` (endpoint, day) pairs of days before `before_day`, oldest first.

    Returns their number; call it again until it returns 0.
    """
    meta.take_turn(tx, CLOSE_TURN)
    query = (
        sa.select(probe_table.c.day, probe_table.c.endpoint_id)
        .where(probe_table.c.day < before_day)
        .distinct()
        .order_by(probe_table.c.day, probe_table.c.endpoint_id)
        .limit(limit)
    )
    pairs = tx.execute(query).all()
    for day, ids in rows.group(pairs).items():
        _close(tx, day, ids)
    return len(pairs)


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` expired (endpoint, day) pairs; return their number.

    Their probes are added to the counts of the watches that were active then.
    """
    meta.take_turn(tx, CLOSE_TURN)
    query = (
        sa.select(probe_day_table)
        .where(probe_day_table.c.day < day_of(now) - RAW_DAYS)
        .order_by(probe_day_table.c.day, probe_day_table.c.endpoint_id)
        .limit(limit)
    )
    old = tx.execute(query).all()
    packed = rows.group((row.endpoint_id, row.packed) for row in old)
    for watch in watches.of_endpoints(tx, packed):
        counted = [
            result
            for day in packed[watch.endpoint_id]
            for result in unpack(day)
            if watch.created_at < result.at <= watch.reports_until and not result.confirms
        ]
        scored = sum(result.scored for result in counted)
        watches.count_old(tx, watch, probes=len(counted), scored=scored)
    for day, ids in rows.group((row.day, row.endpoint_id) for row in old).items():
        of_day = (probe_day_table.c.day == day, probe_day_table.c.endpoint_id.in_(ids))
        tx.execute(probe_day_table.delete().where(*of_day))
    return len(old)


def _close(tx: Connection, day: int, endpoint_ids: Sequence[str]) -> None:
    on_day = sa.and_(probe_table.c.day == day, probe_table.c.endpoint_id.in_(endpoint_ids))
    # RETURNING: a probe that is recorded after this statement stays a row and is merged next time.
    removed = tx.execute(probe_table.delete().where(on_day).returning(*probe_table.c))
    probes: dict[str, dict[int, ProbeResult]] = {id_: {} for id_ in sorted(endpoint_ids)}
    for row in removed:
        result = result_from_row(row)
        probes[row.endpoint_id][result.at] = result
    known = sa.select(*probe_day_table.c["endpoint_id", "packed"]).where(
        probe_day_table.c.day == day, probe_day_table.c.endpoint_id.in_(endpoint_ids)
    )
    for row in tx.execute(known):
        probes[row.endpoint_id] |= {result.at: result for result in unpack(row.packed)}
    results = {id_: [by[at] for at in sorted(by)] for id_, by in probes.items() if by}
    packed = [{"day": day, "endpoint_id": id_, "packed": pack(of)} for id_, of in results.items()]
    rows.put(tx, probe_day_table, packed)
    before = window.recent_days(tx, list(results))
    latest = scores.latest_tenths(tx, list(results))
    window.add_closed(
        tx,
        {
            id_: (_closed_day(day, of, before.get(id_, NO_DAYS), latest.get(id_)), of)
            for id_, of in results.items()
        },
    )


def _closed_day(
    day: int,
    results: Sequence[ProbeResult],
    before: ClosedDays,
    latest: tuple[int, int, int | None] | None,
) -> ClosedDay:
    """Build a closed day from all its probes, the endpoint's closed days so far and its latest
    score.
    """
    known = {one.day: one for one in before.days}
    said_before = known[day - 1].said if day - 1 in known else None
    sums, said = day_of_probes(day, results, before=said_before, until=(day + 1) * DAY_MS)
    score = known[day].score if day in known else None
    return ClosedDay(sums, said, score or _score(day, latest))


def _score(day: int, latest: tuple[int, int, int | None] | None) -> DayScore | None:
    """Return the latest score if it belongs to this day."""
    if latest is None or not (day * DAY_MS <= latest[0] < (day + 1) * DAY_MS + SCORED_WITHIN_MS):
        return None
    _, policy, tenths = latest
    return None if tenths is None else DayScore(tenths, policy)
