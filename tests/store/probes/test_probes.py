"""The probe archive, against real databases and a naive scan of everything."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from tests.support.record_probe import record_probe
from tests.support.statements import fetch

from tollgauge.core.attribution import Asked, Sign, Standing
from tollgauge.core.endpoint import Endpoint, endpoint_id
from tollgauge.core.evidence import LastProbe
from tollgauge.core.exchange import Timings
from tollgauge.core.finding import Finding, Severity
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.rollup import Rollup, rollup
from tollgauge.core.terms import Quote
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS, day_of
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, probes, window
from tollgauge.store.probes.packing import pack, pack_histogram, unpack, unpack_histogram

DAY = 20_000
START = DAY * DAY_MS
QUOTE = Quote(
    network="eip155:8453",
    asset="0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
    amount=10_000,
    pay_to="0x27599d824bbb4f506f985af865d840f61ba848c8",
)
WARNING = Finding(
    rule="no-description", severity=Severity.WARN, message="Say what it does.", where="accepts[0]"
)
GOOD = ProbeResult(
    at=START,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.THEIRS,
    up=True,
    timings=Timings(dns=1, connect=20, tls=25, ttfb=80, total=127),
    status=402,
    compliance=96,
    compliant=True,
    payable=True,
    version=2,
    quote=QUOTE,
    accepts=1,
    findings=(WARNING,),
    tls_not_after=START + 40 * DAY_MS,
)
DOWN = ProbeResult(
    at=START,
    outcome=Outcome.TIMEOUT,
    attribution=Attribution.THEIRS,
    up=False,
    timings=Timings(dns=3, total=10_000),
    reason="timeout",
    method="POST",
)
OURS = replace(DOWN, attribution=Attribution.OURS, outcome=Outcome.LOCAL, reason="own-network")
A = Endpoint(
    id=endpoint_id("https://a.com/"),
    resource="https://a.com/",
    host="a.com",
    first_seen=START,
    last_seen=START,
)
B = replace(A, id=endpoint_id("https://a.com/b"), resource="https://a.com/b")


def lively(seed: int, *, first: int, last: int, number: int) -> list[ProbeResult]:
    """Probes at distinct random instants, of every kind."""
    rng = random.Random(seed)
    instants = {rng.randint(first, last) for _ in range(number)} | {first, last}
    found = []
    for at in sorted(instants):
        base = rng.choice((GOOD, GOOD, GOOD, GOOD, DOWN, OURS))
        times = [rng.randrange(0, 200) for _ in range(4)]
        timings = Timings(dns=times[0], connect=times[1], ttfb=times[2], total=sum(times))
        found.append(replace(base, at=at, timings=timings))
    return found


def cadence(seed: int, *, days: int, start: int = START) -> list[ProbeResult]:
    """A plausible past at the normal cadence: jitter, correlated times, an outage, a new
    certificate and a price change now and then.
    """
    rng = random.Random(seed)
    found, at, base = [], start, GOOD
    while at < start + days * DAY_MS:
        if rng.random() < 0.002:
            base = replace(base, quote=replace(QUOTE, amount=rng.choice((5_000, 10_000, 20_000))))
        phases = [int(rng.lognormvariate(mu, 0.25)) for mu in (1.5, 3.2, 3.4, 4.6)]
        timings = Timings(
            dns=phases[0],
            connect=phases[1],
            tls=phases[2],
            ttfb=phases[3],
            total=sum(phases) + rng.randrange(3),
        )
        kind = DOWN if rng.random() < 0.01 else base
        found.append(replace(kind, at=at, timings=timings if kind is base else DOWN.timings))
        at += 30 * MINUTE_MS + rng.randrange(-90_000, 90_000)
    return found


def naive(results: list[ProbeResult], as_of: int) -> tuple[Rollup, ...]:
    inside = [one for one in results if as_of - WINDOW_MS < one.at <= as_of]
    by_day = {
        day: [one for one in inside if day_of(one.at) == day]
        for day in map(day_of, (o.at for o in inside))
    }
    return tuple(rollup(day, by_day[day]) for day in sorted(by_day))


def stripped(results: list[ProbeResult]) -> list[ProbeResult]:
    """As packed days keep them: findings without messages."""
    return [
        replace(one, findings=tuple(replace(f, message="", where="") for f in one.findings))
        for one in results
    ]


async def prepare(store: Store, results: list[ProbeResult], *others: ProbeResult) -> None:
    await store.writing(endpoints.insert, A, B)
    await store.writing(probes.record_many, A.id, results)
    await store.writing(probes.record_many, B.id, others)


async def close_all(store: Store, before_day: int, limit: int = 40) -> int:
    total = 0
    while True:
        closed = await store.writing(archive.close_days, before_day=before_day, limit=limit)
        if not closed:
            return total
        total += closed


async def fresh_rows(store: Store) -> int:
    query = sa.select(sa.func.count()).select_from(schema.probe)
    return int((await fetch(store, query)).scalar_one())


def test_packing_keeps_every_field() -> None:
    odd = replace(
        GOOD,
        at=START + 5,
        timings=Timings(dns=None, connect=0, tls=None, ttfb=7, total=3),
        version=None,
        quote=replace(QUOTE, network="", asset="é", amount=2**256 - 1, pay_to="\u2028"),
        accepts=None,
        method="DELETE",
        tls_not_after=None,
        findings=(WARNING, replace(WARNING, severity=Severity.ERROR, message="", where="body")),
    )
    results = [GOOD, DOWN, odd, OURS]
    results = [replace(one, at=START + i * 7) for i, one in enumerate(results)]
    expected = stripped(results)
    expected[2] = results[2]  # the last scored probe keeps its messages
    expected[0] = results[0]  # and the last one with an envelope
    assert list(unpack(pack(results))) == expected


@pytest.mark.parametrize("seed", range(5))
def test_packing_a_random_day_and_unpacking_it_is_the_same_day(seed: int) -> None:
    results = stripped(lively(seed, first=START, last=START + DAY_MS - 1, number=300))
    assert stripped(list(unpack(pack(results)))) == results


def test_a_histogram_of_any_bucket_is_packed() -> None:
    histogram = ((0, 1), (127, 200), (128, 3), (5_000, 1_000_000))
    assert unpack_histogram(pack_histogram(histogram)) == histogram
    assert unpack_histogram(pack_histogram(())) == ()


def test_a_packed_probe_takes_a_few_tens_of_bytes() -> None:
    sizes = []
    for seed in range(20):
        day = cadence(seed, days=1)
        sizes.append((len(pack(day)) + len(pack_histogram(rollup(DAY, day).latency))) / len(day))
    assert sum(sizes) / len(sizes) < 30


async def test_a_probe_comes_back_as_it_was_recorded(store: Store) -> None:
    await prepare(store, [])
    assert await store.writing(record_probe, A.id, GOOD)
    assert await store.reading(probes.history, A.id, since=START - 1, until=START) == (GOOD,)
    assert await store.reading(probes.history, A.id, since=START, until=START + DAY_MS) == ()
    assert await store.reading(probes.history, B.id, since=START - DAY_MS, until=START) == ()


@pytest.mark.parametrize("as_of_hours", [0.0, 11.3, 23.99])
async def test_the_window_is_exact_open_closed_and_with_late_rows(
    store: Store, as_of_hours: float
) -> None:
    today = DAY + 32
    as_of = today * DAY_MS + int(as_of_hours * HOUR_MS)
    first = as_of - WINDOW_MS
    results = lively(7, first=first - 2 * DAY_MS, last=as_of + HOUR_MS, number=700)
    edges = [first, first + 1, as_of, as_of + 1]
    results = [one for one in results if one.at not in edges]
    results += [replace(GOOD, at=at) for at in edges]
    late = random.Random(8).sample(results, 25)
    early = [one for one in results if one not in late]
    await prepare(store, early, *lively(9, first=first, last=as_of, number=50))

    async def sums() -> tuple[Rollup, ...]:
        return (await store.reading(window.read, A.id, as_of=as_of, recent_ms=HOUR_MS)).days

    assert await sums() == naive(early, as_of)
    assert await close_all(store, today, limit=40) > 30
    assert await sums() == naive(early, as_of)
    for one in late:
        assert await store.writing(record_probe, A.id, one)
    assert await sums() == naive(results, as_of)
    assert await close_all(store, today) > 0
    assert await sums() == naive(results, as_of)
    found = await store.reading(
        probes.history, A.id, since=first - 3 * DAY_MS, until=as_of + DAY_MS
    )
    assert stripped(list(found)) == sorted(stripped(results), key=lambda one: one.at)


def naive_last(results: list[ProbeResult], as_of: int, *, envelope: bool) -> int | None:
    """When the latest scored probe of the window's days was, of all or of those with terms."""
    first_day = day_of(as_of - WINDOW_MS)
    inside = [
        one.at
        for one in results
        if one.at <= as_of
        and day_of(one.at) >= first_day
        and one.scored
        and not (envelope and one.accepts is None)
    ]
    return max(inside, default=None)


@pytest.mark.parametrize("seed", range(6))
async def test_a_window_is_seen_alike_whatever_part_of_it_is_closed(
    store: Store, seed: int
) -> None:
    """Few probes, so that days without any, and long times without an envelope, are met."""
    rng = random.Random(seed)
    as_of = (DAY + 32) * DAY_MS + rng.randrange(DAY_MS)
    results = lively(seed, first=as_of - 34 * DAY_MS, last=as_of + HOUR_MS, number=12)
    await prepare(store, results)
    for closed in (0, rng.randrange(33), 32, 33):
        await close_all(store, DAY + closed)
        for hours in (3, 30, 300):
            since = as_of - hours * HOUR_MS
            found = await store.reading(window.read, A.id, as_of=as_of, recent_ms=as_of - since)
            scored = [one for one in results if since < one.at <= as_of and one.scored]
            assert found.days == naive(results, as_of)
            assert found.recent == (len(scored), sum(one.up for one in scored))
            last = naive_last(results, as_of, envelope=False)
            assert (found.last and found.last.at) == last
            with_terms = naive_last(results, as_of, envelope=True)
            hidden = found.last is not None and found.last.accepts is None
            inside = with_terms is not None and with_terms > as_of - WINDOW_MS
            assert (found.envelope and found.envelope.at) == (
                with_terms if hidden and inside else None
            )


async def test_an_instant_on_the_edge_counts_as_the_arithmetic_says(store: Store) -> None:
    as_of = START + 31 * DAY_MS
    edges = (as_of - WINDOW_MS, as_of - WINDOW_MS + 1, as_of, as_of + 1)
    await prepare(store, [replace(GOOD, at=at) for at in edges])
    for _ in range(2):
        found = (await store.reading(window.read, A.id, as_of=as_of, recent_ms=HOUR_MS)).days
        assert [(one.day, one.probes) for one in found] == [(DAY + 1, 1), (DAY + 31, 1)]
        await close_all(store, DAY + 40)


async def test_days_are_whole_whatever_part_is_closed(store: Store) -> None:
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


async def test_closing_moves_every_row_of_days_gone_by_and_no_other(store: Store) -> None:
    results = lively(1, first=START, last=START + 3 * DAY_MS - 1, number=90)
    await prepare(store, results, GOOD)
    assert await close_all(store, DAY + 2, limit=1) == 3
    today = [one for one in results if day_of(one.at) == DAY + 2]
    assert await fresh_rows(store) == len(today)
    assert await close_all(store, DAY + 2) == 0


async def test_closing_is_all_or_nothing(store: Store) -> None:
    await prepare(store, [GOOD])

    def interrupted(tx: Connection) -> None:
        assert archive.close_days(tx, before_day=DAY + 1, limit=9) == 1
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await store.writing(interrupted)
    assert await fresh_rows(store) == 1
    assert len((await store.reading(window.read, A.id, as_of=START, recent_ms=1)).days) == 1


async def test_a_repeated_record_changes_nothing_open_or_closed(store: Store) -> None:
    other = replace(DOWN, at=GOOD.at)
    await prepare(store, [GOOD])
    for _ in range(2):
        assert not await store.writing(record_probe, A.id, other, next_due=5)
        assert await store.writing(probes.record_many, A.id, [other, GOOD]) == 0
        assert (await store.reading(window.read, A.id, as_of=START, recent_ms=1)).days[0].up == 1
        found = await store.reading(endpoints.get, A.id)
        assert found is not None
        assert found.next_due == A.next_due
        await close_all(store, DAY + 1)
    assert await fresh_rows(store) == 0


async def test_record_many_counts_what_was_new(store: Store) -> None:
    results = cadence(1, days=2)
    await prepare(store, results[:40])
    await close_all(store, DAY + 1)
    assert await store.writing(probes.record_many, A.id, results) == len(results) - 40
    assert await store.writing(probes.record_many, A.id, results) == 0
    assert await store.writing(probes.record_many, A.id, []) == 0
    found = await store.writing(endpoints.get, A.id)
    assert found is not None
    assert found.last_probed == results[-1].at
    seen = await store.reading(window.read, A.id, as_of=results[-1].at, recent_ms=1)
    assert sum(day.probes for day in seen.days) == len(results)


def last(tx: Connection, endpoint_id: str, *, as_of: int) -> LastProbe | None:
    return (window.read(tx, endpoint_id, as_of=as_of, recent_ms=1)).last


async def test_the_last_scored_probe_is_found_fresh_and_packed_alike(store: Store) -> None:
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
    for closed in (0, 1, 2):
        await close_all(store, DAY + closed)
        seen.append(await store.reading(last, A.id, as_of=START + DAY_MS))
        assert await store.reading(last, B.id, as_of=START + DAY_MS) is None
        earlier = await store.reading(last, A.id, as_of=START + 1)
        assert await store.reading(last, A.id, as_of=START) is None
        assert earlier is not None
        assert (earlier.at, earlier.up) == (START + 1, False)
    assert seen[0] is not None
    assert seen == [seen[0]] * 3
    assert seen[0].at == START + 2
    assert seen[0].outcome == "payment-required"
    assert seen[0].rules == (("no-description", "warn", "Say what it does."),)
    assert (seen[0].accepts, seen[0].tls_not_after) == (1, GOOD.tls_not_after)


def recent(tx: Connection, endpoint_id: str, *, since: int) -> tuple[int, int]:
    as_of = START + 2 * HOUR_MS
    return (window.read(tx, endpoint_id, as_of=as_of, recent_ms=as_of - since)).recent


async def test_recent_counts_scored_and_up_across_midnight(store: Store) -> None:
    instants = range(START - 2 * HOUR_MS, START + HOUR_MS, 30 * MINUTE_MS)
    kinds = (GOOD, DOWN, OURS, GOOD, DOWN, GOOD)
    await prepare(store, [replace(k, at=at) for k, at in zip(kinds, instants, strict=True)])
    for _ in range(2):
        assert await store.reading(recent, A.id, since=instants[0]) == (4, 2)
        assert await store.reading(recent, A.id, since=instants[0] - 1) == (5, 3)
        assert await store.reading(recent, A.id, since=START + HOUR_MS) == (0, 0)
        assert await store.reading(recent, B.id, since=START - DAY_MS) == (0, 0)
        await close_all(store, DAY)


async def test_pruning_drops_the_probes_of_old_days_and_keeps_their_sums(store: Store) -> None:
    results = cadence(4, days=3)
    await prepare(store, results)
    await close_all(store, DAY + 3)
    before = await store.reading(probes.days, A.id, first_day=DAY, last_day=DAY + 2)
    assert await store.writing(archive.prune, before_day=DAY + 1) == 1
    assert await store.writing(archive.prune, before_day=DAY + 1) == 0
    assert await store.reading(probes.days, A.id, first_day=DAY, last_day=DAY + 2) == before
    found = await store.reading(probes.history, A.id, since=START - 1, until=START + 3 * DAY_MS)
    assert {day_of(one.at) for one in found} == {DAY + 1, DAY + 2}
    late = replace(GOOD, at=results[0].at + 1)
    assert await store.writing(record_probe, A.id, late)
    await close_all(store, DAY + 3)
    days = await store.reading(probes.days, A.id, first_day=DAY, last_day=DAY)
    assert days[0].probes == before[0].probes + 1


async def test_a_hostile_envelope_is_evidence_like_any_other(store: Store) -> None:
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
        (found,) = await store.reading(probes.history, A.id, since=START - 1, until=START)
        assert found.quote is not None
        assert (found.version, found.accepts) == (None, None)
        assert (found.quote.pay_to, found.quote.amount) == ("0\ufffdx", 2**256 - 1)
        kept.add((found.version, found.reason))
        await close_all(store, DAY + 1)
    assert len(kept) == 1


async def test_a_past_of_thirty_days_is_recorded_fast_enough_to_demonstrate(store: Store) -> None:
    results = cadence(2, days=30)
    await store.writing(endpoints.insert, A)
    began = time.perf_counter()
    assert await store.writing(probes.record_many, A.id, results) == len(results)
    rate = len(results) / (time.perf_counter() - began)
    assert rate > 1_000  # 10 000 to 28 000 on an idle machine


async def test_the_last_probe_of_whoever_was_asked_lately_is_known_across_midnight(
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
    up, down = Standing(up_at=early), Standing(down_since=midnight)
    before = Standing(up_at=midnight - HOUR_MS)
    asked = [
        Asked(host="a.com", at=early, sign=Sign.ANSWERED, standing=up),
        Asked(host="a.com", at=midnight, sign=Sign.TLS_FAILED, standing=down),
        Asked(host="b.com", at=late, sign=None, standing=before),
    ]
    everybody = await store.reading(probes.asked_since, early - 1)
    assert sorted(everybody, key=lambda one: one.at) == asked
    lately = await store.reading(probes.asked_since, early)
    assert sorted(lately, key=lambda one: one.at) == asked[1:]


async def test_who_was_asked_lately_is_found_by_an_index() -> None:
    """In SQLite, which says so of small tables too."""
    store = Store.open("sqlite://")
    await store.migrate()
    query = probes.ASKED_SINCE.params(since_=START).compile(compile_kwargs={"literal_binds": True})
    plan = str((await fetch(store, sa.text(f"EXPLAIN QUERY PLAN {query}"))).all())
    assert "SCAN" not in plan
    assert "ix_endpoint_last_probed" in plan
    await store.close()


async def test_a_standing_is_that_of_the_newest_probes_however_they_come(store: Store) -> None:
    await store.writing(endpoints.insert, A, B)
    results = lively(5, first=START, last=START + DAY_MS, number=60)
    expected = Standing()
    for result in results:
        expected = expected.after(result)
        assert await store.writing(record_probe, A.id, result)
        assert (await store.reading(probes.standings, [A.id]))[A.id] == expected
    await store.writing(probes.record_many, B.id, results[30:])
    await store.writing(probes.record_many, B.id, results[:30])
    found = await store.reading(probes.standings, [A.id, B.id, "unknown"])
    assert found == {A.id: expected, B.id: expected}


async def test_a_delay_of_our_own_is_no_part_of_what_is_stored(store: Store) -> None:
    late = replace(OURS, timings=replace(OURS.timings, delay=13_900, overrun=4_344))
    await prepare(store, [late])
    (found,) = await store.reading(probes.history, A.id, since=START - 1, until=START + DAY_MS)
    assert found == replace(late, timings=replace(late.timings, delay=0, overrun=0))
