"""The benchmark of alternatives on a small catalogue."""

from __future__ import annotations

import pytest

import bench
from bench import similar
from bench.catalogue import catalogue


def test_catalogue_is_deterministic_and_dominated_by_few_hosts() -> None:
    rows = list(catalogue(2_000))
    assert rows == list(catalogue(2_000))
    assert len({row.endpoint.id for row in rows}) == 2_000
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row.endpoint.host] = sizes.get(row.endpoint.host, 0) + 1
    assert sum(sorted(sizes.values())[-20:]) > 1_000


@pytest.mark.parametrize("of_few_words", [False, True])
def test_brute_force_finds_the_same_alternatives(of_few_words: bool) -> None:
    measured = similar.measure(tuple(catalogue(1_500, of_few_words=of_few_words)))
    assert measured["same_answers"]
    assert measured["with_alternatives"] > 50
    assert measured["faster_than_brute_force"] > 0


def test_unknown_measurement_is_rejected_with_available_names() -> None:
    with pytest.raises(bench.UnknownBench) as caught:
        bench.run("nothing")
    assert "similar" in str(caught.value.hint)
