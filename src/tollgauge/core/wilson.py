"""Wilson: how far a measured share may be off, given how often it was measured.

Rules (docs/methodology.md): z = 1.96, n_eff = n / 3 because neighbouring probes agree more
than independent ones would; square roots are `isqrt(floor(x * 10^12)) / 10^6`, so the bounds are
rational and the same on every machine. The root falls short by less than 10^-6; the bounds are
therefore never put on the wrong side of the share itself, nor outside 0..1.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt


def bounds(share: Fraction, effective: Fraction, *, z: Fraction) -> tuple[Fraction, Fraction]:
    """Lower and upper Wilson bound of a share (0..1) seen in `effective` > 0 independent
    observations.

    (p + z^2/2n -+ z * sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with n = `effective`.
    """
    z2 = z * z
    middle = share + z2 / (2 * effective)
    spread = z * root(share * (1 - share) / effective + z2 / (4 * effective * effective))
    whole = 1 + z2 / effective
    low, high = (middle - spread) / whole, (middle + spread) / whole
    return max(min(low, share), Fraction(0)), min(max(high, share), Fraction(1))


def root(x: Fraction) -> Fraction:
    """The square root of a fraction >= 0, cut to a millionth."""
    return Fraction(isqrt(x.numerator * 10**12 // x.denominator), 10**6)
