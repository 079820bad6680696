"""Wilson: how far a measured share may be off, given how often it was measured.

Rules (docs/methodology.md): z = 1.96, n_eff = n / 3 because neighbouring probes agree more
than independent ones would; square roots are `isqrt(floor(x * 10^12)) / 10^6`, so the bounds are
rational and the same on every machine. Such a root is too small by less than 10^-6, so the bounds
are limited to their own side of the share, and to 0..1.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import Final

_MILLION: Final = 10**6


def bounds(
    share: Fraction, effective: Fraction, *, z: Fraction, of: int = 1
) -> tuple[Fraction, Fraction]:
    """Lower and upper Wilson bound of a share seen in `effective` > 0 independent observations, all
    three from 0 to `of`: percentages with 100.

    (p + z^2/2n -+ z * sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with n = `effective`.
    """
    # With p = a/b, n = c/d and z = e/f, all over one denominator: fractions that are reduced after
    # each step take ten times as long.
    a, b = share.numerator, share.denominator * of
    c, d = effective.numerator, effective.denominator
    e, f = z.numerator, z.denominator
    middle = 2 * a * f * f * c + b * e * e * d
    squared = (4 * a * (b - a) * f * f * c + b * b * e * e * d) * d
    spread = 2 * b * c * e * f * root(squared, 4 * b * b * f * f * c * c)
    per_share = 2 * _MILLION * (f * f * c + e * e * d)
    low, high = middle * _MILLION - spread, middle * _MILLION + spread
    known, whole = a * per_share, b * per_share
    return (
        Fraction(of * max(min(low, known), 0), whole),
        Fraction(of * min(max(high, known), whole), whole),
    )


def root(part: int, whole: int) -> int:
    """The square root of the fraction `part / whole` >= 0 in millionths, rounded down."""
    return isqrt(part * _MILLION**2 // whole)
