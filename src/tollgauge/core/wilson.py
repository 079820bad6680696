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

from tollgauge.core.rounding import Ratio

_MILLION: Final = 10**6


def bounds(share: Ratio, effective: Ratio, *, z: Fraction, of: int = 1) -> tuple[Ratio, Ratio]:
    """Lower and upper Wilson bound of a share seen in `effective` > 0 independent observations, all
    three from 0 to `of`: percentages with 100.

    (p + z^2/2n -+ z * sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with n = `effective`.
    """
    # With p = a/b, n = c/d and z = e/f; n and z^2 have d * f^2 as their whole.
    (a, b), (c, d), (e, f) = share, effective, z.as_integer_ratio()
    b *= of
    n, zz = f * f * c, e * e * d
    middle = (2 * a * n + b * zz) * _MILLION
    squared = (4 * a * (b - a) * n + b * b * zz) * d
    spread = 2 * b * c * e * f * root(squared, 4 * b * b * n * c)
    per_share = 2 * _MILLION * (n + zz)
    known, whole = a * per_share, b * per_share
    low, high = max(min(middle - spread, known), 0), min(max(middle + spread, known), whole)
    return (of * low, whole), (of * high, whole)


def root(part: int, whole: int) -> int:
    """The square root of the fraction `part / whole` >= 0 in millionths, rounded down."""
    return isqrt(part * _MILLION**2 // whole)
