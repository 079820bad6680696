"""Wilson bounds in integers are those of the formula in fractions."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.rounding import bounds

Z = Fraction(196, 100)
SHARES = st.fractions(0, 1, max_denominator=10**9)
EFFECTIVE = st.fractions(Fraction(1, 100), 10_000, max_denominator=10**6)


def by_the_formula(share: Fraction, n: Fraction, z: Fraction) -> tuple[Fraction, Fraction]:
    """(p + z^2/2n -+ z * sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)."""
    squared = share * (1 - share) / n + z * z / (4 * n * n)
    root = Fraction(isqrt(squared.numerator * 10**12 // squared.denominator), 10**6)
    middle, whole = share + z * z / (2 * n), 1 + z * z / n
    low, high = (middle - z * root) / whole, (middle + z * root) / whole
    return max(min(low, share), Fraction(0)), min(max(high, share), Fraction(1))


def ends(
    share: Fraction, effective: Fraction, *, z: Fraction = Z, of: int = 1, times: int = 1
) -> tuple[Fraction, Fraction]:
    """The bounds, of ratios that have `times` as a common divisor."""
    (a, b), (c, d) = share.as_integer_ratio(), effective.as_integer_ratio()
    low, high = bounds((a * times, b * times), (c * times, d * times), z=z, of=of)
    return Fraction(*low), Fraction(*high)


@given(SHARES, EFFECTIVE, st.sampled_from([Z, Fraction(3)]), st.integers(1, 10**9))
def test_bounds_are_those_of_the_formula(
    share: Fraction, effective: Fraction, z: Fraction, times: int
) -> None:
    assert ends(share, effective, z=z, times=times) == by_the_formula(share, effective, z)


@given(share=SHARES, effective=EFFECTIVE)
def test_bounds_of_a_percentage_are_a_hundred_times_those_of_the_share(
    share: Fraction, effective: Fraction
) -> None:
    low, high = ends(share, effective)
    assert ends(100 * share, effective, of=100) == (100 * low, 100 * high)
