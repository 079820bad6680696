"""Exact arithmetic: ratios of integers, rounding half up, and Wilson bounds of a measured share.

Square roots are `isqrt(floor(x * 10^12)) / 10^6`, so bounds are rational and the same on every
machine. Such a root is too small by less than 10^-6, so the bounds are clamped to their side of the
share, and to 0..1.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import Final

Ratio = tuple[int, int]
"""An exact number: a part and a whole > 0. Not reduced, because reduction is most of the cost of a
Fraction, and neither comparison nor rounding needs it. Compare two ratios with `is_below`, never
with `<` or `==`.
"""
_MILLION: Final = 10**6
_TRILLION: Final = 10**12


def is_below(one: Ratio, other: Ratio) -> bool:
    """Return whether one < other."""
    return one[0] * other[1] < other[0] * one[1]


def half_up(value: Ratio, scale: int = 1) -> int:
    """Return `value * scale` as the nearest integer, halves upwards: tenths with scale 10."""
    part, whole = value
    return (2 * part * scale + whole) // (2 * whole)


def bounds(share: Ratio, effective: Ratio, *, z: Fraction, of: int = 1) -> tuple[Ratio, Ratio]:
    """Return the lower and upper Wilson bound of a share.

    `effective` > 0 is the number of independent observations. The result ranges from 0 to `of`, as
    does the share: percentages with 100.

    (p + z^2/2n -+ z * sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with n = `effective`.
    """
    # With p = a/b, n = c/d and z = e/f; n and z^2 have d * f^2 as their whole.
    (a, part), (c, d), (e, f) = share, effective, z.as_integer_ratio()
    b, n, zz = of * part, f * f * c, e * e * d
    per_share = 2 * _MILLION * (n + zz)
    squared = (4 * a * (b - a) * n + b * b * zz) * d
    spread = 2 * b * c * e * f * root(squared, 4 * b * b * n * c)
    middle, known, whole = (2 * a * n + b * zz) * _MILLION, a * per_share, part * per_share
    # The root is rounded down, so neither bound leaves 0..1.
    return (min(middle - spread, known), whole), (max(middle + spread, known), whole)


def root(part: int, whole: int) -> int:
    """Return the square root of the fraction `part / whole` >= 0 in millionths, rounded down."""
    return isqrt(part * _TRILLION // whole)
