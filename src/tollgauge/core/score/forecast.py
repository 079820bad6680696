"""Forecast: the chance that an endpoint is payable in some hours (docs/methodology.md, *Forecast*).

The model has two states: a payable endpoint fails at a rate, and is repaired at another. Both rates
are estimated from the day sums of the window with a weak prior, so that one failure of a new
endpoint has a limited effect. All numbers are exact ratios of integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tollgauge.core.base.rounding import Ratio, is_below
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
_NEVER_MS: Final = 72 * HOUR_MS
_HORIZONS: Final = ((1, 1_000), (48, 500))
"""Half hours ahead, and the reciprocal of the lowest chance of either outcome."""
_MAX_RATE: Final = (2, 1)

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
    # Integers: with fractions.Fraction a forecast took a fifth of the time of a score.
    hour, age = _WHOLE * HOUR_MS, max(as_of - state.since, 0)
    base, base_whole = (6 * f31 + 1) * HOUR_MS, 6 * (up31 + 380 * HOUR_MS)
    failing = (f * base_whole + _WHOLE * base) * HOUR_MS, base_whole * (up + hour)  # lambda0
    outage, outage_whole = 4 * down + 3 * hour, 4 * HOUR_MS * (r + _WHOLE)  # m
    if state.payable:
        part, whole = failing
        recent = 3 * hour * HOUR_MS * base_whole if r31 else 0
        leave = part * (HOUR_MS + age) + recent, whole * (HOUR_MS + age)
        back = outage_whole, outage
    else:
        age += 0 if state.was_payable else _NEVER_MS
        known = 6 * _WHOLE + r  # Q = 6r / known
        waited = (7 * age + HOUR_MS) * known * outage_whole + 42 * HOUR_MS * r * outage
        leave = 7 * HOUR_MS * outage_whole * (known + 36 * r), 6 * waited
        back = failing
    leave = _MAX_RATE if is_below(_MAX_RATE, leave) else leave
    back = _MAX_RATE if is_below(_MAX_RATE, back) else back
    chances = []
    for half_hours, least in _HORIZONS:
        changed, whole = _chance_of_change(leave, back, half_hours)
        chance = (whole - changed if state.payable else changed), whole
        if is_below(chance, (1, least)):
            chance = 1, least
        elif is_below((least - 1, least), chance):
            chance = least - 1, least
        chances.append(chance)
    return chances[0], chances[1]


def _chance_of_change(leave: Ratio, back: Ratio, half_hours: int) -> Ratio:
    """Return C(leave, back, half_hours / 2): the chance of the other state by then."""
    x, y, whole = leave[0] * back[1], back[0] * leave[1], leave[1] * back[1]
    spread = 2 * whole + (x + y) * (half_hours - 1)
    return x * (spread - max(0, 2 * whole - x - y)), (x + y) * spread


def is_expected(payable_24h_permille: int | None) -> bool:
    """Whether an endpoint is expected to be payable in 24 hours."""
    return (payable_24h_permille or 0) >= EXPECTED_PERMILLE
