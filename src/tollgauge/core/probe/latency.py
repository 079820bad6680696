"""The latency histogram: buckets of whole milliseconds that merge exactly.

Rules (docs/methodology.md, *arithmetic*):
- below 128 ms one bucket a millisecond; above, 64 equal buckets an octave;
- the value of a bucket is its lower bound, at most 1/64 below what was measured;
- the p-th percentile is the value of the bucket that holds the ceil(p * n / 100)-th smallest.

Bucket numbers are dense and monotonic: bucket b < 128 holds exactly b ms; from there on the
octave of `e = bit_length - 1` takes the 64 numbers `(e - 6) * 64 + 64` to `(e - 6) * 64 + 127`.
128 ms is bucket 128, 256 ms is bucket 192, 10 000 ms is bucket 526. A histogram is a tuple of
(bucket, count) in ascending bucket order with counts above zero. No bucket is ever renumbered:
the numbers are stored and published.
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
    """The bucket of a latency in whole milliseconds; a negative one counts as 0."""
    if ms < _LINEAR:
        return max(ms, 0)
    shift = ms.bit_length() - 7
    return shift * _PER_OCTAVE + (ms >> shift)


def lower_bound(bucket: int) -> int:
    """The least latency in milliseconds that a bucket holds: its value."""
    if bucket < _LINEAR:
        return bucket
    shift = bucket // _PER_OCTAVE - 1
    return (_PER_OCTAVE + bucket % _PER_OCTAVE) << shift


def merge(histograms: Sequence[Histogram]) -> Histogram:
    """The sum of histograms, bucket by bucket."""
    if len(histograms) == 1:
        return histograms[0]
    counts: dict[int, int] = {}
    for histogram in histograms:
        for bucket, count in histogram:
            counts[bucket] = counts.get(bucket, 0) + count
    return _sorted(counts)


def of(latencies: Iterable[int]) -> Histogram:
    """The histogram of latencies in whole milliseconds."""
    return _sorted(Counter(map(bucket_of, latencies)))


def size(latencies: Histogram) -> int:
    """How many latencies a histogram holds."""
    return sum(map(_count, latencies))


def percentile(latencies: Histogram, percent: int) -> int | None:
    """The `percent`-th percentile (1..100) in milliseconds, None of an empty histogram."""
    return percentiles((latencies,), (percent,))[0]


def percentiles(parts: Sequence[Histogram], percents: Sequence[int]) -> list[int | None]:
    """Several percentiles of what histograms hold together, as `percentile`."""
    together = merge(parts)
    ranks = list(accumulate(map(_count, together)))
    if not ranks:
        return [None] * len(percents)
    places = (bisect_left(ranks, -(-percent * ranks[-1] // 100)) for percent in percents)
    return [lower_bound(together[place][0]) for place in places]


def _sorted(counts: Mapping[int, int]) -> Histogram:
    return tuple(sorted(counts.items()))
