"""Rollup: what one UTC day (or a part of one) of an endpoint's probes adds up to.

Rollups merge exactly: counts and sums add, the latency histogram adds bucket by bucket, the
half-hour slots of a day are a bitmap. Thirty of them give the exact 30-day statistics
(docs/methodology.md, *arithmetic*).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tollgauge.core import latency as latency_histogram
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.latency import Histogram
from tollgauge.core.probe import ProbeResult
from tollgauge.core.units import DAY_MS, day_of

SLOT_MS: Final = 30 * 60 * 1_000
SLOTS_PER_DAY: Final = 48


class RollupError(TollgaugeError):
    """Probes or rollups of different days that were to become one day's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """One day's sums. `day` counts UTC days since the epoch.

    `excluded` counts unscored probes by reason, sorted by reason. `slots` has bit i set when a
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
    excluded: tuple[tuple[str, int], ...] = ()


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
    excluded: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class Tally:
    """The running sums of a day, before they are frozen; the fields are those of `Rollup`."""

    probes: int = 0
    scored: int = 0
    up: int = 0
    compliant: int = 0
    payable: int = 0
    compliance: int = 0
    slots: int = 0
    latency_sum: int = 0
    latency: dict[int, int] = field(default_factory=dict)
    excluded: dict[str, int] = field(default_factory=dict)

    def add(self, result: ProbeResult) -> None:
        """Count a probe."""
        self.count(
            result.at,
            excluded=None if result.scored else result.reason or result.attribution.value,
            latency_ms=result.latency_ms,
            compliant=result.compliant,
            payable=result.payable,
            compliance=result.compliance,
        )

    def count(
        self,
        at: int,
        *,
        excluded: str | None,
        latency_ms: int | None,
        compliant: bool,
        payable: bool,
        compliance: int,
    ) -> None:
        """Count a probe by its figures: `excluded` says why it is not scored, None where it is;
        `latency_ms` is None where it was not up.
        """
        self.probes += 1
        if excluded is not None:
            self.excluded[excluded] = self.excluded.get(excluded, 0) + 1
            return
        self.scored += 1
        self.slots |= 1 << slot_of(at)
        self.compliant += compliant
        self.payable += payable
        self.compliance += compliance
        if latency_ms is not None:
            bucket = latency_histogram.bucket_of(latency_ms)
            self.up += 1
            self.latency_sum += latency_ms
            self.latency[bucket] = self.latency.get(bucket, 0) + 1

    def rollup(self, day: int) -> Rollup:
        """The sums so far, as those of a day."""
        return Rollup(
            day=day,
            probes=self.probes,
            scored=self.scored,
            up=self.up,
            compliant=self.compliant,
            payable=self.payable,
            compliance=self.compliance,
            slots=self.slots,
            latency_sum=self.latency_sum,
            latency=latency_histogram.from_counts(self.latency),
            excluded=tuple(sorted(self.excluded.items())),
        )


def slot_of(at: int) -> int:
    """The half hour (0..47) of its UTC day that holds an instant."""
    return at % DAY_MS // SLOT_MS


def rollup(day: int, results: Iterable[ProbeResult]) -> Rollup:
    """The sums of a day's probes, in any order.

    Raises RollupError for a probe of another day.
    """
    total = Tally()
    for result in results:
        if day_of(result.at) != day:
            raise RollupError(f"A probe at {result.at} ms does not belong to day {day}.")
        total.add(result)
    return total.rollup(day)


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
        excluded=_reasons((a, b)),
    )


def totals(days: Iterable[Rollup]) -> Totals:
    """The sums of day rollups, in any order; parts of one day share their half hours."""
    rows = tuple(days)
    slots: dict[int, int] = {}
    for row in rows:
        slots[row.day] = slots.get(row.day, 0) | row.slots
    latency = latency_histogram.merge(row.latency for row in rows)
    return Totals(
        probes=sum(row.probes for row in rows),
        scored=sum(row.scored for row in rows),
        up=sum(row.up for row in rows),
        compliant=sum(row.compliant for row in rows),
        payable=sum(row.payable for row in rows),
        compliance=sum(row.compliance for row in rows),
        slots=sum(bits.bit_count() for bits in slots.values()),
        latency_count=sum(count for _, count in latency),
        latency_sum=sum(row.latency_sum for row in rows),
        latency=latency,
        excluded=_reasons(rows),
    )


def _reasons(rows: Iterable[Rollup]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for row in rows:
        for reason, count in row.excluded:
            counts[reason] = counts.get(reason, 0) + count
    return tuple(sorted(counts.items()))
