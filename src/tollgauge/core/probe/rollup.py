"""Rollups: the sums of an endpoint's probes over one UTC day or a part of it.

Rollups merge exactly: counts and sums add, the latency histogram adds bucket by bucket, the
half-hour slots of a day are a bitmap. Thirty of them give the exact 30-day statistics
(docs/methodology.md, *arithmetic*). Probes that confirm a failure are in no count; they count in
the spans, which depend on the probes before and after (core/probe/probe).

Rules of the latency histogram, a tuple of (bucket, count) in ascending order of buckets, with
counts above zero:
- below 128 ms one bucket per millisecond; above, 64 equal buckets per octave;
- the value of a bucket is its lower bound, at most 1/64 below the measurement;
- the p-th percentile is the value of the bucket with the ceil(p * n / 100)-th smallest;
- bucket numbers are dense and monotonic: bucket b < 128 is exactly b ms; above, the octave of `e =
  bit_length - 1` has the 64 numbers `(e - 6) * 64 + 64` to `(e - 6) * 64 + 127`. 128 ms is bucket
  128, 256 ms is bucket 192, 10 000 ms is bucket 526. They are stored and published, so they must
  never change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Any, Final, Self

import msgspec
import orjson

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import NO_SPANS, AnyProbe, Spans, spans_sum

SLOT_MS: Final = 30 * MINUTE_MS
Reasons = tuple[tuple[str, int], ...]
"""Numbers of unscored probes by reason, sorted by reason."""
Histogram = tuple[tuple[int, int], ...]
_LINEAR: Final = 128
_PER_OCTAVE: Final = 64
_count: Final = itemgetter(1)
_HISTOGRAM: Final = msgspec.json.Decoder(Histogram)


def encode_histogram(latencies: Iterable[Sequence[int]]) -> msgspec.Raw:
    """Return (bucket, count) pairs in any order as the `latency` of a rollup."""
    return msgspec.Raw(orjson.dumps(sorted(latencies)))


NO_LATENCIES: Final = encode_histogram(())


class RollupError(TollgaugeError):
    """A probe does not belong to the day of a rollup."""


class Rollup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One day's sums. Its JSON form with sorted keys is that of evidence documents.

    Attributes:
        day: UTC days since the epoch.
        excluded: Unscored probes by reason.
        slots: Bit i is set if a scored probe fell into the i-th half hour of the day.
        compliance: Sum of the compliance (0..100) of scored probes.
        latency: JSON of `histogram`, which a score only needs for the sum of all days. Decoding it
            with each day took two thirds of the time of decoding the days.
        latency_sum: Exact sum of their milliseconds.
        blocked: Scored probes that a bot wall refused.
    """

    day: int
    probes: int = 0
    scored: int = 0
    up: int = 0
    compliant: int = 0
    payable: int = 0
    compliance: int = 0
    slots: int = 0
    latency_sum: int = 0
    latency: msgspec.Raw = NO_LATENCIES
    excluded: Reasons = ()
    spans: Spans = NO_SPANS
    blocked: int = 0

    @property
    def histogram(self) -> Histogram:
        """Pairs (bucket, count) in ascending order, of scored probes that were up."""
        return _HISTOGRAM.decode(self.latency)


class Days(tuple[Rollup, ...]):  # noqa: SLOT001 - Python allows none for attributes
    """Rollups of several days, and their sum."""

    totals: Rollup

    def __new__(cls, days: Iterable[Rollup], *, parts: Sequence[Rollup] = ()) -> Self:
        """`parts` are fewer rollups with the same sum. Default: the days."""
        created = super().__new__(cls, days)
        created.totals = merge(parts or created)
        return created


def rollup(day: int, results: Iterable[AnyProbe], *, spans: Spans = NO_SPANS) -> Rollup:
    """Return the sums of a day's probes, in any order, with their spans. Raises RollupError for a
    probe of another day.
    """
    begin = day * DAY_MS
    scored = up = compliant = payable = compliance = slots = blocked = 0
    latencies: list[int] = []
    reasons: dict[str, int] = {}
    for result in results:
        if result.confirms:
            continue
        if not begin <= result.at < begin + DAY_MS:
            raise RollupError(f"A probe at {result.at} ms does not belong to day {day}.")
        if not result.scored:
            reason = result.reason or result.attribution.value
            reasons[reason] = reasons.get(reason, 0) + 1
            continue
        scored += 1
        up += result.up
        compliant += result.compliant
        payable += result.payable
        compliance += result.compliance
        slots |= 1 << (result.at - begin) // SLOT_MS
        blocked += result.outcome is Outcome.BLOCKED
        if (latency := result.latency_ms) is not None:
            latencies.append(latency)
    return Rollup(
        day=day,
        probes=scored + sum(reasons.values()),
        scored=scored,
        up=up,
        compliant=compliant,
        payable=payable,
        compliance=compliance,
        slots=slots,
        latency_sum=sum(latencies),
        latency=encode_histogram(histogram_of(latencies)),
        excluded=tuple(sorted(reasons.items())),
        spans=spans,
        blocked=blocked,
    )


def merge(parts: Sequence[Rollup]) -> Rollup:
    """Return the sums of parts without common probes.

    The parts are of one day, or of several: then `day` and `slots` have no meaning.
    """
    excluded: Counter[str] = Counter()
    slots = 0
    for part in parts:
        if part.excluded:  # few parts have any, and an update takes a microsecond
            excluded.update(dict(part.excluded))
        slots |= part.slots
    return Rollup(
        day=parts[0].day if parts else 0,
        probes=sum([part.probes for part in parts]),
        scored=sum([part.scored for part in parts]),
        up=sum([part.up for part in parts]),
        compliant=sum([part.compliant for part in parts]),
        payable=sum([part.payable for part in parts]),
        compliance=sum([part.compliance for part in parts]),
        slots=slots,
        latency_sum=sum([part.latency_sum for part in parts]),
        latency=encode_histogram(merge_histograms([part.histogram for part in parts])),
        excluded=tuple(sorted(excluded.items())),
        spans=spans_sum([part.spans for part in parts]),
        blocked=sum([part.blocked for part in parts]),
    )


_DAYS: Final = msgspec.json.Decoder(tuple[Rollup, ...])
_CANONICAL: Final = msgspec.json.Encoder(order="sorted")


def days_to_json(days: Sequence[Rollup]) -> bytes:
    """Return the days of an evidence document as canonical JSON, oldest first."""
    repeated = len({one.day for one in days}) < len(days)  # only in documents of others
    ordered = sorted(days, key=_day_and_text if repeated else attrgetter("day"))
    return _CANONICAL.encode(ordered)


def _day_and_text(day: Rollup) -> tuple[int, bytes]:
    return day.day, _CANONICAL.encode(day)


def days_from_document(documents: Iterable[Mapping[str, Any]]) -> Days:
    """Return the days of an evidence document, with sorted arrays."""
    ordered = [
        {**day, "latency": sorted(day["latency"]), "excluded": sorted(day["excluded"])}
        for day in documents
    ]
    return Days(_DAYS.decode(orjson.dumps(ordered)))


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


def merge_histograms(histograms: Sequence[Histogram]) -> Histogram:
    """Return the sum of histograms, bucket by bucket."""
    if len(histograms) == 1:
        return histograms[0]
    counts: dict[int, int] = {}
    for histogram in histograms:
        for bucket, count in histogram:
            counts[bucket] = counts.get(bucket, 0) + count
    return _sort_counts(counts)


def histogram_of(latencies: Iterable[int]) -> Histogram:
    """Return the histogram of latencies in whole milliseconds."""
    return _sort_counts(Counter(map(bucket_of, latencies)))


def count_latencies(latencies: Histogram) -> int:
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
