"""Facts: what the signals look at, worked out once from the evidence.

Rules:
- only what lies in the window `as_of - 30 d < at <= as_of` counts; a day rollup counts when any
  instant of its day does (the store cuts the oldest day exactly);
- a change that several sources report is one change: changes are counted for each source, and the
  largest count stands, so a directory and our own probe never add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tollgauge.core.evidence import Evidence, LastProbe, TermChange
from tollgauge.core.policy import Policy
from tollgauge.core.rollup import Totals, totals
from tollgauge.core.signals.volume import Volume, volume_of
from tollgauge.core.units import DAY_MS, WINDOW_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The evidence with its sums. `changes` are those of the window, without repetitions."""

    evidence: Evidence
    policy: Policy
    totals: Totals
    changes: frozenset[TermChange]
    volume: Volume

    @property
    def confidence(self) -> Fraction:
        """Half hours with a scored probe as a share of the window's, at most 1."""
        return min(Fraction(self.totals.slots, self.policy.slots_full), Fraction(1))

    @property
    def envelope_probe(self) -> LastProbe | None:
        """The latest scored probe that carried an envelope, else the latest of all."""
        last = self.evidence.last
        if last is not None and last.accepts is not None:
            return last
        return self.evidence.envelope or last

    def changed(self, kind: str) -> int:
        """How many changes of a kind the window holds: the most that any one source saw."""
        counts: dict[str, int] = {}
        for change in self.changes:
            if change.kind == kind:
                counts[change.source] = counts.get(change.source, 0) + 1
        return max(counts.values(), default=0)

    def latest(self, kind: str) -> int | None:
        """When the latest change of a kind was seen, None without one."""
        return max((change.at for change in self.changes if change.kind == kind), default=None)


def facts_of(evidence: Evidence, policy: Policy) -> Facts:
    """The facts of an evidence under a policy."""
    start = evidence.as_of - WINDOW_MS
    return Facts(
        evidence=evidence,
        policy=policy,
        totals=totals(
            row
            for row in evidence.days
            if (row.day + 1) * DAY_MS - 1 > start and row.day * DAY_MS <= evidence.as_of
        ),
        changes=frozenset(item for item in evidence.changes if start < item.at <= evidence.as_of),
        volume=volume_of(evidence.chain),
    )
