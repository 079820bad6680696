"""The latency histogram: buckets of whole milliseconds that merge exactly.

Rules (docs/methodology.md, *arithmetic*):
- below 128 ms one bucket per millisecond; above, 64 equal buckets per octave;
- the value of a bucket is its lower bound, at most 1/64 below the measurement;
- the p-th percentile is the value of the bucket with the ceil(p * n / 100)-th smallest.

Bucket numbers are dense and monotonic: bucket b < 128 is exactly b ms; above, the octave of `e =
bit_length - 1` has the 64 numbers `(e - 6) * 64 + 64` to `(e - 6) * 64 + 127`. 128 ms is bucket
128, 256 ms is bucket 192, 10 000 ms is bucket 526. A histogram is a tuple of (bucket, count) in
ascending bucket order with counts above zero. Bucket numbers are stored and published, so they must
never change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final

Histogram = tuple[tuple[int, int], ...]


_LINEAR: Final = 128
_PER_OCTAVE: Final = 64
_count: Final = itemgetter(1)


def bucket_of(ms: int) -> int:
    """Return the bucket of a latency in whole milliseconds; negative values count as 0."""
    if ms < _LINEAR:
        return max(ms, 0)
    shift = ms.bit_length() - 7
    return shift * _PER_OCTAVE + (ms >> shift)


def lower_bound(bucket: int) -> int:
    """Return the smallest latency in milliseconds of a bucket: its value."""
    if bucket < _LINEAR:
        return bucket
    shift = bucket // _PER_OCTAVE - 1
    return (_PER_OCTAVE + bucket % _PER_OCTAVE) << shift


def merge(histograms: Sequence[Histogram]) -> Histogram:
    """Return the sum of histograms, bucket by bucket."""
    if len(histograms) == 1:
        return histograms[0]
    counts: dict[int, int] = {}
    for histogram in histograms:
        for bucket, count in histogram:
            counts[bucket] = counts.get(bucket, 0) + count
    return _sort_counts(counts)


def of(latencies: Iterable[int]) -> Histogram:
    """Return the histogram of latencies in whole milliseconds."""
    return _sort_counts(Counter(map(bucket_of, latencies)))


def size(latencies: Histogram) -> int:
    """Return the number of latencies in a histogram."""
    return sum(map(_count, latencies))


def percentile(latencies: Histogram, percent: int) -> int | None:
    """Return the `percent`-th percentile (1..100) in milliseconds; None for an empty histogram."""
    return percentiles(latencies, (percent,))[0]


def percentiles(latencies: Histogram, percents: Sequence[int]) -> list[int | None]:
    """Return several percentiles of a histogram, as `percentile`."""
    ranks = list(accumulate(map(_count, latencies)))
    if not ranks:
        return [None] * len(percents)
    places = (bisect_left(ranks, -(-percent * ranks[-1] // 100)) for percent in percents)
    return [lower_bound(latencies[place][0]) for place in places]


def _sort_counts(counts: Mapping[int, int]) -> Histogram:
    return tuple(sorted(counts.items()))
