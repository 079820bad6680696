"""Wilson bounds in integers are those of the formula in fractions."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.wilson import bounds

SHARES = st.fractions(0, 1, max_denominator=10**9)
EFFECTIVE = st.fractions(Fraction(1, 100), 10_000, max_denominator=10**6)


def by_the_formula(share: Fraction, n: Fraction, z: Fraction) -> tuple[Fraction, Fraction]:
    """(p + z^2/2n -+ z * sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)."""
    squared = share * (1 - share) / n + z * z / (4 * n * n)
    root = Fraction(isqrt(squared.numerator * 10**12 // squared.denominator), 10**6)
    middle, whole = share + z * z / (2 * n), 1 + z * z / n
    low, high = (middle - z * root) / whole, (middle + z * root) / whole
    return max(min(low, share), Fraction(0)), min(max(high, share), Fraction(1))


@given(share=SHARES, effective=EFFECTIVE, z=st.sampled_from([Fraction(196, 100), Fraction(3)]))
def test_bounds_are_those_of_the_formula(share: Fraction, effective: Fraction, z: Fraction) -> None:
    assert bounds(share, effective, z=z) == by_the_formula(share, effective, z)


@given(share=SHARES, effective=EFFECTIVE)
def test_bounds_of_a_percentage_are_a_hundred_times_those_of_the_share(
    share: Fraction, effective: Fraction
) -> None:
    low, high = bounds(share, effective, z=Fraction(196, 100))
    percent = bounds(100 * share, effective, z=Fraction(196, 100), of=100)
    assert percent == (100 * low, 100 * high)
