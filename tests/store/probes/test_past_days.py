"""Past days one by one: their figures, and the score of each as it was when the day was closed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.probe_archive import DAY, DOWN, GOOD, START, A, B
from tests.support.score_rows import row, save

from tollgauge.core.probe import ProbeResult
from tollgauge.core.retention import RAW_DAYS
from tollgauge.core.schedule import NORMAL
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.db.engine import Store
from tollgauge.monitor import reports, scoring
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, past_days, probes
from tollgauge.store.probes.past_days import DayBar, DayScore


async def probe(store: Store, *results: ProbeResult) -> None:
    await store.writing(probes.record_many, A.id, results)


async def score(store: Store, tenths: int | None, *, at: int, policy: int = 2) -> None:
    latest = replace(row("/", tenths), endpoint_id=A.id, as_of=at, policy_version=policy)
    await save(store, latest)


async def close(store: Store, *, before_day: int = DAY + 1) -> None:
    await store.writing(archive.close_days, before_day=before_day, limit=9)


async def past(
    store: Store, *, first_day: int = DAY, before_day: int = DAY + 3
) -> dict[int, DayBar]:
    days = {"first_day": first_day, "before_day": before_day}
    return await store.reading(past_days.read, A.id, **days)


async def kept(store: Store) -> dict[int, DayScore]:
    return {day: bar.score for day, bar in (await past(store)).items() if bar.score}


@pytest.fixture(autouse=True)
async def endpoint(store: Store) -> None:
    await store.writing(endpoints.insert, A, B)


async def test_a_closed_day_keeps_the_latest_score_and_its_policy(store: Store) -> None:
    await probe(store, replace(GOOD, at=START + HOUR_MS))
    await score(store, 831, at=START + 23 * HOUR_MS)
    await close(store)
    assert await kept(store) == {DAY: DayScore(831, 2)}


@pytest.mark.parametrize(
    ("at", "is_kept"),
    [
        (START - 1, False),
        (START, True),
        (START + DAY_MS + 6 * HOUR_MS - 1, True),
        (START + DAY_MS + 6 * HOUR_MS, False),
    ],
)
async def test_a_score_of_another_day_is_not_taken_for_its_own(
    store: Store, at: int, is_kept: bool
) -> None:
    await probe(store, replace(GOOD, at=START + HOUR_MS))
    await score(store, 500, at=at)
    await close(store)
    assert (await kept(store)).keys() == ({DAY} if is_kept else set())


async def test_a_late_probe_does_not_change_the_score_of_its_day(store: Store) -> None:
    await probe(store, replace(GOOD, at=START + HOUR_MS))
    await score(store, 831, at=START + 23 * HOUR_MS)
    await close(store)
    await probe(store, replace(DOWN, at=START + 2 * HOUR_MS))
    await score(store, 400, at=START + DAY_MS + MINUTE_MS)
    await close(store)
    assert await kept(store) == {DAY: DayScore(831, 2)}


async def test_without_a_score_a_day_keeps_none(store: Store) -> None:
    await probe(store, replace(GOOD, at=START + HOUR_MS))
    await close(store)
    await probe(store, replace(GOOD, at=START + DAY_MS))
    await score(store, None, at=START + DAY_MS)
    await close(store, before_day=DAY + 2)
    assert await kept(store) == {}


async def test_days_are_read_with_what_the_day_before_still_says(store: Store) -> None:
    late = replace(DOWN, at=START + 20 * HOUR_MS, holds=10 * HOUR_MS)
    await probe(store, replace(GOOD, at=START), late, replace(GOOD, at=START + 5 * DAY_MS))
    await close(store, before_day=DAY + 10)
    bars = await past(store, before_day=DAY + 10)
    assert list(bars) == [DAY, DAY + 1, DAY + 5]
    assert bars[DAY].scored == 2
    assert (bars[DAY + 1].scored, bars[DAY + 1].down_ms) == (0, 6 * HOUR_MS)
    only_later = await past(store, first_day=DAY + 1, before_day=DAY + 5)
    assert only_later == {DAY + 1: bars[DAY + 1]}


async def test_a_late_probe_changes_its_day_and_what_that_says_of_the_next_one(
    store: Store,
) -> None:
    await probe(store, replace(GOOD, at=START), replace(GOOD, at=START + 5 * DAY_MS))
    await close(store, before_day=DAY + 10)
    assert list(await past(store, before_day=DAY + 10)) == [DAY, DAY + 5]
    await probe(store, replace(DOWN, at=START + 20 * HOUR_MS, holds=10 * HOUR_MS))
    await close(store, before_day=DAY + 10)
    bars = await past(store, before_day=DAY + 10)
    assert {day: bar.down_ms for day, bar in bars.items()} == {
        DAY: 4 * HOUR_MS,
        DAY + 1: 6 * HOUR_MS,
        DAY + 5: 0,
    }


async def test_charts_keep_no_day_longer_than_its_probes(store: Store) -> None:
    for back in (0, 1, RAW_DAYS):
        at = START + back * DAY_MS
        await probe(store, replace(GOOD, at=at))
        await close(store, before_day=DAY + back + 1)
    bars = await past(store, before_day=DAY + RAW_DAYS + 1)
    assert list(bars) == [DAY + 1, DAY + RAW_DAYS]


@pytest.mark.parametrize(("age", "shown"), [(0, 30), (29, 30), (40, 41), (89, 90), (200, 90)])
async def test_a_page_shows_as_many_days_as_are_known_but_thirty_at_least(
    store: Store, age: int, shown: int
) -> None:
    now = START + age * DAY_MS + HOUR_MS
    await probe(store, replace(GOOD, at=START), replace(GOOD, at=now - HOUR_MS))
    await scoring.score_and_save(store, [A.id], cadence=NORMAL, now=now)
    await close(store, before_day=DAY + age)
    view = await store.reading(reports.view, A.id, now=now)
    assert view is not None
    assert len(view.days) == shown
    assert [bar.day for bar in view.days] == list(range(DAY + age - shown + 1, DAY + age + 1))
    assert view.days[-1].score is not None
    assert view.days[-1].score.tenths == view.snapshot.score_tenths
    if age < 90:
        assert next(bar for bar in view.days if bar.day == DAY).up > 0
