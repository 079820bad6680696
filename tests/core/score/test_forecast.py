"""How likely an endpoint is payable some hours from now."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.spans import NO_SPANS, Spans
from tollgauge.core.score.forecast import NOW_MS, forecast

HALF_HOURS = st.integers(0, 31 * 48)
COUNTS = st.integers(0, 500)


def spans(payable: int, unpaid: int, failures: int, repairs: int) -> Spans:
    """Spans of so many half hours that were payable and not."""
    half = HOUR_MS // 2
    return Spans(
        up=payable * half,
        payable=payable * half,
        down=unpaid * half,
        failures=failures,
        repairs=repairs,
    )


def chance(known: Spans, *, payable: bool, ahead_ms: int) -> Fraction:
    """The forecast, reduced."""
    return Fraction(*forecast(known, payable=payable, ahead_ms=ahead_ms))


@given(HALF_HOURS, HALF_HOURS, COUNTS, COUNTS, st.booleans(), st.integers(1, 100))
def test_it_is_the_published_formula(
    up: int, down: int, failures: int, repairs: int, payable: bool, hours: int
) -> None:
    t_up, t_down, h = Fraction(up, 2), Fraction(down, 2), Fraction(hours)
    lam = (failures + Fraction(1, 2)) / (t_up + 72)
    rho = (repairs + 1) / (t_down + 8)
    never = 72 if not up and not failures else 0
    mu = (repairs + Fraction(1, 4)) / (t_down + Fraction(1, 2) + never)
    expected = 1 - lam * h / (1 + (lam + rho) * h) if payable else mu * h / (1 + mu * h + lam * h)
    known = spans(up, down, failures, repairs)
    assert chance(known, payable=payable, ahead_ms=hours * HOUR_MS) == expected
    assert 0 < expected < 1


@given(HALF_HOURS, HALF_HOURS, COUNTS, COUNTS, st.integers(1, 100))
def test_more_time_that_was_not_payable_never_makes_it_likelier(
    up: int, down: int, failures: int, repairs: int, more: int
) -> None:
    for payable in (True, False):
        for ahead in (NOW_MS, DAY_MS):
            less, longer = (
                chance(spans(up, time, failures, repairs), payable=payable, ahead_ms=ahead)
                for time in (down, down + more)
            )
            assert longer <= less


@pytest.mark.parametrize(
    ("known", "payable", "now", "day"),
    [
        (NO_SPANS, True, 0.9967, 0.9600),
        (NO_SPANS, False, 0.0017, 0.0662),
        (spans(31 * 48, 0, 0, 0), True, 0.9997, 0.9963),
        (spans(31 * 48, 0, 1, 0), False, 0.1999, 0.9200),
        (spans(0, 31 * 48, 0, 0), False, 0.0002, 0.0063),
    ],
)
def test_some_forecasts(known: Spans, payable: bool, now: float, day: float) -> None:
    chances = [chance(known, payable=payable, ahead_ms=ahead) for ahead in (NOW_MS, DAY_MS)]
    assert [round(float(value), 4) for value in chances] == [now, day]
