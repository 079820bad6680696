"""Loops of the probe schedule: plan probe intervals, and raise an alarm about late probes.

`run` counts all endpoints every two minutes and divides the budgets of hosts and sites
(core/probe/budgets), on one machine for all. `LatenessMonitor` runs on every machine and raises the
alarm if a host has waited longer than `late_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tollgauge.core.base.units import SECOND_MS, Clock
from tollgauge.core.probe.budgets import HostShare, plan
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store
from tollgauge.observe import PROBE_OVERDUE, log
from tollgauge.store.schedule import budgets

_CHANGE: Final = 16  # a share is written again if it changed by more than 1/16


async def run(store: Store, *, cadence: Cadence, catch_up: int, clock: Clock) -> dict[str, object]:
    """Plan once. The tally counts the rewritten shares, and hosts without a due time that had to be
    repaired (`forgotten`, normally zero).
    """
    census = await store.reading(budgets.census, now=clock())
    new = plan(census.loads, cadence, catch_up=catch_up)
    changed = {
        host: share
        for host, share in new.shares.items()
        if _has_changed(census.shares[host], share)
    }
    await store.writing(budgets.save_plan, new, changed)
    if census.forgotten:
        await store.writing(budgets.remember, census.forgotten)
    return {"changed": len(changed), "forgotten": len(census.forgotten)}


def _has_changed(before: HostShare, after: HostShare) -> bool:
    """Return whether a share changed enough to be written."""
    if before.takes_turns != after.takes_turns or bool(before.round_ms) != bool(after.round_ms):
        return True
    pairs = ((before.round_ms, after.round_ms), (before.sharing, after.sharing))
    return any(abs(new - old) * _CHANGE > old for old, new in pairs)


@dataclass(slots=True, kw_only=True)
class LatenessMonitor:
    """Observes whether probes are late; `late_ms` is the limit."""

    store: Store
    clock: Clock
    late_ms: int
    is_late: bool = False

    async def run(self) -> Mapping[str, object]:
        """Check once; log when probes become late and when they are on time again."""
        overdue = await self.store.reading(budgets.overdue_ms, now=self.clock())
        for name, overdue_ms in overdue.items():
            PROBE_OVERDUE.labels(name).set(overdue_ms / SECOND_MS)
        is_late = max(overdue.values()) > self.late_ms
        if is_late != self.is_late:
            self.is_late = is_late
            seconds = {f"{name}_s": waited // SECOND_MS for name, waited in overdue.items()}
            if is_late:
                log().error("probe.late", limit_s=self.late_ms // SECOND_MS, **seconds)
            else:
                log().info("probe.on-time", **seconds)
        return {}
