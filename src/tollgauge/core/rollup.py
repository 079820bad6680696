"""Rollup: what one UTC day (or a part of one) of an endpoint's probes adds up to.

Rollups merge exactly: counts and sums add, the latency histogram adds bucket by bucket, the
half-hour slots of a day are a bitmap. Thirty of them give the exact 30-day statistics
(docs/methodology.md, *arithmetic*). Probes that confirm a failure are in no count; what they say is
in the spans, which whoever knows the probes before and after adds (core/spans).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tollgauge.core import latency as latency_histogram
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.latency import Histogram
from tollgauge.core.probe import ProbeResult
from tollgauge.core.spans import NO_SPANS, Spans, spans_sum
from tollgauge.core.units import DAY_MS, MINUTE_MS

SLOT_MS: Final = 30 * MINUTE_MS
Reasons = tuple[tuple[str, int], ...]
"""How many probes were not scored by reason, sorted by reason."""


class RollupError(TollgaugeError):
    """Probes or rollups of different days that were to become one day's."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    latency: Histogram = ()
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
    return rollup_of_samples(day, (sample(result) for result in results if not result.confirms))


def rollup_of_samples(day: int, probes: Iterable[Sample], *, spans: Spans = NO_SPANS) -> Rollup:
    """As `rollup`, for probes of which no more is known than what they add, and the day's spans."""
    samples = list(probes)
    if not samples:
        return Rollup(day=day, spans=spans)
    columns = tuple(zip(*samples, strict=True))
    begin, end = day * DAY_MS, (day + 1) * DAY_MS
    for at in (min(columns[0]), max(columns[0])):
        if not begin <= at < end:
            raise RollupError(f"A probe at {at} ms does not belong to day {day}.")
    reasons = Counter(filter(None, columns[1]))
    if reasons:
        columns = tuple(zip(*(row for row in samples if row[1] is None), strict=True)) or ((),) * 7
    instants, _, ups, latencies, compliants, payables, compliances = columns
    known = [ms for ms in latencies if ms is not None]
    return Rollup(
        day=day,
        probes=len(samples),
        scored=len(instants),
        up=sum(ups),
        compliant=sum(compliants),
        payable=sum(payables),
        compliance=sum(compliances),
        slots=sum(1 << slot for slot in {(at - begin) // SLOT_MS for at in instants}),
        latency_sum=sum(known),
        latency=latency_histogram.of(known),
        excluded=tuple(sorted(reasons.items())),
        spans=spans,
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
    leaving = tuple((bucket, -count) for bucket, count in part.latency)
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
        latency=latency_histogram.merge((whole.latency, leaving)),
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


def _reasons(one: Reasons, other: Reasons) -> Reasons:
    if not one or not other:
        return one or other
    added = dict(one)
    for reason, count in other:
        added[reason] = added.get(reason, 0) + count
    return tuple(sorted(added.items()))
