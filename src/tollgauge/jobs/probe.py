"""The probe loop, and the loops that plan probe intervals and report late probes.

A round probes one batch with at most one endpoint per host and holds a lease on each host
(monitor/probing). Successful results are recorded within a moment. Network failures wait for the
end of the batch and are judged together with other recent results, because this machine may be the
cause (core/probe/attribution); so are watched endpoints, whose slowness this machine may cause.
Rounds overlap (`concurrent_waves`), so that an unresponsive endpoint delays only its own batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import SECOND_MS, Clock
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.budgets import HostShare, plan
from tollgauge.core.probe.schedule import Cadence, find_standing
from tollgauge.db.engine import Store
from tollgauge.jobs.loop_settings import ProbeSettings
from tollgauge.monitor import recording, vantages
from tollgauge.monitor import watched_changes as changes
from tollgauge.monitor.probing import Observation, Prober
from tollgauge.observe import PROBE_LAG, PROBE_OVERDUE, PROBES, log
from tollgauge.store.schedule import claims, hosts
from tollgauge.store.schedule.hosts import HostState

# Results within this time share a transaction, which costs as much as several of its results.
GATHER_S: Final = 0.25


async def run(prober: Prober, *, settings: ProbeSettings, owner: str) -> dict[str, object]:
    """Probe one batch of due endpoints. The tally counts outcomes; `busy` requests another
    round.
    """
    if prober.vantages.is_primary:
        observations = await _Wave(prober=prober, settings=settings, owner=owner).run()
    else:
        observations = await _run_secondary(prober, settings=settings, owner=owner)
    if not observations:
        return {}
    tally = Counter(str(observation.result.outcome) for observation in observations)
    return {"probed": len(observations), **tally, "busy": len(observations) >= settings.wave}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wave:
    """One batch of probes; `owner` holds the leases of its hosts."""

    prober: Prober
    settings: ProbeSettings
    owner: str

    async def run(self) -> tuple[Observation, ...]:
        """Claim, probe and record one batch; empty if nothing is due."""
        store, now = self.prober.store, self.prober.clock()
        due, hosts = await store.writing(_claim, settings=self.settings, owner=self.owner, now=now)
        if not due:
            return ()
        for endpoint in due:
            lag_s = (now - endpoint.next_due) / SECOND_MS
            PROBE_LAG.labels(find_standing(endpoint, now=now).value).observe(lag_s)
        final: asyncio.Queue[Observation | None] = asyncio.Queue()
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._record_final(final, ended))
            probes = [
                group.create_task(self._probe(endpoint, hosts[endpoint.host], final))
                for endpoint in due
            ]
            await asyncio.wait(probes)
            ended.set()
            final.put_nowait(None)  # wakes the recorder if it waits for another result
        before = [probe.result() for probe in probes]
        after = await self.prober.attribute_failures(before)
        waiting = [
            new for old, new in zip(before, after, strict=True) if not self.prober.is_final(old)
        ]
        if waiting:
            slow_here = await store.reading(
                changes.slow_here,
                [(observation.endpoint, observation.result) for observation in after],
            )
            await self._record(waiting, slow_here=slow_here)
        return after

    async def _probe(
        self, endpoint: Endpoint, host: HostState, final: asyncio.Queue[Observation | None]
    ) -> Observation:
        """Probe one endpoint and queue the result immediately if it is final."""
        observation = await self.prober.probe(endpoint, host)
        if self.prober.is_final(observation):
            final.put_nowait(observation)
        return observation

    async def _record_final(
        self, final: asyncio.Queue[Observation | None], ended: asyncio.Event
    ) -> None:
        """Record queued results until the batch has ended.

        Results that arrive within GATHER_S or while the store is busy share a transaction.
        """
        last = False
        while not last:
            queued = [await final.get()]
            # Do not wake for each result: most results of a batch arrive within moments of each
            # other.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_S):
                    await ended.wait()
            last = ended.is_set()
            while not final.empty():
                queued.append(final.get_nowait())
            if observations := [observation for observation in queued if observation is not None]:
                await self._record(observations)

    async def _record(
        self, observations: Sequence[Observation], *, slow_here: bool = False
    ) -> None:
        """Record results and release their hosts."""
        await self.prober.store.writing(
            recording.record,
            observations,
            cadence=self.prober.cadence,
            owner=self.owner,
            now=self.prober.clock(),
            slow_here=slow_here,
            vantages=self.prober.vantages,
        )
        _count(observations)


async def _run_secondary(
    prober: Prober, *, settings: ProbeSettings, owner: str
) -> tuple[Observation, ...]:
    """Claim, probe and record one batch from a secondary vantage."""
    due = await prober.store.writing(
        vantages.claim,
        prober.vantages.own,
        owner=owner,
        now=prober.clock(),
        limit=settings.wave,
        lease_ms=settings.lease_ms,
        cadence=prober.cadence,
    )
    observations = await asyncio.gather(*(prober.probe_secondary(endpoint) for endpoint in due))
    attributed = await prober.attribute_failures(observations)
    if attributed:
        await prober.store.writing(
            vantages.record,
            prober.vantages.own,
            attributed,
            cadence=prober.cadence,
            owner=owner,
            now=prober.clock(),
        )
    _count(attributed)
    return attributed


def _count(observations: Sequence[Observation]) -> None:
    """Count recorded probes in the metrics."""
    results = (observation.result for observation in observations)
    for (outcome, attribution), number in Counter(
        (result.outcome.value, result.attribution.value) for result in results
    ).items():
        PROBES.labels(outcome, attribution).inc(number)


def _claim(
    tx: Connection, *, settings: ProbeSettings, owner: str, now: int
) -> tuple[tuple[Endpoint, ...], dict[str, HostState]]:
    """Claim due endpoints and return them with the states of their hosts."""
    due = claims.claim_due(
        tx, owner=owner, now=now, limit=settings.wave, lease_ms=settings.lease_ms
    )
    return due, hosts.get_many(tx, {endpoint.host for endpoint in due})


_CHANGE: Final = 16  # a share is written again if it changed by more than 1/16


async def plan_intervals(
    store: Store, *, cadence: Cadence, catch_up: int, clock: Clock
) -> dict[str, object]:
    """Plan once. The tally counts the rewritten shares, and hosts without a due time that had to be
    repaired (`forgotten`, normally zero).
    """
    census = await store.reading(claims.census, now=clock())
    new = plan(census.loads, cadence, catch_up=catch_up)
    changed = {
        host: share
        for host, share in new.shares.items()
        if _has_changed(census.shares[host], share)
    }
    await store.writing(claims.save_plan, new, changed)
    if census.forgotten:
        await store.writing(hosts.bring_forward, census.forgotten, watched={})
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
        overdue = await self.store.reading(claims.overdue_ms, now=self.clock())
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
