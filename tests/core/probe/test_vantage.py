"""When a failure that one vantage sees is the endpoint's."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.probe.attribution import (
    PARTLY_REACHABLE,
    VALID_MS,
    VantageState,
    exclude_minority_failure,
    partly_reachable,
)
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import HOLDS_MIN_MS, ProbeResult

NOW = 1_795_000_000_000
FAILURE = ProbeResult(
    at=NOW,
    outcome=Outcome.TIMEOUT,
    attribution=Attribution.TARGET,
    up=False,
    timings=Timings(total=10_000),
)


def state(up: bool, *, at: int = NOW, name: str = "b", primary: bool = False) -> VantageState:
    return VantageState(
        vantage=name,
        primary=primary,
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED if up else Outcome.TIMEOUT,
        attribution=Attribution.TARGET,
        up=up,
        payable=up,
        latency_ms=80 if up else None,
    )


def is_down(*others: VantageState) -> bool:
    return exclude_minority_failure(FAILURE, others).scored


def test_single_vantage_decides() -> None:
    assert exclude_minority_failure(FAILURE, ()) == FAILURE


def test_failure_that_half_of_the_vantages_do_not_see_has_no_attribution() -> None:
    result = exclude_minority_failure(FAILURE, [state(up=True)])
    assert (result.attribution, result.reason) == (Attribution.UNKNOWN, PARTLY_REACHABLE)
    assert not is_down(state(up=True), state(up=False), state(up=True))


def test_failure_that_more_than_half_of_the_vantages_see_is_attributed_to_the_endpoint() -> None:
    assert is_down(state(up=False))
    assert is_down(state(up=True), state(up=False))


def test_old_and_local_results_of_a_vantage_are_ignored() -> None:
    assert is_down(state(up=True, at=NOW - VALID_MS - 1))
    assert not is_down(state(up=True, at=NOW - VALID_MS))
    assert is_down(replace(state(up=True), attribution=Attribution.LOCAL))


def test_earlier_result_of_the_primary_vantage_is_not_a_second_vote() -> None:
    assert is_down(state(up=True, primary=True))


@given(ups=st.lists(st.booleans(), max_size=8))
def test_down_needs_more_than_half_of_all(ups: list[bool]) -> None:
    down = 1 + ups.count(False)
    assert is_down(*(state(up=up) for up in ups)) is (2 * down > 1 + len(ups))


@given(ups=st.lists(st.booleans(), max_size=8))
def test_answer_is_up_whatever_other_vantages_see(ups: list[bool]) -> None:
    answer = replace(FAILURE, up=True, outcome=Outcome.PAYMENT_REQUIRED)
    assert exclude_minority_failure(answer, [state(up=up) for up in ups]) == answer


def test_reached_by_some_and_not_by_others_is_partly_reachable_for_two_hours() -> None:
    states = [state(up=True, primary=True, name="a"), state(up=False)]
    assert partly_reachable(states, now=NOW + HOLDS_MIN_MS)
    assert not partly_reachable(states, now=NOW + HOLDS_MIN_MS + 1)
    assert not partly_reachable([state(up=False), state(up=False, name="c")], now=NOW)
    assert not partly_reachable([state(up=False)], now=NOW)
