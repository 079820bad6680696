"""Forecast: how likely an endpoint is payable some hours from now.

Two rates, of failing while payable and of being repaired while not, are estimated from the spans of
the window (core/probe/spans) with a little prior knowledge, so that one failure of a new endpoint
is neither nothing nor everything (docs/methodology.md, *forecast*). They are exact.
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.base.rounding import Ratio
from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.probe.spans import Spans

NOW_MS: Final = HOUR_MS // 2
"""How far ahead `payableNow` looks: half an hour."""
EXPECTED_PERMILLE: Final = 850
"""The least chance of being payable in 24 hours, in thousandths, of what is expected to be; a lower
one is doubtful (core/score/policy, `doubtful-tomorrow`)."""


def forecast(spans: Spans, *, payable: bool, ahead_ms: int) -> Ratio:
    """The probability that a probe h hours from now (`ahead_ms`) finds the endpoint payable, from
    0 to 1.

    `payable` is what the last statement says. With T_up and T_down the hours that were payable and
    not, F failures and R repairs begun:

    - lambda = (F + 1/2) / (T_up + 72), rho = (R + 1) / (T_down + 8),
      mu = (R + 1/4) / (T_down + 1/2), with 72 added to T_down if it was never payable;
    - payable now: 1 - lambda h / (1 + (lambda + rho) h); else mu h / (1 + mu h + lambda h).
    """
    up, down = spans.payable, spans.up + spans.down - spans.payable
    # lambda h is failing / up, and rho h or mu h is repair / down, all in milliseconds.
    failing, up = (2 * spans.failures + 1) * ahead_ms, 2 * (up + 72 * HOUR_MS)
    if payable:
        repair, down = (spans.repairs + 1) * ahead_ms, down + 8 * HOUR_MS
        stays = (down + repair) * up
        return stays, stays + failing * down
    never = not spans.payable and not spans.failures
    repair = (4 * spans.repairs + 1) * ahead_ms
    down = 4 * down + 2 * HOUR_MS + (4 * 72 * HOUR_MS if never else 0)
    mended = repair * up
    return mended, down * up + mended + failing * down


def is_expected(payable_24h_permille: int | None) -> bool:
    """Whether an endpoint is expected to be payable in 24 hours."""
    return (payable_24h_permille or 0) >= EXPECTED_PERMILLE
