"""Forecast: the chance that an endpoint is payable in some hours (docs/methodology.md, *Forecast*).

The model has two states: a payable endpoint fails at a rate, and is repaired at another. Both rates
are estimated from the day sums of the window with a weak prior, so that one failure of a new
endpoint has a limited effect. All numbers are exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from tollgauge.core.base.rounding import Ratio
from tollgauge.core.base.units import DAY_MS, HOUR_MS, day_of
from tollgauge.core.probe.rollup import Rollup

EXPECTED_PERMILLE: Final = 850
"""Minimum chance (thousandths) at which an endpoint is expected to be payable in 24 hours; below
it, the cap `doubtful-tomorrow` applies.
"""
DAY_WEIGHTS: Final = (
    *(1_000, 707, 500, 354, 250, 177, 125, 88, 63, 44, 31, 22, 16, 11, 8, 6, 4, 3, 2, 1, 1, 1),
    *(0,) * 9,
)
"""round(1000 x 2^(-d/2)) for the day d days ago."""
_WHOLE: Final = 1_000
_NEVER_HOURS: Final = 72
_HALF_HOUR: Final = Fraction(1, 2)
_HORIZONS: Final = ((_HALF_HOUR, Fraction(1, 1_000)), (Fraction(24), Fraction(1, 500)))
"""Hours ahead, and the lowest chance of either outcome."""
_MAX_RATE: Final = Fraction(2)

Forecasts = tuple[Ratio, Ratio]
"""The chances of being payable in half an hour and in 24 hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentState:
    """Whether the endpoint is payable now, since when (ms UTC), and whether it ever was."""

    payable: bool
    since: int
    was_payable: bool


def forecast(days: Iterable[Rollup], state: PresentState, *, as_of: int) -> Forecasts:
    """Return the chances of being payable in half an hour (from 1/1000 to 999/1000) and in 24 hours
    (from 1/500 to 499/500).

    Sums over the window's days, the day d days ago with weight 2^(-d/2): F failures, R repairs,
    U hours payable, B hours not payable before the present state began. F31, R31 and U31 are the
    same without weights; a is the hours since the present state began, and 72 more for an endpoint
    that was never payable.

    - base = (F31 + 1/6) / (U31 + 380), lambda0 = (F + base) / (U + 1),
      lambda = (F + base + [R31 > 0] x 3 / (1 + a)) / (U + 1);
    - m = (B + 3/4) / (R + 1), rho = 1 / m, Q = 6R / (6 + R),
      mu = (1/6 + Q) / (a + 1/7 + Q m); lambda0, lambda, rho and mu are at most 2 an hour;
    - C(x, y, h) = x / (x + y) x (1 - max(0, 1 - (x + y) / 2) / (1 + (x + y)(h - 1/2)));
    - if payable 1 - C(lambda, rho, h), otherwise C(mu, lambda0, h).
    """
    f = r = up = down = f31 = r31 = up31 = 0
    today = day_of(as_of)
    for row in days:
        weight, spans = DAY_WEIGHTS[today - row.day], row.spans
        closed = spans.up + spans.down - spans.payable
        if not state.payable:  # time of the present outage is not time before it
            begin, end = max(state.since, row.day * DAY_MS), min(as_of, (row.day + 1) * DAY_MS)
            closed = max(0, closed - max(0, end - begin))
        f += weight * spans.failures
        r += weight * spans.repairs
        up += weight * spans.payable
        down += weight * closed
        f31 += spans.failures
        r31 += spans.repairs
        up31 += spans.payable
    hour = _WHOLE * HOUR_MS
    age = Fraction(max(as_of - state.since, 0), HOUR_MS)
    failures, repairs = Fraction(f, _WHOLE), Fraction(r, _WHOLE)
    base = Fraction((6 * f31 + 1) * HOUR_MS, 6 * (up31 + 380 * HOUR_MS))
    hours = Fraction(up + hour, hour)
    outage = Fraction(4 * down + 3 * hour, 4 * hour) / (repairs + 1)
    if state.payable:
        recent = Fraction(3) / (1 + age) if r31 else 0
        leave, back = (failures + base + recent) / hours, 1 / outage
    else:
        age += 0 if state.was_payable else _NEVER_HOURS
        known = 6 * repairs / (6 + repairs)
        leave = (Fraction(1, 6) + known) / (age + Fraction(1, 7) + known * outage)
        back = (failures + base) / hours
    leave, back = min(leave, _MAX_RATE), min(back, _MAX_RATE)
    chances = []
    for ahead, least in _HORIZONS:
        changed = _chance_of_change(leave, back, ahead)
        chance = 1 - changed if state.payable else changed
        chances.append(min(max(chance, least), 1 - least).as_integer_ratio())
    return chances[0], chances[1]


def _chance_of_change(leave: Fraction, back: Fraction, ahead: Fraction) -> Fraction:
    """Return C(leave, back, ahead): the chance of the other state in a number of hours."""
    both = leave + back
    rest = max(Fraction(0), 1 - both / 2) / (1 + both * (ahead - _HALF_HOUR))
    return leave / both * (1 - rest)


def is_expected(payable_24h_permille: int | None) -> bool:
    """Whether an endpoint is expected to be payable in 24 hours."""
    return (payable_24h_permille or 0) >= EXPECTED_PERMILLE
