"""The probe loop: claim what is due, probe it, record it (monitor/probing has the steps).

A round takes one wave of endpoints, at most one a host, and has each host for itself until it
gives it back. What answered is recorded within a moment. Network failures, TLS failures included,
wait for the end of their wave and are judged together, with what other waves of the last minute
met: the fault may be ours (core/probe/attribution). So do watched endpoints, whose slowness may be
ours. Rounds overlap (`concurrent_waves`), so that a target that never answers holds up its own wave
alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass
from sqlalchemy import Connection

from tollgauge.core.base.units import MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.schedule import Cadence, standing
from tollgauge.core.probe.vantage import DEFAULT, NAME_PATTERN, Vantages
from tollgauge.monitor import probing, vantages
from tollgauge.monitor import watched_changes as changes
from tollgauge.monitor.observation import Observation
from tollgauge.monitor.probing import Prober
from tollgauge.observe import PROBE_LAG, PROBES
from tollgauge.store.schedule import claims, hosts
from tollgauge.store.schedule.hosts import HostState

VantageName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]

GATHER_S: Final = 0.25
"""How long a result waits for others: a transaction costs as much as several of its results, and at
an ordinary pace few come in a tenth of a second.
"""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """How endpoints are probed. A wave lasts as long as its slowest target: `wave *
    concurrent_waves` over the deadline of a probe is what a worker does where every wave has a dead
    target.
    """

    wave: PositiveInt = 128
    """Endpoints that a round takes."""
    concurrent_waves: PositiveInt = 16
    """Rounds that a worker has under way at once."""
    lease_ms: Annotated[int, Field(ge=SECOND_MS)] = 60_000
    """How long a worker has a host for itself."""
    catch_up: Annotated[int, Field(ge=2)] = 2
    """After a stop, what is overdue is probed at most so many times as fast as usual."""
    late_ms: Annotated[int, Field(ge=SECOND_MS)] = 5 * MINUTE_MS
    """A host that waits longer for its probe raises the alarm."""
    references: tuple[str, ...] = ()
    """https URLs that tell whether we are connected, before anyone else is blamed: two or three
    sites that are always up. Left empty, the origins of [[sources]] and of the facilitator are
    asked.
    """
    cadence: Cadence = field(default_factory=Cadence)
    """How often, and how gently."""
    vantage: VantageName = DEFAULT
    """The name of the place on the network that this process probes from."""
    vantages: tuple[VantageName, ...] = ()
    """The names of all places, where workers probe from several; the first is the primary one,
    whose probes are scored, and where `serve` runs (docs/operating/processes.md).
    """

    def __post_init__(self) -> None:
        if len(set(self.vantages)) < len(self.vantages):
            raise ValueError("vantages names one twice")
        if self.vantages and self.vantage not in self.vantages:
            raise ValueError(f"vantage {self.vantage!r} is not one of vantages")

    @property
    def places(self) -> Vantages:
        """Where this process probes from, and which others there are."""
        return Vantages(own=self.vantage, all=self.vantages)


async def run(prober: Prober, *, settings: ProbeSettings, owner: str) -> dict[str, object]:
    """Probe one wave of due endpoints; the tally counts outcomes, `busy` asks for the next."""
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
    """One wave of probes; `owner` holds the leases of its hosts."""

    prober: Prober
    settings: ProbeSettings
    owner: str

    async def run(self) -> tuple[Observation, ...]:
        """Claim, probe and record one wave; empty when nothing is due."""
        store, now = self.prober.store, self.prober.clock()
        due, hosts = await store.writing(_claim, settings=self.settings, owner=self.owner, now=now)
        if not due:
            return ()
        for endpoint in due:
            lag_s = (now - endpoint.next_due) / SECOND_MS
            PROBE_LAG.labels(standing(endpoint, now=now).value).observe(lag_s)
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
            final.put_nowait(None)  # so that nobody waits for another one
        before = [probe.result() for probe in probes]
        after = await self.prober.attributed(before)
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
        """Probe one endpoint, and queue the result at once where it is final by itself."""
        observation = await self.prober.probe(endpoint, host)
        if self.prober.is_final(observation):
            final.put_nowait(observation)
        return observation

    async def _record_final(
        self, final: asyncio.Queue[Observation | None], ended: asyncio.Event
    ) -> None:
        """Record what is queued until the wave has ended; what comes within GATHER_S, or while the
        store is busy, shares a transaction.
        """
        last = False
        while not last:
            queued = [await final.get()]
            # Not woken by each result: most of a wave end within moments of each other.
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
        """Record results and give their hosts back."""
        await self.prober.store.writing(
            probing.record,
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
    """Claim, probe and record one wave from a vantage beside the primary one."""
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
    attributed = await prober.attributed(observations)
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
    """Due endpoints, and what is known of their hosts, whose leases are the owner's for now."""
    due = claims.claim_due(
        tx, owner=owner, now=now, limit=settings.wave, lease_ms=settings.lease_ms
    )
    return due, hosts.get_many(tx, {endpoint.host for endpoint in due})
