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

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import Final, NamedTuple

Histogram = tuple[tuple[int, int], ...]


class Columns(NamedTuple):
    """A histogram as its `buckets` in ascending order and the count of each, which is how one with
    many buckets is kept: pairs would take longer to make than to look at.
    """

    buckets: Sequence[int]
    counts: Sequence[int]

    @property
    def pairs(self) -> Histogram:
        """The histogram as it is published."""
        return tuple(zip(self.buckets, self.counts, strict=True))


NO_LATENCIES: Final = Columns((), ())

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
    return from_counts(counts)


def with_latencies(histogram: Histogram, latencies: Iterable[int]) -> Histogram:
    """A histogram with more latencies, in whole milliseconds."""
    rows = list(histogram)
    for latency in latencies:
        bucket = bucket_of(latency)
        place = bisect_left(rows, (bucket,))
        if place < len(rows) and rows[place][0] == bucket:
            rows[place] = bucket, rows[place][1] + 1
        else:
            rows.insert(place, (bucket, 1))
    return tuple(rows)


def plus(columns: Columns, added: Iterable[tuple[int, int]]) -> Columns:
    """A histogram with (bucket, count) added to it; counts below zero take away."""
    counts = dict(zip(columns.buckets, columns.counts, strict=True))
    for bucket, count in added:
        counts[bucket] = counts.get(bucket, 0) + count
    buckets = sorted(bucket for bucket, count in counts.items() if count)
    return Columns(buckets, list(map(counts.__getitem__, buckets)))


def from_counts(counts: Mapping[int, int]) -> Histogram:
    """The histogram of a mapping from bucket to count."""
    if min(counts.values(), default=1) > 0:
        return tuple(sorted(counts.items()))
    return tuple(sorted(item for item in counts.items() if item[1] > 0))


def size(latencies: Histogram) -> int:
    """How many latencies a histogram holds."""
    return sum(map(_count, latencies))


def percentile(latencies: Histogram, percent: int) -> int | None:
    """The `percent`-th percentile (1..100) in milliseconds, None of an empty histogram."""
    return percentiles((latencies,), (percent,))[0]


def percentiles(
    parts: Iterable[Histogram], percents: Sequence[int], columns: Columns = NO_LATENCIES
) -> list[int | None]:
    """Several percentiles of what histograms hold together, as `percentile`."""
    rows = sorted(chain.from_iterable(parts))  # a bucket may be in several rows
    row_ranks: list[int] = list(accumulate(map(_count, rows), initial=0))
    ranks = list(accumulate(columns.counts, initial=0))
    count = row_ranks[-1] + ranks[-1]

    def rank_at(place: int) -> int:
        """How many latencies are at most those of a row."""
        return row_ranks[place + 1] + ranks[bisect_right(columns.buckets, rows[place][0])]

    def bucket_with(rank: int) -> int:
        """The bucket of the rank-th latency: that of the first row that reaches the rank, unless a
        bucket of the columns before it does.
        """
        place = bisect_left(range(len(rows)), rank, key=rank_at)
        own = bisect_left(ranks, rank - row_ranks[place]) - 1
        of_row = [bucket for bucket, _ in rows[place : place + 1]]
        return min([*of_row, *columns.buckets[own : own + 1]])

    if not count:
        return [None] * len(percents)
    return [lower_bound(bucket_with(-(-percent * count // 100))) for percent in percents]
