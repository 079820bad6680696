"""Rounds of the prune loop: the database size after a year, and the rows that a round reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.forecasts import row as forecast_row
from tests.support.probe_archive import DAY, DOWN, GOOD, START, cadence
from tests.support.statements import fetch

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.watch.changes import delisting
from tollgauge.core.watch.watch_rules import RAW_DAYS
from tollgauge.db import disk
from tollgauge.db.engine import Store
from tollgauge.jobs import prune
from tollgauge.store import tables
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.probes import archive, probes
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.scores import forecasts

ENDPOINTS = [
    Endpoint(id=endpoint_id(url), resource=url, host="a.com", first_seen=START, last_seen=START)
    for url in (f"https://a.com/{number}" for number in range(3))
]
DAYS = range(25)
"""Days of equal size."""
PROBES = 4
"""Bytes per day and endpoint."""
DELISTED = TermChange(at=START, kind="delisted", source="dir", before="", after="")


def live(tx: Connection, first_day: int) -> None:
    """Store several weeks of everything with a retention period."""
    ids = [endpoint.id for endpoint in ENDPOINTS]
    instants = [(first_day + day) * DAY_MS for day in DAYS]
    for place, id_ in enumerate(ids):
        results = [
            replace(DOWN if hour % 5 == place else GOOD, at=at + hour * HOUR_MS)
            for at in instants
            for hour in range(PROBES)
        ]
        probes.record_many(tx, id_, results)
    daily = [(id_, at) for at in instants for id_ in ids]
    changes.add(tx, [(id_, delisting(at=at, source="dir")) for id_, at in daily])
    listings.add_events(tx, [(id_, replace(DELISTED, at=at)) for id_, at in daily])
    forecasts.add(
        tx,
        [replace(forecast_row(id_), hour=forecasts.hour_of(at), as_of=at) for id_, at in daily],
    )
    changes.mark_dispatched(
        tx, [one.id for one in changes.lock_undispatched(tx, limit=10_000)], now=0
    )


async def pages(store: Store) -> int:
    """Return the size of the file in pages."""
    return int((await fetch(store, sa.text("PRAGMA page_count"))).scalar_one())


async def prune_all(store: Store, *, now: int) -> None:
    while (await prune.run(store, clock=lambda: now))["busy"]:
        pass


async def test_after_a_year_the_file_is_at_most_half_larger_than_after_100_days() -> None:
    store = Store.open("sqlite://")
    await store.migrate()
    await store.writing(endpoints.insert, *ENDPOINTS)
    empty, sizes = await pages(store), []
    begins = range(DAY, DAY + 365, len(DAYS))
    for first_day in begins:
        await store.writing(live, first_day)
        await prune_all(store, now=(first_day + len(DAYS)) * DAY_MS + HOUR_MS)
        sizes.append(await pages(store) - empty)
    after_100_days, after_a_year = sizes[100 // len(DAYS) - 1], sizes[-1]
    assert after_100_days > 20  # pages: the file is not empty
    assert after_a_year <= 1.5 * after_100_days
    days = await store.reading(
        probes.days, ENDPOINTS[0].id, first_day=DAY, last_day=begins[-1] + len(DAYS)
    )
    assert sum(day.probes for day in days) == PROBES * RAW_DAYS
    await store.close()


HARMLESS = ("SCAN CONSTANT ROW", "SCAN (subquery-1)")
"""Tables without rows."""


async def test_no_step_of_a_round_scans_a_whole_table() -> None:
    """Uses SQLite, whose query plans do not depend on the size of a table."""
    store = Store.open("sqlite://")
    await store.migrate()
    await store.writing(endpoints.insert, *ENDPOINTS)
    await store.writing(probes.record_many, ENDPOINTS[0].id, cadence(1, days=3))
    now = START + 400 * DAY_MS
    steps: dict[str, Callable[[Connection], object]] = {
        "close": lambda tx: archive.close_days(tx, before_day=DAY + 2, limit=9),
        "days": lambda tx: archive.forget(tx, now=now, limit=9),
        "space": disk.give_back_pages,
        "unlisted": lambda tx: tables.forget_never_public(tx, now=now, limit=9),
    }
    for name, forget in prune.FORGET.items():
        steps[name] = lambda tx, forget=forget: forget(tx, now=now, limit=9)  # type: ignore[misc]
    for name, step in steps.items():
        plans = await store.writing(plans_of, step)
        assert plans, name
        scans = [plan for plan in plans if plan.startswith("SCAN") and plan not in HARMLESS]
        assert scans == [], name
    await store.close()


def plans_of(tx: Connection, step: Callable[[Connection], object]) -> list[str]:
    """Return SQLite's query plan for each statement of a step."""
    statements: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        statements.append((statement, parameters))

    sa.event.listen(tx, "before_cursor_execute", note)
    step(tx)
    sa.event.remove(tx, "before_cursor_execute", note)
    return [
        plan.detail
        for statement, parameters in statements
        if not statement.startswith("PRAGMA")
        for plan in tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
    ] or [statement for statement, _ in statements]
