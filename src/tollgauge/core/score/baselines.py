"""Outcomes of forecasts, and baselines: simple rules that a forecast must beat, computed per probe.

Exact integers, so that they are the same everywhere; the rules are those of
`calibration.BASELINES`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from decimal import Decimal, localcontext
from functools import cache
from typing import Final

from tollgauge.core.base.rounding import half_up
from tollgauge.core.base.units import DAY_MS, MINUTE_MS

_ONE: Final = 1 << 60
"""1 as a fixed-point number."""
_WEIGHTLESS_MINUTES: Final = 60 * 24 * 60
"""Age from which a probe has no weight: 60 half-lives of 24 hours."""


class Baselines:
    """The baselines of one endpoint. Probes are added oldest first."""

    def __init__(self) -> None:
        self._last: tuple[int, bool] | None = None
        self._payable = self._weight = 0
        self._windows = (_Window(7 * DAY_MS), _Window(30 * DAY_MS))

    def add(self, at: int, *, payable: bool) -> None:
        """Add a probe at a time (ms UTC)."""
        if self._last is not None:
            factor = _decay((at - self._last[0]) // MINUTE_MS)
            self._payable = self._payable * factor // _ONE
            self._weight = self._weight * factor // _ONE
        self._payable += payable * _ONE
        self._weight += _ONE
        self._last = (at, payable)
        for window in self._windows:
            window.add(at, payable=payable)

    def permilles(self) -> tuple[int, ...]:
        """Return thousandths in the order of `calibration.BASELINES`; needs at least one probe."""
        payable = self._last is not None and self._last[1]
        average = half_up((self._payable, self._weight), 1_000)
        return (1_000 * payable, average, *(window.permille() for window in self._windows))


class _Window:
    """The share of payable probes of the last `length` milliseconds."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._probes: deque[tuple[int, bool]] = deque()
        self._payable = 0

    def add(self, at: int, *, payable: bool) -> None:
        self._probes.append((at, payable))
        self._payable += payable
        while self._probes[0][0] <= at - self._length:
            self._payable -= self._probes.popleft()[1]

    def permille(self) -> int:
        return half_up((self._payable, len(self._probes)), 1_000)


@cache
def _decay(minutes: int) -> int:
    """Return 2^(-minutes / 24 hours) in fixed point."""
    if minutes >= _WEIGHTLESS_MINUTES:
        return 0
    with localcontext(prec=28):
        return int(_ONE * Decimal(2) ** (Decimal(-minutes) / 1_440))


class Outcomes:
    """The probes of one endpoint as (time in ms UTC, payable), oldest first."""

    def __init__(self, probes: Iterable[tuple[int, bool]]) -> None:
        self._probes = tuple(probes)
        self._times = [at for at, _ in self._probes]

    def find_next(self, at: int, *, within: int) -> bool | None:
        """Return whether the first probe after a time was payable; None without one `within` a
        number of milliseconds.
        """
        place = bisect_right(self._times, at)
        return self._payable(place) if self._is_near(place, at, within) else None

    def find_nearest(self, at: int, *, after: int, within: int) -> bool | None:
        """Return whether the probe nearest to `at` was payable; None if none is at most `within`
        milliseconds away. Only probes later than `after` count.
        """
        place = bisect_left(self._times, at)
        first = bisect_right(self._times, after)
        near = [index for index in (place - 1, place) if first <= index < len(self._times)]
        nearest = min(near, key=lambda index: abs(self._times[index] - at), default=-1)
        return self._payable(nearest) if self._is_near(nearest, at, within) else None

    def _payable(self, place: int) -> bool:
        return self._probes[place][1]

    def _is_near(self, place: int, at: int, within: int) -> bool:
        return 0 <= place < len(self._times) and abs(self._times[place] - at) <= within
