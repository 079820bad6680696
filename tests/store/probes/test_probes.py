"""The probe archive, against real databases and a naive scan of everything."""

from __future__ import annotations

import time
from dataclasses import asdict, replace

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.databases import on_both, on_sqlite
from tests.support.probe_archive import (
    DAY,
    DOWN,
    GOOD,
    OURS,
    QUOTE,
    START,
    WARNING,
    A,
    B,
    cadence,
    close_all,
    fields_in_history,
    lively,
    prepare,
)
from tests.support.probe_rows import record_probe
from tests.support.statements import fetch

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, day_of
from tollgauge.core.endpoint.identity import endpoint_id
from tollgauge.core.probe.attribution import LastUp, NetworkProbe
from tollgauge.core.probe.outcome import Outcome, Sign
from tollgauge.core.probe.probe import HistoryRow, ProbeResult
from tollgauge.core.probe.rollup import rollup
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.monitor import terms
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, probes, window

pytestmark = on_sqlite


async def fresh_rows(store: Store) -> int:
    query = sa.select(sa.func.count()).select_from(schema.probe)
    return int((await fetch(store, query)).scalar_one())


@on_both
async def test_probe_is_read_back_as_recorded(store: Store) -> None:
    await prepare(store, [])
    assert await store.writing(record_probe, A.id, GOOD)
    assert await store.reading(probes.history, A.id, since=START - 1, until=START) == (GOOD,)
    assert await store.reading(probes.history, A.id, since=START, until=START + DAY_MS) == ()
    assert await store.reading(probes.history, B.id, since=START - DAY_MS, until=START) == ()


async def test_last_probe_is_found_until_its_day_is_closed(store: Store) -> None:
    await prepare(store, [GOOD])
    assert await store.reading(probes.last, A.id) == GOOD
    assert await store.reading(probes.last, B.id) is None
    await close_all(store, DAY + 1)
    assert await store.reading(probes.last, A.id) is None


def history_rows_of_a(tx: Connection, *, since: int, until: int) -> list[list[HistoryRow]]:
    return list(probes.history_rows(tx, A.id, since=since, until=until))


async def test_history_rows_equal_the_history_for_any_closed_days(
    store: Store,
) -> None:
    results = lively(4, first=START, last=START + 4 * DAY_MS - 1, number=120)
    late = lively(5, first=START + 7, last=START + DAY_MS - 7, number=9)
    await prepare(store, results)
    for closed in (0, 2, 4):
        await close_all(store, DAY + closed)
        if closed == 2:
            await store.writing(probes.record_many, A.id, late)
        for since, until in (
            (START - DAY_MS, START + 9 * DAY_MS),
            (results[3].at, results[-3].at),
            (START + DAY_MS, START + DAY_MS),
        ):
            history = await store.reading(probes.history, A.id, since=since, until=until)
            days = await store.reading(history_rows_of_a, since=since, until=until)
            assert [
                (at, total, asdict(judgement)) for day in days for at, total, judgement in day
            ] == [fields_in_history(result) for result in history]
            assert all(len({day_of(one[0]) for one in day}) == 1 for day in days)


async def test_day_sums_are_complete_for_any_closed_days(store: Store) -> None:
    results = lively(3, first=START, last=START + 4 * DAY_MS - 1, number=400)
    await prepare(store, results)
    expected = tuple(
        rollup(day, [one for one in results if day_of(one.at) == day])
        for day in range(DAY, DAY + 4)
    )
    for closed in (0, 2, 4):
        await close_all(store, DAY + closed)
        assert (
            await store.reading(probes.days, A.id, first_day=DAY - 1, last_day=DAY + 9) == expected
        )
        assert (
            await store.reading(probes.days, A.id, first_day=DAY + 1, last_day=DAY + 2)
            == expected[1:3]
        )


async def test_closing_moves_exactly_the_rows_of_past_days(store: Store) -> None:
    results = lively(1, first=START, last=START + 3 * DAY_MS - 1, number=90)
    await prepare(store, results, GOOD)
    assert await close_all(store, DAY + 2, limit=1) == 3
    today = [one for one in results if day_of(one.at) == DAY + 2]
    assert await fresh_rows(store) == len(today)
    assert await close_all(store, DAY + 2) == 0


@on_both
async def test_closing_is_all_or_nothing(store: Store) -> None:
    await prepare(store, [GOOD])

    def interrupt(tx: Connection) -> None:
        assert archive.close_days(tx, before_day=DAY + 1, limit=9) == 1
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await store.writing(interrupt)
    assert await fresh_rows(store) == 1
    assert len((await store.reading(window.read, A.id, as_of=START)).days) == 1


async def test_repeated_record_changes_neither_open_nor_closed_days(store: Store) -> None:
    other = replace(DOWN, at=GOOD.at)
    await prepare(store, [GOOD])
    for _ in range(2):
        assert not await store.writing(record_probe, A.id, other, next_due=5)
        assert await store.writing(probes.record_many, A.id, [other, GOOD]) == 0
        assert (await store.reading(window.read, A.id, as_of=START)).days[0].up == 1
        stored = await store.reading(endpoints.get, A.id)
        assert stored is not None
        assert stored.next_due == A.next_due
        await close_all(store, DAY + 1)
    assert await fresh_rows(store) == 0


async def test_record_many_returns_the_number_of_new_probes(store: Store) -> None:
    results = cadence(1, days=2)
    await prepare(store, results[:40])
    await close_all(store, DAY + 1)
    assert await store.writing(probes.record_many, A.id, results) == len(results) - 40
    assert await store.writing(probes.record_many, A.id, results) == 0
    assert await store.writing(probes.record_many, A.id, []) == 0
    stored = await store.writing(endpoints.get, A.id)
    assert stored is not None
    assert stored.last_probed == results[-1].at
    seen = await store.reading(window.read, A.id, as_of=results[-1].at)
    assert sum(day.probes for day in seen.days) == len(results)


@on_both
async def test_hostile_envelope_is_recorded_as_evidence(store: Store) -> None:
    await prepare(store, [])
    hostile = replace(
        GOOD,
        version=10**30,
        accepts=2**40,
        quote=replace(QUOTE, pay_to="0\0x", amount=2**256 - 1),
        reason="\ud800",
        findings=(replace(WARNING, message="a\0b"),),
    )
    assert await store.writing(record_probe, A.id, hostile)
    kept: set[tuple[int | None, str]] = set()
    for _ in range(2):
        (stored,) = await store.reading(probes.history, A.id, since=START - 1, until=START)
        assert stored.quote is not None
        assert (stored.version, stored.accepts) == (None, None)
        assert (stored.quote.pay_to, stored.quote.amount) == ("0\ufffdx", 2**256 - 1)
        kept.add((stored.version, stored.reason))
        await close_all(store, DAY + 1)
    assert len(kept) == 1


async def test_thirty_days_of_probes_are_recorded_in_few_statements(store: Store) -> None:
    results = cadence(2, days=30)
    await store.writing(endpoints.insert, A)
    began = time.process_time()  # CPU: the clock counts other programs too
    assert await store.writing(probes.record_many, A.id, results) == len(results)
    rate = len(results) / (time.process_time() - began)
    assert rate > 1_000  # 10 000 to 28 000 on an idle machine


@on_both
async def test_recent_probes_are_found_across_midnight(
    store: Store,
) -> None:
    other = replace(A, id=endpoint_id("https://b.com/"), resource="https://b.com/", host="b.com")
    midnight = START + DAY_MS
    await store.writing(endpoints.insert, A, B, other)
    for endpoint, result, at in (
        (A, GOOD, midnight - MINUTE_MS),
        (B, replace(DOWN, outcome=Outcome.TLS), midnight),
        (other, GOOD, midnight - HOUR_MS),
        (other, OURS, midnight + MINUTE_MS),
    ):
        assert await store.writing(record_probe, endpoint.id, replace(result, at=at))
    early, late = midnight - MINUTE_MS, midnight + MINUTE_MS
    up, down = LastUp(up_at=early), LastUp(down_since=midnight)
    before = LastUp(up_at=midnight - HOUR_MS)
    asked = [
        NetworkProbe(host="a.com", at=early, sign=Sign.ANSWERED, last_up=up),
        NetworkProbe(host="a.com", at=midnight, sign=Sign.TLS_FAILED, last_up=down),
        NetworkProbe(host="b.com", at=late, sign=None, last_up=before),
    ]
    everybody = await store.reading(probes.load_last_since, early - 1)
    assert sorted(everybody, key=lambda one: one.at) == asked
    lately = await store.reading(probes.load_last_since, early)
    assert sorted(lately, key=lambda one: one.at) == asked[1:]


async def test_recent_probes_are_found_by_an_index() -> None:
    """On SQLite, which uses indexes for small tables too."""
    store = Store.open("sqlite://")
    await store.migrate()
    query = probes.ASKED_SINCE.params(since_=START).compile(compile_kwargs={"literal_binds": True})
    plan = str((await fetch(store, sa.text(f"EXPLAIN QUERY PLAN {query}"))).all())
    assert "SCAN" not in plan
    assert "ix_endpoint_last_probed" in plan
    await store.close()


@on_both
async def test_endpoint_state_follows_the_newest_probes_in_any_order(store: Store) -> None:
    await store.writing(endpoints.insert, A, B)
    results = lively(5, first=START, last=START + DAY_MS, number=60)
    expected = LastUp()
    for result in results:
        expected = expected.after(result)
        assert await store.writing(record_probe, A.id, result)
        assert (await store.reading(probes.last_up_of, [A.id]))[A.id] == expected
    await store.writing(probes.record_many, B.id, results[30:])
    await store.writing(probes.record_many, B.id, results[:30])
    rows = await store.reading(probes.last_up_of, [A.id, B.id, "unknown"])
    assert rows == {A.id: expected, B.id: expected}


async def test_delay_of_the_service_is_not_stored(store: Store) -> None:
    late = replace(OURS, timings=replace(OURS.timings, delay=13_900, overrun=4_344))
    await prepare(store, [late])
    (stored,) = await store.reading(probes.history, A.id, since=START - 1, until=START + DAY_MS)
    assert stored == replace(late, timings=replace(late.timings, delay=0, overrun=0))


async def test_probe_with_an_unchanged_price_updates_its_time(store: Store) -> None:
    await prepare(store, [])
    first, later = replace(GOOD, at=START), replace(GOOD, at=START + HOUR_MS)
    other = replace(QUOTE, amount=QUOTE.amount + 1)

    async def record_result(result: ProbeResult) -> tuple[dict[str, bool], int | None]:
        new = probes.NewProbe(endpoint_id=A.id, result=result)
        same_price = await store.writing(probes.record_each, [new])
        endpoint = await store.reading(endpoints.get, A.id)
        assert endpoint is not None
        return same_price, endpoint.quote_at

    assert (await record_result(first))[0] == {A.id: False}  # the price is a directory's, or none
    await store.writing(terms.observe_quotes, {A.id: (QUOTE, first.at)})
    assert await record_result(later) == ({A.id: True}, later.at)
    assert await record_result(replace(GOOD, at=later.at - 1)) == ({A.id: True}, later.at)
    changed = replace(GOOD, at=later.at + 1, quote=other)
    assert await record_result(changed) == ({A.id: False}, later.at)
    assert await record_result(replace(OURS, at=later.at + 2, quote=QUOTE)) == (
        {A.id: False},
        later.at,
    )
    assert await record_result(later) == ({}, later.at)
