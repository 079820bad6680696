"""The probe loop: claim what is due, make one exchange each, judge, record.

A round takes one wave of endpoints, at most one a host, and has each host for itself until it
gives it back. What answered is recorded at once. Network failures, TLS failures included, wait for
the end of their wave and are judged together: when unrelated hosts fail at once the fault is ours
(core/attribution); so do watched endpoints, whose slowness may be ours. Each result is recorded
in one transaction that also gives its host back. Rounds overlap (`lanes`), so that a target that
never answers holds up its own wave alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tollgauge.clients import x402
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.connectivity import connected
from tollgauge.clients.x402 import Probe
from tollgauge.core.attribution import (
    RECENT_MS,
    SITES_MIN,
    Wave,
    common_mode,
    network_failure,
    unproven,
)
from tollgauge.core.endpoint import Endpoint
from tollgauge.core.lint import lint
from tollgauge.core.probe import ProbeResult, judge
from tollgauge.core.schedule import Cadence, pause_ms
from tollgauge.core.units import DAY_MS, SECOND_MS
from tollgauge.db.engine import Store
from tollgauge.observe import PROBES
from tollgauge.store.endpoints import endpoints
from tollgauge.store.endpoints.endpoints import HostState
from tollgauge.store.probes import changes, observations, probes
from tollgauge.store.probes.observations import Observation

Clock = Callable[[], int]

WILDCARD_EVERY_MS: Final = DAY_MS
PAYMENT_REQUIRED: Final = 402


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """How many endpoints a round takes, how many rounds a worker has under way at once, and how
    they are probed. A wave lasts as long as its slowest target: `wave * lanes` over the deadline
    of a probe is what a worker does where every wave has a dead target.

    `references` are https URLs of the operator's choice that tell whether *we* are connected.
    Raises ValueError.
    """

    wave: int = 128
    lanes: int = 16
    lease_ms: int = 60_000
    references: tuple[str, ...] = ()
    cadence: Cadence = field(default_factory=Cadence)

    def __post_init__(self) -> None:
        if self.wave < 1 or self.lanes < 1 or self.lease_ms < SECOND_MS:
            raise ValueError("wave and lanes must be at least 1, lease_ms at least 1000")
        for url in self.references:
            if not url.startswith("https://"):
                raise ValueError(f"references: {url!r} does not start with https://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One endpoint of a wave and what was seen of it. `wildcard`: whether a random path of its
    host answered 402 too, None where it was not asked.
    """

    endpoint: Endpoint
    probe: Probe
    result: ProbeResult
    wildcard: bool | None = None

    @property
    def stands_alone(self) -> bool:
        """Whether no other result of the wave could change what is made of it."""
        watched = self.endpoint.watched_until > self.result.at
        return not watched and not network_failure(self.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prober:
    """A worker's probing: what it works with."""

    store: Store
    egress: Egress
    settings: ProbeSettings
    clock: Clock
    owner: str

    async def wave(self) -> tuple[Visit, ...]:
        """Claim, probe and record one wave; empty when nothing is due."""
        due, hosts = await self._claimed()
        if not due:
            return ()
        alone: asyncio.Queue[Visit | None] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._record_as_they_come(alone))
            visiting = [
                group.create_task(self._visit(each, hosts[each.host], alone)) for each in due
            ]
            await asyncio.wait(visiting)
            alone.put_nowait(None)
        made = [each.result() for each in visiting]
        visits = await self._together(made)
        waited = [
            after for before, after in zip(made, visits, strict=True) if not before.stands_alone
        ]
        if waited:
            slow_here = await self.store.reading(
                changes.slow_here, [(v.endpoint, v.result) for v in visits]
            )
            await self._record(waited, slow_here=slow_here)
        return visits

    async def _claimed(self) -> tuple[tuple[Endpoint, ...], dict[str, HostState]]:
        """Due endpoints, and what is known of their hosts, which are ours for now."""
        async with self.store.write() as tx:
            due = await endpoints.claim_due(
                tx,
                owner=self.owner,
                now=self.clock(),
                limit=self.settings.wave,
                lease_ms=self.settings.lease_ms,
            )
            return due, await endpoints.host_states(tx, {each.host for each in due})

    async def _visit(
        self, endpoint: Endpoint, host: HostState, alone: asyncio.Queue[Visit | None]
    ) -> Visit:
        """One exchange, judged, and told at once where it stands alone."""
        probe = await x402.exchange(self.egress, endpoint, now=self.clock())
        result = judge(probe.exchange, lint(probe.exchange))
        visit = Visit(endpoint=endpoint, probe=probe, result=result)
        if result.status == PAYMENT_REQUIRED and self._untried(host):
            visit = replace(visit, wildcard=await self._wildcard(endpoint))
        if visit.stands_alone:
            alone.put_nowait(visit)
        return visit

    def _untried(self, host: HostState) -> bool:
        """Once a day, a random path of a host that sells is asked: a 402 there means nothing."""
        return host.wildcard_at is None or host.wildcard_at <= self.clock() - WILDCARD_EVERY_MS

    async def _wildcard(self, endpoint: Endpoint) -> bool | None:
        token = secrets.token_hex(8)
        return await x402.wildcard(self.egress, endpoint.resource, token=token, now=self.clock())

    async def _together(self, visits: Sequence[Visit]) -> tuple[Visit, ...]:
        """The wave with failures that are not the targets' doing attributed to us."""
        wave: Wave = [(each.endpoint.host, each.result) for each in visits]
        if not any(network_failure(result) for _, result in wave):
            return tuple(visits)
        if any(result.status for _, result in wave):
            wave = common_mode(wave, connected=True)
        else:
            wave = await self._without_answer(wave)
        return tuple(
            replace(visit, result=result) for visit, (_, result) in zip(visits, wave, strict=True)
        )

    async def _without_answer(self, wave: Wave) -> Wave:
        """A wave that nobody answered, judged with what the references and, where the wave is
        too small to tell, the last minutes say.
        """
        recent: Wave = ()
        if len(wave) < SITES_MIN:
            now = self.clock()
            recent = await self.store.reading(probes.recent, since=now - RECENT_MS, until=now)
        online = await connected(self.egress, self.settings.references)
        wave = common_mode(wave, connected=online, recent=recent)
        return unproven(wave, recent=recent) if online is None else wave

    async def _record_as_they_come(self, alone: asyncio.Queue[Visit | None]) -> None:
        """Record what stands alone until None comes; what comes while the store is busy shares
        the next transaction.
        """
        ended = False
        while not ended:
            came = [await alone.get()]
            while not alone.empty():
                came.append(alone.get_nowait())
            ended = None in came
            if visits := [each for each in came if each is not None]:
                await self._record(visits)

    async def _record(self, visits: Sequence[Visit], *, slow_here: bool = False) -> None:
        """Keep results and give their hosts back."""
        now = self.clock()
        seen = [
            Observation(
                endpoint=each.endpoint,
                result=each.result,
                learned=each.probe.learned,
                pause_ms=pause_ms(each.probe.exchange.result, now=now),
                wildcard=each.wildcard,
            )
            for each in visits
        ]
        await self.store.writing(
            observations.record,
            seen,
            cadence=self.settings.cadence,
            owner=self.owner,
            now=now,
            slow_here=slow_here,
        )
        for each in visits:
            PROBES.labels(each.result.outcome.value, each.result.attribution.value).inc()


async def run(
    store: Store, egress: Egress, *, settings: ProbeSettings, clock: Clock, owner: str
) -> dict[str, object]:
    """Probe one wave of due endpoints; the tally counts outcomes, `busy` asks for the next."""
    prober = Prober(store=store, egress=egress, settings=settings, clock=clock, owner=owner)
    visits = await prober.wave()
    if not visits:
        return {}
    tally = Counter(str(each.result.outcome) for each in visits)
    return {"probed": len(visits), **tally, "busy": len(visits) >= settings.wave}
