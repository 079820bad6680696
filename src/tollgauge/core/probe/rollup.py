"""Rollups: the sums of an endpoint's probes over one UTC day or a part of it.

Rollups merge exactly: counts and sums add, the latency histogram adds bucket by bucket, the
half-hour slots of a day are a bitmap. Thirty of them give the exact 30-day statistics
(docs/methodology.md, *arithmetic*). Probes that confirm a failure are in no count; they count in
the spans, which depend on the probes before and after (core/probe/spans).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.probe import latency as latency_histogram
from tollgauge.core.probe.latency import Histogram
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.spans import NO_SPANS, Spans, spans_sum

SLOT_MS: Final = 30 * MINUTE_MS
Reasons = tuple[tuple[str, int], ...]
"""Numbers of unscored probes by reason, sorted by reason."""


class RollupError(TollgaugeError):
    """Probes or rollups of different days cannot be combined."""


class Rollup(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One day's sums.

    Attributes:
        day: UTC days since the epoch.
        excluded: Unscored probes by reason.
        slots: Bit i is set if a scored probe fell into the i-th half hour of the day.
        compliance: Sum of the compliance (0..100) of scored probes.
        latency: (bucket, count) in ascending order, of scored probes that were up.
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
    latency: Histogram = ()
    excluded: Reasons = ()
    spans: Spans = NO_SPANS
    blocked: int = 0


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of many days. `slots` is the number of distinct half hours with a scored probe,
    `latencies` the number of latencies; other fields as in `Rollup`.
    """

    probes: int = 0
    scored: int = 0
    up: int = 0
    compliant: int = 0
    payable: int = 0
    compliance: int = 0
    slots: int = 0
    latencies: int = 0
    latency_sum: int = 0
    excluded: Reasons = ()
    spans: Spans = NO_SPANS


def rollup(day: int, results: Iterable[ProbeResult], *, spans: Spans = NO_SPANS) -> Rollup:
    """Return the sums of a day's probes, in any order, with their spans. Raises RollupError for a
    probe of another day.
    """
    begin = day * DAY_MS
    counted = [result for result in results if not result.confirms]
    for result in counted:
        if not begin <= result.at < begin + DAY_MS:
            raise RollupError(f"A probe at {result.at} ms does not belong to day {day}.")
    scored = [result for result in counted if result.scored]
    latencies = [result.latency_ms for result in scored if result.latency_ms is not None]
    reasons = Counter(
        result.reason or result.attribution.value for result in counted if not result.scored
    )
    slots = 0
    for result in scored:
        slots |= 1 << (result.at - begin) // SLOT_MS
    return Rollup(
        day=day,
        probes=len(counted),
        scored=len(scored),
        up=sum(result.up for result in scored),
        compliant=sum(result.compliant for result in scored),
        payable=sum(result.payable for result in scored),
        compliance=sum(result.compliance for result in scored),
        slots=slots,
        latency_sum=sum(latencies),
        latency=latency_histogram.of(latencies),
        excluded=tuple(sorted(reasons.items())),
        spans=spans,
        blocked=sum(result.outcome is Outcome.BLOCKED for result in scored),
    )


def merge(a: Rollup, b: Rollup) -> Rollup:
    """Return the sums of two parts of one day without common probes. Raises RollupError if the days
    differ.
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
        spans=spans_sum((a.spans, b.spans)),
        blocked=a.blocked + b.blocked,
    )


def totals(days: Iterable[Rollup]) -> Totals:
    """Return the sums of days, in any order. Parts of one day share their half hours."""
    slots: dict[int, int] = {}
    probes = scored = up = compliant = payable = compliance = latencies = latency_sum = 0
    excluded: Reasons = ()
    spoken = []
    for row in days:
        probes += row.probes
        scored += row.scored
        up += row.up
        compliant += row.compliant
        payable += row.payable
        compliance += row.compliance
        slots[row.day] = slots.get(row.day, 0) | row.slots
        latencies += latency_histogram.size(row.latency)
        latency_sum += row.latency_sum
        excluded = _reasons(excluded, row.excluded)
        spoken.append(row.spans)
    return Totals(
        probes=probes,
        scored=scored,
        up=up,
        compliant=compliant,
        payable=payable,
        compliance=compliance,
        slots=sum(map(int.bit_count, slots.values())),
        latencies=latencies,
        latency_sum=latency_sum,
        excluded=excluded,
        spans=spans_sum(spoken),
    )


def day_document(sums: Rollup) -> dict[str, Any]:
    """Return the JSON object of a day, as in evidence since format 2."""
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
            "refused": spoken.refused,
        },
        "blocked": sums.blocked,
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
        blocked=document["blocked"],
    )


def _reasons(one: Reasons, other: Reasons) -> Reasons:
    if not one or not other:
        return one or other
    added = dict(one)
    for reason, count in other:
        added[reason] = added.get(reason, 0) + count
    return tuple(sorted(added.items()))
