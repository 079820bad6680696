"""The loops of the schedule: how often each endpoint can be probed, and the alarm of late probes.

`run` counts all endpoints every two minutes and plans what hosts and sites share
(core/probe/budgets): one machine does it for all. `Lateness` looks, on every machine, for how long
the host has waited that waits longest, and raises the alarm when that passes `late_ms`.
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

_CHANGE: Final = 16
"""A share is written again when it changed by more than one part in so many."""


async def run(store: Store, *, cadence: Cadence, catch_up: int, clock: Clock) -> dict[str, object]:
    """Plan once; the tally counts the hosts whose share was written again, and those that had to be
    made due earlier (`forgotten`), of which there should be none.
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
    """Whether a share changed by enough to be written."""
    if before.takes_turns != after.takes_turns or bool(before.round_ms) != bool(after.round_ms):
        return True
    pairs = ((before.round_ms, after.round_ms), (before.sharing, after.sharing))
    return any(abs(new - old) * _CHANGE > old for old, new in pairs)


@dataclass(slots=True, kw_only=True)
class LatenessMonitor:
    """Whether the probes of this service are late; `late_ms` is the limit."""

    store: Store
    clock: Clock
    late_ms: int
    is_late: bool = False

    async def run(self) -> Mapping[str, object]:
        """Look once; log when probes become late, and when they no longer are."""
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
