"""Outcomes: whether an endpoint was payable at its probes after an instant."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class Outcomes:
    """The probes of one endpoint as (instant in ms UTC, payable), oldest first."""

    def __init__(self, probes: Iterable[tuple[int, bool]]) -> None:
        self._probes = tuple(probes)
        self._instants = [at for at, _ in self._probes]

    def following(self, at: int, *, within: int) -> bool | None:
        """Whether the first probe after an instant was payable; None if none came `within` so many
        milliseconds.
        """
        place = bisect_right(self._instants, at)
        return self._payable(place) if self._is_near(place, at, within) else None

    def near(self, at: int, *, after: int, within: int) -> bool | None:
        """Whether the probe nearest to `at` was payable, of those after another instant; None if
        none is at most `within` milliseconds away.
        """
        place = bisect_left(self._instants, at)
        first = bisect_right(self._instants, after)
        near = [index for index in (place - 1, place) if first <= index < len(self._instants)]
        nearest = min(near, key=lambda index: abs(self._instants[index] - at), default=-1)
        return self._payable(nearest) if self._is_near(nearest, at, within) else None

    def _payable(self, place: int) -> bool:
        return self._probes[place][1]

    def _is_near(self, place: int, at: int, within: int) -> bool:
        return 0 <= place < len(self._instants) and abs(self._instants[place] - at) <= within
