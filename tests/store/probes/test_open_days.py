"""The sums that a score keeps of its day: windows are the same with and without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection
from tests.support.probe_archive import DAY, DOWN, GOOD, KINDS, START, A, B, close_all, prepare
from tests.support.record_probe import record_probe
from tests.support.windows import shown

from tollgauge.core.evidence import RECENT_MS
from tollgauge.core.probe import ProbeResult
from tollgauge.core.schedule import NORMAL
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, day_of
from tollgauge.core.window import Window
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring
from tollgauge.store.endpoints import endpoints, scores
from tollgauge.store.probes import archive, probes, window

NOON = START + DAY_MS + 12 * HOUR_MS
KEPT = schema.score.c["open_day", "open_day_newest", "probes_revised"]


def score(tx: Connection, as_of: int) -> None:
    """Score the endpoint, and save what the score keeps."""
    known = endpoints.get_many(tx, [A.id])[A.id]
    _, row = scoring.compute(tx, known, as_of=as_of, cadence=NORMAL)
    scores.save(tx, row)


def read(tx: Connection, as_of: int) -> Window:
    """The window as it is read."""
    return window.read(tx, A.id, as_of=as_of, recent_ms=RECENT_MS)


def read_anew(tx: Connection, as_of: int) -> Window:
    """The window without what the score keeps."""
    kept = tx.execute(sa.select(*KEPT)).mappings().first()
    tx.execute(schema.score.update().values(open_day=None, open_day_newest=None))
    seen = read(tx, as_of)
    if kept is not None:
        tx.execute(schema.score.update().values(dict(kept)))
    return seen


RECORD = st.tuples(
    st.just("record"), st.sampled_from(KINDS), st.integers(0, 2 * DAY_MS // (7 * MINUTE_MS))
)
SCORE = st.tuples(st.just("score"), st.just(None), st.integers(2 * DAY_MS // (14 * MINUTE_MS), 420))
STEPS = st.lists(
    RECORD | SCORE | st.tuples(st.sampled_from(["back", "close"]), st.none(), st.just(0))
)


@pytest.fixture(scope="module")
def engine() -> Iterator[sa.Engine]:
    """A database in memory, which takes a rollback to be empty again."""
    engine = sa.create_engine("sqlite://")
    schema.metadata.create_all(engine)
    yield engine
    engine.dispose()


@settings(deadline=None, max_examples=200)
@given(steps=STEPS, minutes=st.integers(-90, 12 * 60))
def test_a_window_is_the_same_with_the_sums_that_a_score_kept(
    engine: sa.Engine, steps: list[tuple[str, ProbeResult | None, int]], minutes: int
) -> None:
    as_of = NOON + minutes * MINUTE_MS
    with engine.connect() as tx:
        endpoints.insert(tx, A)
        for step, kind, place in steps:
            at = START + place * 7 * MINUTE_MS
            if step == "record" and kind is not None:
                probes.record_many(tx, A.id, [replace(kind, at=at)])
            elif step == "score":
                score(tx, at)
            elif step == "close":
                archive.close_days(tx, before_day=DAY + 1, limit=10)
            else:
                latest = tx.execute(sa.select(sa.func.max(schema.probe.c.at))).scalar()
                probes.take_back(tx, {A.id: latest or 0}, reason="own-network")
            today = day_of(as_of)
            assert shown(read(tx, as_of), today=today) == shown(read_anew(tx, as_of), today=today)
        tx.rollback()


async def test_a_score_counts_only_the_probes_after_the_last_one(store: Store) -> None:
    await prepare(store, [replace(GOOD, at=NOON - back * HOUR_MS) for back in range(1, 9)])
    await store.writing(score, NOON - 3 * HOUR_MS)
    await store.writing(_forget_probes, before=NOON - 4 * HOUR_MS)
    (today,) = (await store.reading(read, NOON)).open_days
    assert (today.probes, today.spans.up) == (8, 8 * HOUR_MS)


async def test_the_last_hours_of_a_score_are_known_to_the_next_one(store: Store) -> None:
    kinds = (DOWN, GOOD, DOWN, GOOD, GOOD)
    await prepare(
        store, [replace(kind, at=NOON - back * HOUR_MS) for back, kind in enumerate(kinds)]
    )
    await store.writing(score, NOON)
    await store.writing(_forget_probes, before=NOON)
    recent = [(await store.reading(read, at)).recent for at in (NOON, NOON + HOUR_MS)]
    assert recent == [(3, 1), (2, 1)]


async def test_sums_of_a_day_that_was_closed_since_are_not_looked_at(store: Store) -> None:
    results = [replace(GOOD, at=NOON - back * HOUR_MS) for back in range(3)]
    await prepare(store, results)
    await store.writing(score, NOON)
    await close_all(store, DAY + 2)
    await store.writing(record_probe, B.id, replace(DOWN, at=NOON))  # the day is open for another
    await store.writing(_forget_closed_days)
    seen = await store.reading(read, NOON + DAY_MS)
    assert (seen.totals.probes, seen.last and seen.last.at) == (3, NOON)


def _forget_closed_days(tx: Connection) -> None:
    tx.execute(schema.probe_day.delete())


async def test_a_late_probe_is_counted(store: Store) -> None:
    await prepare(store, [replace(GOOD, at=NOON - back * HOUR_MS) for back in (1, 3)])
    await store.writing(score, NOON)
    await store.writing(record_probe, A.id, replace(DOWN, at=NOON - 2 * HOUR_MS))
    (today,) = (await store.reading(read, NOON)).open_days
    assert (today.probes, today.up, today.spans.failures) == (3, 2, 1)


async def test_a_failure_that_is_taken_back_is_not_counted(store: Store) -> None:
    await prepare(store, [replace(GOOD, at=NOON - HOUR_MS), replace(DOWN, at=NOON)])
    await store.writing(score, NOON)
    await store.writing(probes.take_back, {A.id: NOON}, reason="own-network")
    (today,) = (await store.reading(read, NOON)).open_days
    assert (today.scored, today.up, today.excluded) == (1, 1, (("own-network", 1),))


async def test_the_sums_of_a_day_end_with_it(store: Store) -> None:
    await prepare(store, [replace(GOOD, at=NOON)])
    await store.writing(score, NOON)
    await store.writing(record_probe, A.id, replace(GOOD, at=NOON + DAY_MS))
    for _ in range(2):
        days = (await store.reading(read, NOON + DAY_MS)).days
        assert [(one.day, one.probes) for one in days] == [(DAY + 1, 1), (DAY + 2, 1)]
        await close_all(store, DAY + 2)


def _forget_probes(tx: Connection, *, before: int) -> None:
    tx.execute(schema.probe.delete().where(schema.probe.c.at < before))
