from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.probe.rollup import (
    bucket_of,
    histogram_of,
    lower_bound,
    merge_histograms,
    percentile,
    percentiles,
)

LATENCIES = st.integers(0, 200_000)


def test_bucket_numbers_are_dense_and_ascend_with_the_latency() -> None:
    previous = -1
    for ms in range(40_000):
        assert bucket_of(ms) - previous in (0, 1)
        previous = bucket_of(ms)
    assert previous == bucket_of(39_999)


def test_below_128_ms_each_millisecond_has_a_bucket() -> None:
    assert [bucket_of(ms) for ms in range(128)] == list(range(128))


@pytest.mark.parametrize("exponent", range(7, 20))
def test_octave_has_64_equal_buckets(exponent: int) -> None:
    sizes = Counter(map(bucket_of, range(2**exponent, 2 ** (exponent + 1))))
    assert len(sizes) == 64
    assert set(sizes.values()) == {2 ** (exponent - 6)}


@given(LATENCIES)
def test_value_of_a_bucket_is_its_lower_bound(ms: int) -> None:
    bucket = bucket_of(ms)
    assert lower_bound(bucket) <= ms < lower_bound(bucket + 1)
    assert bucket_of(lower_bound(bucket)) == bucket
    assert ms - lower_bound(bucket) <= ms // 64


def test_published_bucket_numbers_never_move() -> None:
    assert {ms: bucket_of(ms) for ms in (0, 127, 128, 130, 256, 1_000, 10_000)} == {
        0: 0, 127: 127, 128: 128, 130: 129, 256: 192, 1_000: 317, 10_000: 526,
    }  # fmt: skip


@given(st.lists(LATENCIES, min_size=1), st.integers(1, 100))
def test_percentile_is_the_bucket_of_the_nearest_rank(values: list[int], percent: int) -> None:
    rank = math.ceil(percent * len(values) / 100)
    assert percentile(histogram_of(values), percent) == lower_bound(
        bucket_of(sorted(values)[rank - 1])
    )


def test_empty_histogram_has_no_percentile() -> None:
    assert percentile((), 50) is None


@given(st.lists(LATENCIES), st.integers(1, 100))
def test_percentiles_are_computed_together(values: list[int], percent: int) -> None:
    whole = histogram_of(values)
    assert percentiles(whole, (percent, 50)) == [percentile(whole, percent), percentile(whole, 50)]


@given(st.lists(LATENCIES), st.lists(LATENCIES))
def test_merged_histograms_equal_the_histogram_of_all(a: list[int], b: list[int]) -> None:
    whole = a + b
    random.Random(len(whole)).shuffle(whole)
    assert merge_histograms((histogram_of(a), histogram_of(b))) == histogram_of(whole)
