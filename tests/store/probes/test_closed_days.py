"""What the closed days of an endpoint add up to is what their rows say, whatever happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection
from tests.support.probe_archive import (
    DAY,
    DOWN,
    GOOD,
    KINDS,
    OURS,
    START,
    A,
    B,
    close_all,
    lively,
    prepare,
)
from tests.support.record_probe import record_probe
from tests.support.windows import by_the_rows, shown

from tollgauge.core.evidence import RECENT_MS
from tollgauge.core.probe import ProbeResult
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, day_of
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, closed_days, probes, window, window_days

PROBES = st.lists(
    st.builds(
        lambda kind, place: replace(kind, at=START + place * 7 * MINUTE_MS),
        st.sampled_from(KINDS),
        st.integers(0, 40 * DAY_MS // (7 * MINUTE_MS)),
    ),
    unique_by=lambda probe: probe.at,
    max_size=40,
)
CLOSINGS = st.lists(st.integers(0, 41), max_size=3)


@pytest.fixture(scope="module")
def engine() -> Iterator[sa.Engine]:
    """A database in memory, which takes a rollback to be empty again."""
    engine = sa.create_engine("sqlite://")
    schema.metadata.create_all(engine)
    yield engine
    engine.dispose()


def close(tx: Connection, before_day: int) -> None:
    while archive.close_days(tx, before_day=before_day, limit=7):
        pass


def without_probes(tx: Connection, *, before_day: int) -> None:
    """What older versions left of old days: their sums alone."""
    old = schema.probe_day.update().where(schema.probe_day.c.day < before_day)
    tx.execute(old.values(packed=None))


@settings(deadline=None, max_examples=60)
@given(
    results=PROBES,
    late=PROBES,
    closings=CLOSINGS,
    hours=st.integers(31 * 24, 42 * 24),
    merged=st.booleans(),
)
def test_any_history_is_seen_as_the_rows_of_its_days_show_it(
    engine: sa.Engine,
    results: list[ProbeResult],
    late: list[ProbeResult],
    closings: list[int],
    hours: int,
    merged: bool,
) -> None:
    as_of = START + hours * HOUR_MS
    today = day_of(as_of)
    with engine.connect() as tx:
        endpoints.insert(tx, A, B)
        probes.record_many(tx, A.id, results)
        probes.record_many(tx, B.id, late)
        for days in sorted(closings):
            close(tx, min(DAY + days, today))
        probes.record_many(tx, A.id, late)
        if merged:
            close(tx, today)
        for id_ in (A.id, B.id):
            seen = window.read(tx, id_, as_of=as_of)
            rows = window_days.read(tx, id_, as_of=as_of, recent_ms=RECENT_MS)
            assert shown(seen, today=today) == by_the_rows(rows, today=today)
        tx.rollback()


@settings(deadline=None, max_examples=30)
@given(results=PROBES, closings=CLOSINGS, hours=st.integers(36 * 24, 42 * 24))
def test_what_was_pruned_is_still_known(
    engine: sa.Engine, results: list[ProbeResult], closings: list[int], hours: int
) -> None:
    as_of = START + hours * HOUR_MS
    today = day_of(as_of)
    with engine.connect() as tx:
        endpoints.insert(tx, A, B)
        probes.record_many(tx, A.id, results)
        raw = window_days.read(tx, A.id, as_of=as_of, recent_ms=RECENT_MS)
        for days in sorted(closings):
            close(tx, min(DAY + days, today))
            without_probes(tx, before_day=DAY + days)
        close(tx, today)
        without_probes(tx, before_day=today)
        seen = window.read(tx, A.id, as_of=as_of)
        yesterday = [one for one in results if day_of(one.at) == today - 1]
        if yesterday:
            assert shown(seen, today=today) == by_the_rows(raw, today=today)
        tx.rollback()


@settings(deadline=None, max_examples=60)
@given(results=PROBES, late=PROBES, closings=CLOSINGS)
def test_days_added_one_by_one_are_those_of_all_days_at_once(
    engine: sa.Engine, results: list[ProbeResult], late: list[ProbeResult], closings: list[int]
) -> None:
    with engine.connect() as tx:
        endpoints.insert(tx, A)
        probes.record_many(tx, A.id, results)
        for closing in sorted(closings):
            close(tx, DAY + closing)
        probes.record_many(tx, A.id, late)
        close(tx, DAY + 42)
        added = window.latest_closed(tx, (A.id,))
        for days in added.values():
            tx.execute(window.probe_window.delete())
            window.keep(tx, closed_days.built(tx, [A.id], before_day=days.day + 1))
        assert added == window.latest_closed(tx, (A.id,))
        tx.rollback()


async def test_the_row_of_closed_days_is_all_that_a_window_reads_of_them(store: Store) -> None:
    as_of = START + 33 * DAY_MS + 2 * HOUR_MS
    results = lively(3, first=START, last=as_of, number=300)
    await prepare(store, results, replace(GOOD, at=as_of - 1))
    fresh = await store.reading(window.read, A.id, as_of=as_of)
    await close_all(store, DAY + 33)
    await store.writing(_without_closed_rows)
    seen = await store.reading(window.read_many, (A.id, B.id), as_of=as_of)
    assert shown(seen[A.id], today=DAY + 33) == by_the_rows(fresh, today=DAY + 33)
    assert seen[B.id].last is not None
    assert seen[B.id].totals.probes == 1


def _without_closed_rows(tx: Connection) -> None:
    tx.execute(schema.probe_day.delete())


async def test_the_last_hours_of_a_closed_day_are_those_of_its_counted_probes(
    store: Store,
) -> None:
    midnight = START + DAY_MS
    kinds = (GOOD, DOWN, replace(DOWN, confirms=True), OURS, GOOD)
    past = [replace(kind, at=midnight - back * HOUR_MS // 2) for back, kind in enumerate(kinds, 1)]
    await prepare(store, past)
    recents = []
    for step in (close_all(store, DAY + 1), store.writing(_without_closed_rows)):
        seen = await store.reading(window.read_many, (A.id,), as_of=midnight + HOUR_MS // 2)
        recents.append(seen[A.id].recent)
        await step
    recents.append((await store.reading(window.read, A.id, as_of=midnight + HOUR_MS // 2)).recent)
    assert recents == [(2, 1)] * 3


async def test_late_probes_are_seen_before_and_after_they_are_merged(store: Store) -> None:
    as_of = START + 3 * DAY_MS + HOUR_MS
    await prepare(store, [replace(GOOD, at=START + day * DAY_MS) for day in range(3)])
    await close_all(store, DAY + 3)
    assert await store.writing(record_probe, A.id, replace(DOWN, at=START + DAY_MS + HOUR_MS))
    counts = []
    for _ in range(2):
        seen = await store.reading(window.read, A.id, as_of=as_of)
        counts.append((seen.totals.scored, seen.totals.up, seen.totals.spans.failures))
        await close_all(store, DAY + 3)
    assert counts == [(4, 3, 1)] * 2


@pytest.mark.parametrize("midnight", [0, HOUR_MS])
async def test_a_day_that_is_not_closed_yet_is_added_to_those_that_are(
    store: Store, midnight: int
) -> None:
    as_of = START + 35 * DAY_MS + midnight
    results = lively(4, first=START, last=as_of, number=400)
    await prepare(store, results)
    fresh = await store.reading(window.read, A.id, as_of=as_of)
    await close_all(store, DAY + 34)
    seen = await store.reading(window.read, A.id, as_of=as_of)
    assert shown(seen, today=DAY + 35) == by_the_rows(fresh, today=DAY + 35)
