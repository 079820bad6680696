"""The window of an endpoint's probes, whatever part of it is closed."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from sqlalchemy import Connection
from tests.support import score_rows
from tests.support.databases import on_each, on_sqlite
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
    strip_messages,
)
from tests.support.probe_rows import record_probe, spans_by_day
from tests.support.statements import query_plans

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, day_of
from tollgauge.core.probe.probe import NO_SPANS, ProbeResult, Statement, spans, statement
from tollgauge.core.probe.rollup import Days, Rollup, merge, rollup
from tollgauge.core.watch.watch_rules import RAW_DAYS
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, probes, window
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.scores import scores
from tollgauge.store.watches import watches
from tollgauge.store.watches.watches import Watch


def naive(
    results: list[ProbeResult], as_of: int, *, late: Collection[ProbeResult] = ()
) -> tuple[Rollup, ...]:
    """Compute the window by a full scan. Probes that arrived `late`, after their day was closed,
    affect the next day only if it was not closed yet or has a late probe too.
    """
    seen = sorted((one for one in results if one.at <= as_of), key=lambda one: one.at)
    days = []
    for day in range(day_of(as_of) - 30, day_of(as_of) + 1):
        inside = [one for one in seen if day_of(one.at) == day]
        again = not inside or day == day_of(as_of) or any(one in late for one in inside)
        earlier = [one for one in seen if day_of(one.at) == day - 1 and (again or one not in late)]
        spoken = spans(
            day,
            list_statements(inside),
            before=max(list_statements(earlier), default=None),
            until=as_of,
        )
        whole = rollup(day, inside, spans=spoken)
        if whole.probes or spoken != NO_SPANS:
            days.append(whole)
    return tuple(days)


def list_statements(results: Iterable[ProbeResult]) -> list[Statement]:
    """Return the statements of probes that are evidence."""
    return [one for one in map(statement, results) if one is not None]


@on_each([0.0, 11.3, 23.99], postgres=[11.3])
async def test_window_is_exact_for_open_closed_and_late_rows(store: Store, value: float) -> None:
    today = DAY + 32
    as_of = today * DAY_MS + int(value * HOUR_MS)
    first = (today - 30) * DAY_MS
    results = lively(7, first=first - 2 * DAY_MS, last=as_of + HOUR_MS, number=700)
    edges = [first - 1, first, as_of, as_of + 1]
    results = [one for one in results if one.at not in edges]
    results += [replace(GOOD, at=at) for at in edges]
    late = random.Random(8).sample(results, 25)
    early = [one for one in results if one not in late]
    await prepare(store, early, *lively(9, first=first, last=as_of, number=50))

    async def sums() -> Days:
        days = (await store.reading(window.read, A.id, as_of=as_of)).days
        assert days.totals == merge(days)
        return days

    assert await sums() == naive(early, as_of)
    assert await close_all(store, today, limit=40) > 30
    assert await sums() == naive(early, as_of)
    for one in late:
        assert await store.writing(record_probe, A.id, one)
    assert await sums() == naive(results, as_of, late=late)
    assert await close_all(store, today) > 0
    assert await sums() == naive(results, as_of, late=late)
    history = await store.reading(probes.history, A.id, since=0, until=as_of + DAY_MS)
    assert strip_messages(list(history)) == sorted(strip_messages(results), key=lambda one: one.at)


def naive_last(results: list[ProbeResult], as_of: int) -> list[ProbeResult]:
    """The window's probes, the latest first."""
    first_day = day_of(as_of) - 30
    inside = [one for one in results if one.at <= as_of and day_of(one.at) >= first_day]
    return sorted(inside, key=lambda one: one.at, reverse=True)


def at(probes: Iterable[ProbeResult]) -> int | None:
    """When the first of some probes was."""
    return next((one.at for one in probes), None)


@on_each(range(6), postgres=range(6, 12))
async def test_window_does_not_depend_on_closed_days(store: Store, value: int) -> None:
    """Few probes, so that days without any, and long times without an envelope, are met."""
    rng = random.Random(value)
    as_of = (DAY + 32) * DAY_MS + rng.randrange(DAY_MS)
    results = lively(value, first=as_of - 34 * DAY_MS, last=as_of + HOUR_MS, number=12)
    latest = naive_last(results, as_of)
    scored = [one for one in latest if one.scored]
    await prepare(store, results)
    for closed in (0, rng.randrange(32), 31, 32):
        await close_all(store, DAY + closed)
        seen = await store.reading(window.read, A.id, as_of=as_of)
        assert seen.days == naive(results, as_of)
        added = structs.replace(seen.days.totals, day=0)
        assert added == structs.replace(merge(seen.days), day=0)
        assert (seen.last and seen.last.at) == at(scored)
        hidden = seen.last is not None and seen.last.accepts is None
        with_terms = at(one for one in scored if one.accepts is not None)
        assert (seen.envelope and seen.envelope.at) == (with_terms if hidden else None)
        assert (seen.state and seen.state.at) == at(one for one in latest if statement(one))


PROBES = st.lists(
    st.builds(
        lambda kind, place: replace(kind, at=START + place * 7 * MINUTE_MS),
        st.sampled_from(KINDS),
        st.integers(0, 34 * DAY_MS // (7 * MINUTE_MS)) | st.integers(6_000, 6_400),
    ),
    unique_by=lambda probe: probe.at,
    max_size=30,
)
CLOSINGS = st.lists(st.tuples(st.integers(0, 34), st.integers(1, 20)), max_size=5)


@pytest.fixture(scope="module")
def engine() -> Iterator[sa.Engine]:
    """A database in memory, which takes a rollback to be empty again."""
    engine = sa.create_engine("sqlite://")
    schema.metadata.create_all(engine)
    yield engine
    engine.dispose()


@settings(deadline=None)
@given(results=PROBES, closings=CLOSINGS, hours=st.integers(31 * 24, 34 * 24))
def test_random_probes_closed_at_random_times_are_unchanged(
    engine: sa.Engine,
    results: list[ProbeResult],
    closings: list[tuple[int, int]],
    hours: int,
) -> None:
    as_of = START + hours * HOUR_MS
    with engine.connect() as tx:
        endpoints.insert(tx, A)
        probes.record_many(tx, A.id, results)
        fresh = window.read(tx, A.id, as_of=as_of)
        for day, limit in closings:
            archive.close_days(tx, before_day=min(DAY + day, day_of(as_of)), limit=limit)
            assert window.read(tx, A.id, as_of=as_of) == fresh
        tx.rollback()
    assert fresh.days == naive(results, as_of)
    known = list_statements(one for one in results if one.at <= as_of)
    assert {day.day: day.spans for day in fresh.days if day.spans != NO_SPANS} == {
        day: sums
        for day, sums in spans_by_day(known, until=as_of).items()
        if day >= day_of(as_of) - 30 and sums != NO_SPANS
    }


@on_sqlite
async def test_only_the_last_day_of_a_window_is_partial(store: Store) -> None:
    as_of = START + 31 * DAY_MS
    edges = (START + DAY_MS - 1, START + DAY_MS, as_of, as_of + 1)
    await prepare(store, [replace(GOOD, at=at) for at in edges])
    for _ in range(2):
        latest = (await store.reading(window.read, A.id, as_of=as_of)).days
        assert [(one.day, one.probes) for one in latest] == [(DAY + 1, 1), (DAY + 31, 1)]
        await close_all(store, DAY + 31)


@on_sqlite
async def test_day_without_probes_has_the_spans_of_the_previous_day(store: Store) -> None:
    silent = replace(DOWN, at=START + DAY_MS - HOUR_MS, holds=6 * HOUR_MS)
    await prepare(store, [silent])
    for _ in range(2):
        seen = await store.reading(window.read, A.id, as_of=START + 3 * DAY_MS)
        assert [(one.day, one.probes, one.spans.down) for one in seen.days] == [
            (DAY, 1, HOUR_MS),
            (DAY + 1, 0, 5 * HOUR_MS),
        ]
        await close_all(store, DAY + 3)


@on_sqlite
async def test_last_scored_probe_is_found_in_fresh_and_packed_days(store: Store) -> None:
    await prepare(
        store,
        [
            replace(DOWN, at=START + 1),
            replace(GOOD, at=START + 2),
            replace(OURS, at=START + 3),
            replace(OURS, at=START + DAY_MS),
        ],
    )
    seen = []
    for closed in (0, 1):
        await close_all(store, DAY + closed)
        seen.append((await store.reading(window.read, A.id, as_of=START + DAY_MS)).last)
        assert (await store.reading(window.read, B.id, as_of=START + DAY_MS)).last is None
    assert seen[0] == seen[1]
    assert seen[0] is not None
    assert seen[0].at == START + 2
    assert seen[0].outcome == "payment-required"
    assert seen[0].rules == (("no-description", "warn", "Say what it does."),)
    assert (seen[0].accepts, seen[0].tls_not_after) == (1, GOOD.tls_not_after)


async def test_closed_days_are_read_from_one_row(store: Store) -> None:
    as_of = START + 33 * DAY_MS + 2 * HOUR_MS
    results = lively(3, first=START, last=as_of, number=300)
    await prepare(store, results, replace(GOOD, at=as_of - 1))
    fresh = await store.reading(window.read, A.id, as_of=as_of)
    await close_all(store, DAY + 33)
    await store.writing(lambda tx: tx.execute(schema.probe_day.delete()))
    assert await store.reading(window.read, A.id, as_of=as_of) == fresh


async def test_window_reads_only_rows_of_its_endpoint() -> None:
    """On SQLite, which uses indexes for small tables too."""
    store = Store.open("sqlite://")
    await store.migrate()
    await prepare(store, [replace(GOOD, at=START + day * DAY_MS) for day in range(3)])
    plans = await store.reading(query_plans, window.read, A.id, as_of=START + 2 * DAY_MS)
    assert "PRIMARY KEY (day=? AND endpoint_id=?" in plans
    assert "SCAN" not in plans
    await store.close()


async def test_late_probes_are_counted_before_and_after_merging(store: Store) -> None:
    as_of = START + 3 * DAY_MS + HOUR_MS
    await prepare(store, [replace(GOOD, at=START + day * DAY_MS) for day in range(3)])
    await close_all(store, DAY + 3)
    assert await store.writing(record_probe, A.id, replace(DOWN, at=START + DAY_MS + HOUR_MS))
    seen = []
    for _ in range(2):
        seen.append(await store.reading(window.read, A.id, as_of=as_of))
        await close_all(store, DAY + 3)
    assert seen[0] == seen[1]
    assert sum(day.scored for day in seen[0].days) == 4
    assert sum(day.spans.failures for day in seen[0].days) == 1


@on_sqlite
async def test_charts_have_ninety_days_with_the_score_of_each(store: Store) -> None:
    await prepare(store, [replace(GOOD, at=START)])
    past = (1, 9, 10, 11, 50, *range(66, 100))
    for day in past:
        await store.writing(record_probe, A.id, replace(GOOD, at=START + day * DAY_MS))
        await store.writing(save_score, 500 + day, as_of=START + day * DAY_MS + HOUR_MS)
        await close_all(store, DAY + day + 1)
    days = await store.reading(window.all_days, A.id)
    shown = [day for day in past if day >= 10]
    assert [one.day for one in days] == [DAY + day for day in shown]
    assert [one.score and one.score.tenths for one in days] == [500 + day for day in shown]


async def test_watch_counts_its_checks_after_their_deletion(store: Store) -> None:
    watch = Watch(
        id="w", secret_hash="h", endpoint_id=A.id, created_at=START, expires_at=START + 30 * DAY_MS
    )
    results = [replace(GOOD, at=START + hours * HOUR_MS) for hours in range(-5, 60)]
    await prepare(store, [*results, replace(OURS, at=START + 1)])
    await store.writing(watches.add, watch)
    await close_all(store, DAY + 3)

    async def count_rows() -> tuple[int, int]:
        known = await store.reading(watches.get, "w")
        assert known is not None
        until = START + 30 * DAY_MS
        return await store.reading(changes.checks, known, since=START, until=until)

    before = await count_rows()
    assert before == (60, 59)
    now = START + (RAW_DAYS + 10) * DAY_MS
    while await store.writing(archive.forget, now=now, limit=2):
        assert await count_rows() == before


def save_score(tx: Connection, tenths: int, *, as_of: int) -> None:
    assert scores.save(tx, score_rows.stored_score(A.id, tenths, as_of=as_of))
