"""Exact numbers: how they are compared, and how they become published integers, half up."""

from __future__ import annotations

Ratio = tuple[int, int]
"""An exact number: a part and a whole > 0. They are not reduced, because that is most of what a
Fraction costs, and neither comparing nor rounding needs it. Two of them are compared by `is_below`,
never by `<` or `==`.
"""


def is_below(one: Ratio, other: Ratio) -> bool:
    """Whether one < other."""
    return one[0] * other[1] < other[0] * one[1]


def smaller(one: Ratio, other: Ratio) -> Ratio:
    """The smaller of two."""
    return other if is_below(other, one) else one


def larger(one: Ratio, other: Ratio) -> Ratio:
    """The larger of two."""
    return other if is_below(one, other) else one


def half_up(value: Ratio, scale: int = 1) -> int:
    """`value * scale` as the nearest integer, halves upwards: tenths with scale 10."""
    part, whole = value
    return (2 * part * scale + whole) // (2 * whole)
