from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.rollup import (
    SLOT_MS,
    Rollup,
    RollupError,
    bucket_of,
    count_latencies,
    encode_histogram,
    merge,
    rollup,
)

DAY = 20_500


def result(at: int, *, ms: int = 200, up: bool = True, scored: bool = True) -> ProbeResult:
    return ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED if up else Outcome.TIMEOUT,
        attribution=Attribution.TARGET if scored else Attribution.LOCAL,
        up=up,
        timings=Timings(total=ms),
        compliance=96 if up else 0,
        compliant=up,
        payable=up,
        reason="" if scored else "dns-failed",
    )


RESULTS = st.lists(
    st.builds(
        result,
        st.integers(DAY * DAY_MS, (DAY + 1) * DAY_MS - 1),
        ms=st.integers(0, 11_000),
        up=st.booleans(),
        scored=st.booleans(),
    ),
    max_size=30,
)


def test_day_adds_up_to_its_sums() -> None:
    start = DAY * DAY_MS
    sums = rollup(
        DAY,
        [
            result(start, ms=100),
            result(start + SLOT_MS - 1, ms=301),
            result(start + SLOT_MS, up=False, ms=10_000),
            result(start + 2 * SLOT_MS, scored=False),
        ],
    )
    assert sums == Rollup(
        day=DAY,
        probes=4,
        scored=3,
        up=2,
        compliant=2,
        payable=2,
        compliance=192,
        slots=0b11,
        latency_sum=401,
        latency=encode_histogram([(100, 1), (bucket_of(301), 1)]),
        excluded=(("dns-failed", 1),),
    )


def test_unscored_probe_without_a_reason_is_counted_under_its_attribution() -> None:
    unknown = replace(result(DAY * DAY_MS), attribution=Attribution.UNKNOWN)
    assert rollup(DAY, [unknown]).excluded == (("unknown", 1),)


def test_probe_of_another_day_is_refused() -> None:
    with pytest.raises(RollupError):
        rollup(DAY, [result((DAY + 1) * DAY_MS)])


@given(RESULTS, RESULTS)
def test_merging_parts_equals_rolling_up_the_whole(
    a: list[ProbeResult], b: list[ProbeResult]
) -> None:
    assert merge([rollup(DAY, a), rollup(DAY, b)]) == rollup(DAY, b + a)


SUMS = ("probes", "scored", "up", "compliant", "payable", "compliance", "latency_sum")


@given(RESULTS, RESULTS)
def test_sums_of_days_are_added(before: list[ProbeResult], after: list[ProbeResult]) -> None:
    days = [rollup(DAY, before), structs.replace(rollup(DAY, after), day=DAY + 1)]
    added = merge(days)
    assert [getattr(added, name) for name in SUMS] == [
        sum(getattr(day, name) for day in days) for name in SUMS
    ]
    assert count_latencies(added.histogram) == sum(
        count for day in days for _, count in day.histogram
    )


def test_no_days_add_up_to_nothing() -> None:
    assert merge([]).probes == 0
