"""Uptimes by day of the endpoints in a list, on both databases."""

from __future__ import annotations

from tests.support.databases import on_sqlite
from tests.support.score_rows import endpoint

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.probe import Spans
from tollgauge.core.probe.rollup import Rollup
from tollgauge.core.score.window import ClosedDay
from tollgauge.db.engine import Store
from tollgauge.monitor.reports.endpoint import MIN_DAYS, read_uptimes
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import window

TODAY = 20_000


@on_sqlite
async def test_uptimes_cover_the_days_before_today_and_mark_days_without_data(store: Store) -> None:
    probed, unprobed = endpoint("/probed"), endpoint("/unprobed")
    await store.writing(endpoints.insert, probed, unprobed)
    for days_ago, up, down in ((1, 23, 1), (3, 24, 0), (MIN_DAYS, 0, 24)):
        spans = Spans(up=up * HOUR_MS, down=down * HOUR_MS)
        closed = ClosedDay(Rollup(day=TODAY - days_ago, spans=spans))
        await store.writing(window.add_closed, {probed.id: (closed, [])})
    uptimes = await store.reading(read_uptimes, [probed.id, unprobed.id], now=TODAY * DAY_MS)
    assert uptimes == {probed.id: (0, *[None] * 26, 1_000, None, 958)}
