"""The measurement of alternatives, on a small catalogue."""

from __future__ import annotations

import pytest

import bench
from bench import similar
from bench.catalogue import catalogue


def test_a_catalogue_is_the_same_every_time_and_a_few_hosts_list_most_of_it() -> None:
    rows = list(catalogue(2_000))
    assert rows == list(catalogue(2_000))
    assert len({row.endpoint.id for row in rows}) == 2_000
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row.endpoint.host] = sizes.get(row.endpoint.host, 0) + 1
    assert sum(sorted(sizes.values())[-20:]) > 1_000


@pytest.mark.parametrize("of_few_words", [False, True])
def test_brute_force_finds_the_same_and_someone_has_alternatives(of_few_words: bool) -> None:
    measured = similar.measure(tuple(catalogue(1_500, of_few_words=of_few_words)))
    assert measured["same_answers"]
    assert measured["with_alternatives"] > 50
    assert measured["faster_than_brute_force"] > 0


def test_a_measurement_that_is_not_there_is_refused_with_the_names_that_are() -> None:
    with pytest.raises(bench.UnknownBench) as caught:
        bench.run("nothing")
    assert "similar" in str(caught.value.hint)
