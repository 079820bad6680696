"""Exact numbers that are not reduced compare and round as fractions do."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.rounding import Ratio, half_up, is_below

PARTS = st.integers(-(10**6), 10**30)
RATIOS = st.tuples(PARTS, st.integers(1, 10**30)) | st.tuples(
    st.integers(0, 3), st.integers(1, 3)
).flatmap(lambda ratio: st.integers(1, 10**9).map(lambda n: (n * ratio[0], n * ratio[1])))
"""Many of them are equal, with a common divisor."""


@given(RATIOS, RATIOS)
def test_two_ratios_compare_as_fractions(one: Ratio, other: Ratio) -> None:
    a, b = Fraction(*one), Fraction(*other)
    assert is_below(one, other) is (a < b)


@given(RATIOS, st.sampled_from([1, 10, 1_000]))
def test_ratio_is_rounded_to_the_nearest_and_halves_upwards(ratio: Ratio, scale: int) -> None:
    assert half_up(ratio, scale) == math.floor(scale * Fraction(*ratio) + Fraction(1, 2))
