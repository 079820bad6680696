"""Rollup: what one UTC day (or a part of one) of an endpoint's probes adds up to.

Rollups merge exactly: counts and sums add, the latency histogram adds bucket by bucket, the
half-hour slots of a day are a bitmap. Thirty of them give the exact 30-day statistics
(docs/methodology.md, *arithmetic*). Probes that confirm a failure are in no count; what they say is
in the spans, which whoever knows the probes before and after adds (core/spans).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import neg
from typing import Any, Final

from tollgauge.core import latency as latency_histogram
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.latency import NO_LATENCIES, Columns, Histogram
from tollgauge.core.probe import ProbeResult
from tollgauge.core.record import record
from tollgauge.core.spans import NO_SPANS, Spans, spans_sum
from tollgauge.core.units import DAY_MS, MINUTE_MS

SLOT_MS: Final = 30 * MINUTE_MS
Reasons = tuple[tuple[str, int], ...]
"""How many probes were not scored by reason, sorted by reason."""


class RollupError(TollgaugeError):
    """Probes or rollups of different days that were to become one day's."""


@record(frozen=True, slots=True, kw_only=True)
class Rollup:
    """One day's sums. `day` counts UTC days since the epoch.

    `excluded` counts unscored probes by reason. `slots` has bit i set when a
    scored probe fell into the i-th half hour of the day. `compliance` sums the per-probe
    subscores (0..100) over scored probes. `latency` is (bucket, count) in ascending bucket order
    over up, scored probes, `latency_sum` the exact sum of their milliseconds.
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
    latency: Histogram = ()
    excluded: Reasons = ()
    spans: Spans = NO_SPANS


@record(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums of many days. `slots` is the number of distinct half hours with a scored probe,
    `latency_count` the number of latencies in the histogram; the rest is as in `Rollup`.
    """

    probes: int = 0
    scored: int = 0
    up: int = 0
    compliant: int = 0
    payable: int = 0
    compliance: int = 0
    slots: int = 0
    latency_count: int = 0
    latency_sum: int = 0
    latency: Columns = NO_LATENCIES
    excluded: Reasons = ()
    spans: Spans = NO_SPANS


Sample = tuple[int, str | None, bool, int | None, bool, bool, int]
"""What a probe adds to its day: (at, excluded, up, latency_ms, compliant, payable, compliance).
`excluded` says why it is not scored, None where it is; `latency_ms` is as in `ProbeResult`.
"""


def sample(result: ProbeResult) -> Sample:
    """What a result adds to its day."""
    return (
        result.at,
        None if result.scored else result.reason or result.attribution.value,
        result.up,
        result.latency_ms,
        result.compliant,
        result.payable,
        result.compliance,
    )


def rollup(day: int, results: Iterable[ProbeResult]) -> Rollup:
    """The sums of a day's probes, in any order, without their spans. Raises RollupError for a
    probe of another day.
    """
    samples = (sample(result) for result in results if not result.confirms)
    return with_samples(Rollup(day=day), samples)


def with_samples(sums: Rollup, samples: Iterable[Sample], *, spans: Spans = NO_SPANS) -> Rollup:
    """The sums of a day with more of its probes, of which no more is known than what they add, and
    of their spans. Raises RollupError for a probe of another day.
    """
    begin = sums.day * DAY_MS
    probes, scored, up, compliant = sums.probes, sums.scored, sums.up, sums.compliant
    payable, compliance, slots = sums.payable, sums.compliance, sums.slots
    reasons: list[str] = []
    latencies: list[int] = []
    for at, excluded, is_up, latency, is_compliant, is_payable, worth in samples:
        if not begin <= at < begin + DAY_MS:
            raise RollupError(f"A probe at {at} ms does not belong to day {sums.day}.")
        probes += 1
        if excluded is not None:
            reasons.append(excluded)
            continue
        scored += 1
        up += is_up
        compliant += is_compliant
        payable += is_payable
        compliance += worth
        slots |= 1 << (at - begin) // SLOT_MS
        if latency is not None:
            latencies.append(latency)
    return Rollup(
        day=sums.day,
        probes=probes,
        scored=scored,
        up=up,
        compliant=compliant,
        payable=payable,
        compliance=compliance,
        slots=slots,
        latency_sum=sums.latency_sum + sum(latencies),
        latency=latency_histogram.with_latencies(sums.latency, latencies),
        excluded=_reasons(sums.excluded, _counted(reasons)),
        spans=sums.spans + spans,
    )


def merge(a: Rollup, b: Rollup) -> Rollup:
    """The sums of two parts of one day that share no probe.

    Raises RollupError when the days differ.
    """
    if a.day != b.day:
        raise RollupError(f"Rollups of day {a.day} and day {b.day} do not merge.")
    return Rollup(
        day=a.day,
        probes=a.probes + b.probes,
        scored=a.scored + b.scored,
        up=a.up + b.up,
        compliant=a.compliant + b.compliant,
        payable=a.payable + b.payable,
        compliance=a.compliance + b.compliance,
        slots=a.slots | b.slots,
        latency_sum=a.latency_sum + b.latency_sum,
        latency=latency_histogram.merge((a.latency, b.latency)),
        excluded=_reasons(a.excluded, b.excluded),
        spans=a.spans + b.spans,
    )


NO_TOTALS: Final = Totals()


def totals(days: Iterable[Rollup], before: Totals = NO_TOTALS) -> Totals:
    """The sums of day rollups, in any order, on top of those of other days (`before`). Parts of one
    day share their half hours.
    """
    rows = tuple(days)
    added = latency_histogram.merge([row.latency for row in rows])
    return replace(counts(rows, before), latency=latency_histogram.plus(before.latency, added))


def counts(days: Iterable[Rollup], before: Totals = NO_TOTALS) -> Totals:
    """As `totals`, without the histogram of latencies, which most of the time goes into."""
    slots: dict[int, int] = {}
    probes, scored, up = before.probes, before.scored, before.up
    compliant, payable, compliance = before.compliant, before.payable, before.compliance
    latency_count, latency_sum = before.latency_count, before.latency_sum
    excluded, spoken = before.excluded, before.spans
    for row in days:
        probes += row.probes
        scored += row.scored
        up += row.up
        compliant += row.compliant
        payable += row.payable
        compliance += row.compliance
        slots[row.day] = slots.get(row.day, 0) | row.slots
        latency_count += latency_histogram.size(row.latency)
        latency_sum += row.latency_sum
        excluded = _reasons(excluded, row.excluded)
        spoken += row.spans
    return Totals(
        probes=probes,
        scored=scored,
        up=up,
        compliant=compliant,
        payable=payable,
        compliance=compliance,
        slots=before.slots + sum(map(int.bit_count, slots.values())),
        latency_count=latency_count,
        latency_sum=latency_sum,
        excluded=excluded,
        spans=spoken,
    )


def totals_without(whole: Totals, part: Totals) -> Totals:
    """The sums of the days that are in `whole` and not in `part`, which are some of its days."""
    leaving = zip(part.latency.buckets, map(neg, part.latency.counts), strict=True)
    gone = dict(part.excluded)
    left = ((reason, count - gone.get(reason, 0)) for reason, count in whole.excluded)
    return Totals(
        probes=whole.probes - part.probes,
        scored=whole.scored - part.scored,
        up=whole.up - part.up,
        compliant=whole.compliant - part.compliant,
        payable=whole.payable - part.payable,
        compliance=whole.compliance - part.compliance,
        slots=whole.slots - part.slots,
        latency_count=whole.latency_count - part.latency_count,
        latency_sum=whole.latency_sum - part.latency_sum,
        latency=latency_histogram.plus(whole.latency, leaving),
        excluded=tuple((reason, count) for reason, count in left if count),
        spans=spans_sum(((whole.spans, 1), (part.spans, -1))),
    )


def day_document(sums: Rollup) -> dict[str, Any]:
    """The JSON object of a day, as evidence has it since format 2."""
    spoken = sums.spans
    return {
        "day": sums.day,
        "probes": sums.probes,
        "scored": sums.scored,
        "up": sums.up,
        "compliant": sums.compliant,
        "payable": sums.payable,
        "compliance": sums.compliance,
        "slots": sums.slots,
        "latencySum": sums.latency_sum,
        "latency": sorted(sums.latency),
        "excluded": sorted(sums.excluded),
        "spans": {
            "up": spoken.up,
            "payable": spoken.payable,
            "down": spoken.down,
            "compliance": spoken.compliance,
            "failures": spoken.failures,
            "repairs": spoken.repairs,
        },
    }


def day_from_document(document: Mapping[str, Any]) -> Rollup:
    """The inverse of `day_document`."""
    return Rollup(
        day=document["day"],
        probes=document["probes"],
        scored=document["scored"],
        up=document["up"],
        compliant=document["compliant"],
        payable=document["payable"],
        compliance=document["compliance"],
        slots=document["slots"],
        latency_sum=document["latencySum"],
        latency=tuple(map(tuple, document["latency"])),
        excluded=tuple(map(tuple, document["excluded"])),
        spans=Spans(**document["spans"]),
    )


def _counted(reasons: list[str]) -> Reasons:
    return tuple(sorted(Counter(reasons).items())) if reasons else ()


def _reasons(one: Reasons, other: Reasons) -> Reasons:
    if not one or not other:
        return one or other
    added = dict(one)
    for reason, count in other:
        added[reason] = added.get(reason, 0) + count
    return tuple(sorted(added.items()))
