"""Rounding: exact fractions become published integers in one way, half up."""

from __future__ import annotations

from fractions import Fraction


def half_up(value: Fraction | int, scale: int = 1) -> int:
    """`value * scale` as the nearest integer, halves upwards: tenths with scale 10."""
    exact = Fraction(value) * scale
    return (2 * exact.numerator + exact.denominator) // (2 * exact.denominator)
