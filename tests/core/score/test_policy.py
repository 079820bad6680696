"""The tables and weights of a policy, read with numbers that are not reduced."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.rounding import Ratio
from tollgauge.core.score.policy import POLICY, Table, interpolate, weighted_sum

TABLES = [POLICY.latency, POLICY.age, POLICY.payers]
TIMES = st.integers(1, 10**9)
SUBSCORES = st.tuples(st.integers(0, 10**6), st.integers(1, 10**4), TIMES).map(
    lambda row: (row[0] * row[2], row[1] * row[2])
)


def by_the_formula(table: Table, x: Fraction) -> Fraction:
    """The straight line between the points around x, flat outside."""
    if x <= table[0][0]:
        return Fraction(table[0][1])
    for (left, y_left), (right, y_right) in pairwise(table):
        if x <= right:
            return y_left + (x - left) / (right - left) * (y_right - y_left)
    return Fraction(table[-1][1])


@given(st.sampled_from(TABLES), st.data(), TIMES)
def test_table_is_linear_between_its_points(table: Table, data: st.DataObject, times: int) -> None:
    on_a_point = st.sampled_from([Fraction(x) for x, _ in table])
    x = data.draw(on_a_point | st.fractions(-1, table[-1][0] + 1))
    part, whole = x.as_integer_ratio()
    read = interpolate(table, (part * times, whole * times))
    assert Fraction(*read) == by_the_formula(table, x)


def test_nothing_known_is_worth_nothing() -> None:
    assert [interpolate(table, (0, 1))[0] for table in (POLICY.payers, POLICY.age)] == [0, 0]


def test_weights_add_up_to_a_hundred() -> None:
    assert sum(POLICY.weights.values()) == 100


@pytest.mark.parametrize(
    ("tenths", "grade"),
    [
        *((1_000, "A"), (810, "A"), (809, "B"), (650, "B"), (649, "C")),
        *((500, "C"), (499, "D"), (350, "D"), (349, "F"), (0, "F")),
    ],
)
def test_grades_change_at_their_thresholds(tenths: int, grade: str) -> None:
    assert POLICY.grade(tenths) == grade


@given(st.lists(SUBSCORES, min_size=6, max_size=6), st.booleans())
def test_subscores_are_added_by_their_weights(drawn: list[Ratio], alike: bool) -> None:
    """Whether they are over the same whole or not."""
    if alike:
        drawn = [(part, drawn[0][1]) for part, _ in drawn[:3]] + [
            (part, 1) for part, _ in drawn[3:]
        ]
    subscores = dict(zip(POLICY.weights, drawn, strict=True))
    expected = sum(POLICY.weights[name] * Fraction(*points) for name, points in subscores.items())
    assert Fraction(*weighted_sum(POLICY, subscores)) == expected
