"""Rounding: exact fractions become published integers in one way, half up."""

from __future__ import annotations

from fractions import Fraction


def half_up(value: Fraction | int, scale: int = 1) -> int:
    """`value * scale` as the nearest integer, halves upwards: tenths with scale 10."""
    return ratio_half_up(value.numerator, value.denominator, scale)


def ratio_half_up(part: int, whole: int, scale: int = 1) -> int:
    """`part / whole * scale` as the nearest integer, halves upwards; `whole` > 0."""
    return (2 * part * scale + whole) // (2 * whole)
