"""How likely an endpoint is payable some hours from now. The formula is checked by tests/golden."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.probe import Spans
from tollgauge.core.probe.rollup import Rollup
from tollgauge.core.score.forecast import DAY_WEIGHTS, PresentState, forecast

TODAY = 20_600
AS_OF = TODAY * DAY_MS + 12 * HOUR_MS
ENDS = {0: (Fraction(1, 1_000), Fraction(999, 1_000)), 1: (Fraction(1, 500), Fraction(499, 500))}


def day(ago: int, *, payable: int = 24, failures: int = 0, repairs: int = 0) -> Rollup:
    """A day that was payable for a number of hours, and not for the others."""
    up = payable * HOUR_MS
    spans = Spans(up=up, payable=up, down=DAY_MS - up, failures=failures, repairs=repairs)
    return Rollup(day=TODAY - ago, spans=spans)


def chances(
    days: list[Rollup], *, payable: bool, hours: int, was_payable: bool = True
) -> tuple[Fraction, Fraction]:
    """The forecasts of an endpoint whose present state began a number of hours ago."""
    state = PresentState(payable=payable, since=AS_OF - hours * HOUR_MS, was_payable=was_payable)
    now, later = forecast(days, state, as_of=AS_OF)
    return Fraction(*now), Fraction(*later)


GOOD_MONTH = [day(ago) for ago in range(31)]
FLAPPING = [day(ago, payable=12, failures=2, repairs=2) for ago in range(31)]


@pytest.mark.parametrize(
    ("days", "payable", "hours", "now", "later"),
    [
        ([], True, 0, 0.999, 0.998),
        (GOOD_MONTH, True, 744, 0.999, 0.998),
        (GOOD_MONTH, False, 0, 0.5833, 0.9853),
        (GOOD_MONTH, False, 2, 0.0389, 0.6601),
        (GOOD_MONTH, False, 48, 0.0017, 0.0768),
        (FLAPPING, True, 6, 0.9126, 0.5591),
        (FLAPPING, False, 6, 0.0811, 0.4484),
    ],
)
def test_some_forecasts(
    days: list[Rollup], payable: bool, hours: int, now: float, later: float
) -> None:
    found = chances(days, payable=payable, hours=hours)
    assert [round(float(chance), 4) for chance in found] == [now, later]


@given(
    st.lists(
        st.builds(
            day,
            st.integers(0, 30),
            payable=st.integers(0, 24),
            failures=st.integers(0, 24),
            repairs=st.integers(0, 24),
        ),
        max_size=31,
        unique_by=lambda row: row.day,
    ),
    st.booleans(),
    st.integers(0, 800),
)
def test_no_forecast_is_certain(days: list[Rollup], payable: bool, hours: int) -> None:
    for place, chance in enumerate(chances(days, payable=payable, hours=hours)):
        least, most = ENDS[place]
        assert least <= chance <= most


@given(st.integers(0, 700), st.integers(1, 100))
def test_longer_outage_never_increases_the_forecast(hours: int, more: int) -> None:
    shorter = chances(GOOD_MONTH, payable=False, hours=hours)
    longer = chances(GOOD_MONTH, payable=False, hours=hours + more)
    assert all(one <= other for one, other in zip(longer, shorter, strict=True))


def test_present_outage_is_not_counted_as_time_before_it() -> None:
    """Days that are down only by the present outage leave the mean outage as it was before."""
    down = [day(ago, payable=0) for ago in range(3)]
    up = [day(ago) for ago in range(3, 31)]
    hours = 3 * 24 - 12
    assert chances([*down, *up], payable=False, hours=hours) == chances(
        up, payable=False, hours=hours
    )


def test_endpoint_that_was_never_payable_waits_72_hours_longer() -> None:
    never = [day(ago, payable=0) for ago in range(3)]
    first = chances(never, payable=False, hours=60, was_payable=False)
    assert first == chances(never, payable=False, hours=132)
    assert first[1] < chances(never, payable=False, hours=60)[1]


def test_weight_of_a_day_halves_in_two_days() -> None:
    assert DAY_WEIGHTS[:7:2] == (1_000, 500, 250, 125)
    assert all(later <= earlier for earlier, later in pairwise(DAY_WEIGHTS))
    assert len(DAY_WEIGHTS) == 31
