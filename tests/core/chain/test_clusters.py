"""Which payTo addresses are one seller."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.chain.clusters import Clusters

POPULATION = st.lists(st.sets(st.integers(0, 12), max_size=9).map(sorted), min_size=2, max_size=9)


def test_sellers_that_send_to_each_other_straight_or_in_a_circle_are_one() -> None:
    clusters = Clusters(7)
    clusters.join_circles({0: [1], 1: [0, 2], 3: [4], 4: [5], 5: [3, 6]})
    assert [clusters.of(number) for number in range(7)] == [0, 0, 2, 3, 3, 3, 6]


def test_a_gift_joins_nobody() -> None:
    clusters = Clusters(9)
    clusters.join_circles({0: range(1, 9)})
    assert [clusters.of(number) for number in range(9)] == list(range(9))


@given(pairs=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=24))
def test_the_circles_are_those_who_reach_each_other(pairs: set[tuple[int, int]]) -> None:
    clusters = Clusters(8)
    clusters.join_circles({one: [b for a, b in pairs if a == one] for one in range(8)})
    reached = {(number, number) for number in range(8)} | pairs
    for middle, one, other in product(range(8), repeat=3):
        if (one, middle) in reached and (middle, other) in reached:
            reached.add((one, other))
    for one, other in product(range(8), repeat=2):
        mutual = (one, other) in reached and (other, one) in reached
        assert (clusters.of(one) == clusters.of(other)) is mutual


def test_sellers_with_fewer_than_five_payers_are_not_joined_by_them() -> None:
    clusters = Clusters(4)
    clusters.join_alike([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 6]])
    assert [clusters.of(number) for number in range(4)] == [0, 1, 2, 2]


@given(payers=POPULATION)
def test_the_clusters_of_payers_are_those_of_the_definition(payers: list[list[int]]) -> None:
    clusters, expected = Clusters(len(payers)), Clusters(len(payers))
    clusters.join_alike(payers)
    for one, other in combinations(range(len(payers)), 2):
        both, either = {*payers[one]} & {*payers[other]}, {*payers[one]} | {*payers[other]}
        enough = min(len(payers[one]), len(payers[other])) >= 5
        if enough and 2 * len(both) >= len(either):
            expected.join(one, other)
    numbers = range(len(payers))
    assert [clusters.of(number) for number in numbers] == [
        expected.of(number) for number in numbers
    ]
