"""For how much of a day an endpoint was up, payable and down."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.probe_rows import spans_by_day
from tests.support.timed_evidence import payable, unpaid_probe

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import (
    HOLDS_MAX_MS,
    HOLDS_MIN_MS,
    Spans,
    Statement,
    holds_ms,
    spans,
    spans_sum,
    statement,
)

QUARTER = 15 * MINUTE_MS
START = 20_000 * DAY_MS
STATEMENTS = st.lists(
    st.builds(
        lambda quarter, hours, worth: Statement(
            at=START + quarter * QUARTER,
            holds=hours * HOUR_MS,
            up=worth >= 0,
            payable=worth > 0,
            compliance=max(worth, 0),
        ),
        st.integers(0, 4 * 96),
        st.integers(2, 24),
        st.sampled_from([-1, 0, 50, 100]),
    ),
    max_size=30,
    unique_by=lambda item: item.at,
)


def by_quarters(statements: Sequence[Statement], until: int) -> dict[int, Spans]:
    """Compute the same per quarter of an hour, without the changes."""
    ordered = sorted(statements)
    instants = [item.at for item in ordered]
    days: dict[int, Spans] = {}
    for at in range(START, min(until, START + 6 * DAY_MS), QUARTER):
        place = bisect_right(instants, at) - 1
        if place < 0 or ordered[place].at + ordered[place].holds <= at:
            continue
        speaker = ordered[place]
        part = Spans(
            up=QUARTER * speaker.up,
            payable=QUARTER * speaker.payable,
            down=QUARTER * (not speaker.up),
            compliance=QUARTER * speaker.compliance,
        )
        days[at // DAY_MS] = spans_sum((days.get(at // DAY_MS, Spans()), part))
    return days


@given(STATEMENTS, st.integers(0, 5 * 96))
def test_probe_counts_until_the_next_one_or_until_it_expires(
    statements: list[Statement], quarters: int
) -> None:
    until = START + quarters * QUARTER
    known = [item for item in statements if item.at <= until]
    days = spans_by_day(known, until=until)
    times = {
        day: Spans(up=s.up, payable=s.payable, down=s.down, compliance=s.compliance)
        for day, s in days.items()
        if s.up or s.down
    }
    assert times == by_quarters(known, until)


@given(STATEMENTS)
def test_sums_of_a_day_do_not_depend_on_its_parts(
    statements: list[Statement],
) -> None:
    until = START + 9 * DAY_MS
    days = spans_by_day(statements, until=until)
    total = spans_sum(tuple(days.values()))
    assert total.up + total.down <= sum(item.holds for item in statements)
    assert total.failures + total.repairs <= max(len(statements) - 1, 0)
    assert abs(total.failures - total.repairs) <= len(days)


def test_changes_are_counted_on_the_day_they_begin() -> None:
    at = START + 23 * HOUR_MS
    probes = [payable(at), unpaid_probe(at + 2 * HOUR_MS), payable(at + 3 * HOUR_MS)]
    said = [item for probe in probes if (item := statement(probe)) is not None]
    days = spans_by_day(said, until=START + 3 * DAY_MS)
    assert [(day.failures, day.repairs) for day in days.values()] == [(0, 0), (1, 1)]
    assert days[20_000].payable == HOUR_MS
    assert (days[20_001].payable, days[20_001].down) == (3 * HOUR_MS, HOUR_MS)


def test_state_is_forgotten_after_a_day_without_probes() -> None:
    said = [statement(payable(START)), statement(unpaid_probe(START + 2 * DAY_MS))]
    days = spans_by_day([item for item in said if item], until=START + 4 * DAY_MS)
    assert sum(day.failures for day in days.values()) == 0


@pytest.mark.parametrize(
    ("interval", "hours"), [(5 * MINUTE_MS, 2), (2 * HOUR_MS, 3), (6 * HOUR_MS, 9), (DAY_MS, 24)]
)
def test_failure_holds_one_and_a_half_times_its_interval(interval: int, hours: int) -> None:
    assert holds_ms(payable=False, interval_ms=interval) == hours * HOUR_MS
    assert holds_ms(payable=True, interval_ms=interval) == HOLDS_MIN_MS
    assert HOLDS_MIN_MS <= hours * HOUR_MS <= HOLDS_MAX_MS


def test_refusal_is_not_up_as_time() -> None:
    for outcome in (Outcome.THROTTLED, Outcome.FORBIDDEN):
        said = statement(unpaid_probe(START, outcome))
        assert said is not None
        assert (said.up, said.payable) == (False, False)


def test_day_is_cut_at_the_requested_time() -> None:
    said = statement(payable(START))
    assert said is not None
    assert spans(20_000, [said], before=None, until=START + HOUR_MS).up == HOUR_MS
