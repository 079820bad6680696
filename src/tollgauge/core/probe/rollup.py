"""Rollups: the sums of an endpoint's probes over one UTC day or a part of it.

Rollups merge exactly: counts and sums add, the latency histogram adds bucket by bucket, the
half-hour slots of a day are a bitmap. Thirty of them give the exact 30-day statistics
(docs/methodology.md, *arithmetic*). Probes that confirm a failure are in no count; they count in
the spans, which depend on the probes before and after (core/probe/probe).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import structs
from pydantic.alias_generators import to_camel

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.probe import latency as latency_histogram
from tollgauge.core.probe.latency import Histogram
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import NO_SPANS, ProbeResult, Spans, spans_sum

SLOT_MS: Final = 30 * MINUTE_MS
Reasons = tuple[tuple[str, int], ...]
"""Numbers of unscored probes by reason, sorted by reason."""


class RollupError(TollgaugeError):
    """A probe does not belong to the day of a rollup."""


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
        latency=latency_histogram.merge([part.latency for part in parts]),
        excluded=tuple(sorted(excluded.items())),
        spans=spans_sum([part.spans for part in parts]),
        blocked=sum([part.blocked for part in parts]),
    )


_KEYS: Final = {name: to_camel(name) for name in Rollup.__struct_fields__}


def day_document(sums: Rollup) -> dict[str, Any]:
    """Return the JSON object of a day, as in evidence."""
    document = {key: getattr(sums, name) for name, key in _KEYS.items()}
    return document | {
        "latency": sorted(sums.latency),
        "excluded": sorted(sums.excluded),
        "spans": structs.asdict(sums.spans),
    }


def day_from_document(document: Mapping[str, Any]) -> Rollup:
    """The inverse of `day_document`."""
    values = {name: document[key] for name, key in _KEYS.items()}
    values["latency"] = tuple(map(tuple, values["latency"]))
    values["excluded"] = tuple(map(tuple, values["excluded"]))
    return Rollup(**values | {"spans": Spans(**values["spans"])})
