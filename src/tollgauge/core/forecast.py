"""Forecast: how likely an endpoint is payable some hours from now.

Two rates, of failing while payable and of being repaired while not, are estimated from the spans of
the window (core/spans) with a little prior knowledge, so that one failure of a new endpoint is
neither nothing nor everything (docs/methodology.md, *forecast*). Exact fractions; hours.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from tollgauge.core.spans import Spans
from tollgauge.core.units import HOUR_MS

NOW_HOURS: Final = Fraction(1, 2)
"""`payableNow`: the next half hour."""
DAY_HOURS: Final = Fraction(24)
"""`payable24h`: a probe in 24 hours."""
EXPECTED_PERMILLE: Final = 850
"""A lower chance of being payable in 24 hours is doubtful (core/policy, `doubtful-tomorrow`)."""


def forecast(spans: Spans, *, payable: bool, hours: Fraction) -> Fraction:
    """The probability that a probe `hours` from now finds the endpoint payable, from 0 to 1.

    `payable` is what the last statement says. With T_up and T_down the hours that were payable and
    not, F failures and R repairs begun:

    - lambda = (F + 1/2) / (T_up + 72), rho = (R + 1) / (T_down + 8),
      mu = (R + 1/4) / (T_down + 1/2), with 72 added to T_down if it was never payable;
    - payable now: 1 - lambda h / (1 + (lambda + rho) h); else mu h / (1 + mu h + lambda h).
    """
    up = Fraction(spans.payable, HOUR_MS)
    down = Fraction(spans.up + spans.down - spans.payable, HOUR_MS)
    failing = (spans.failures + Fraction(1, 2)) / (up + 72) * hours
    if payable:
        repair = (spans.repairs + 1) / (down + 8) * hours
        return 1 - failing / (1 + failing + repair)
    never = not spans.payable and not spans.failures
    repair = (spans.repairs + Fraction(1, 4)) / (down + Fraction(1, 2) + (72 if never else 0))
    repair *= hours
    return repair / (1 + repair + failing)


def is_expected(payable_24h_permille: int | None) -> bool:
    """Whether an endpoint is expected to be payable in 24 hours."""
    return (payable_24h_permille or 0) >= EXPECTED_PERMILLE
