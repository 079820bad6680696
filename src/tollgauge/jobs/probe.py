"""The probe loop: claim what is due, make one exchange each, judge, record.

A round takes one wave of endpoints, at most one a host, and has each host for itself until it
gives it back. What answered is recorded at once. Network failures wait for the end of their wave
and are judged together, because when unrelated hosts fail at once the fault is ours
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
from tollgauge.clients.connectivity import connected
from tollgauge.clients.egress import Egress
from tollgauge.clients.x402 import Probe
from tollgauge.core.attribution import common_mode, network_failure
from tollgauge.core.endpoint import Endpoint
from tollgauge.core.lint import lint
from tollgauge.core.probe import ProbeResult, judge
from tollgauge.core.schedule import Cadence, pause_ms
from tollgauge.core.units import DAY_MS, SECOND_MS
from tollgauge.observe import PROBES
from tollgauge.store import endpoints, flips, observations
from tollgauge.store.engine import Store

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
    """One endpoint of a wave, what was seen of it, and whether that is recorded already."""

    endpoint: Endpoint
    probe: Probe
    result: ProbeResult
    recorded: bool = False


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
        async with self.store.write() as tx:
            due = await endpoints.claim_due(
                tx,
                owner=self.owner,
                now=self.clock(),
                limit=self.settings.wave,
                lease_ms=self.settings.lease_ms,
            )
        async with asyncio.TaskGroup() as group:
            visiting = [group.create_task(self._visit(endpoint)) for endpoint in due]
        return await self._closed([each.result() for each in visiting])

    async def _visit(self, endpoint: Endpoint) -> Visit:
        """One exchange, judged; recorded at once where no other result could change it."""
        probe = await x402.exchange(self.egress, endpoint, now=self.clock())
        result = judge(probe.exchange, lint(probe.exchange))
        visit = Visit(endpoint=endpoint, probe=probe, result=result)
        if network_failure(result) or endpoint.watched_until > result.at:
            return visit
        await self._record(visit)
        return replace(visit, recorded=True)

    async def _closed(self, visits: Sequence[Visit]) -> tuple[Visit, ...]:
        """The wave, with what waited for its end judged and recorded."""
        if all(each.recorded for each in visits):
            return tuple(visits)
        judged = await self._together(visits)
        async with self.store.read() as tx:
            slow_here = await flips.slow_here(tx, [(each.endpoint, each.result) for each in judged])
        for visit in judged:
            if not visit.recorded:
                await self._record(visit, slow_here=slow_here)
        return judged

    async def _together(self, visits: Sequence[Visit]) -> tuple[Visit, ...]:
        """The wave with failures that are not the targets' doing attributed to us."""
        silent = not any(each.result.status for each in visits)
        online = await connected(self.egress, self.settings.references) if silent else True
        wave = [(each.endpoint.host, each.result) for each in visits]
        judged = common_mode(wave, connected=online)
        return tuple(
            replace(visit, result=result) for visit, (_, result) in zip(visits, judged, strict=True)
        )

    async def _record(self, visit: Visit, *, slow_here: bool = False) -> None:
        """Keep one result and give its host back."""
        if visit.result.status == PAYMENT_REQUIRED:
            await self._wildcard(visit.endpoint)
        now = self.clock()
        async with self.store.write() as tx:
            await observations.record(
                tx,
                visit.endpoint,
                visit.result,
                learned=visit.probe.learned,
                cadence=self.settings.cadence,
                pause_ms=pause_ms(visit.probe.exchange.result, now=now),
                owner=self.owner,
                now=now,
                slow_here=slow_here,
            )
        PROBES.labels(visit.result.outcome.value, visit.result.attribution.value).inc()

    async def _wildcard(self, endpoint: Endpoint) -> None:
        """Once a day, ask a random path of a host that sells: a 402 there means nothing."""
        async with self.store.read() as tx:
            host = await endpoints.host_state(tx, endpoint.host)
        if host.wildcard_at is not None and host.wildcard_at > self.clock() - WILDCARD_EVERY_MS:
            return
        token = secrets.token_hex(8)
        answer = await x402.wildcard(self.egress, endpoint.resource, token=token, now=self.clock())
        if answer is not None:
            async with self.store.write() as tx:
                await endpoints.set_wildcard(tx, endpoint.host, wildcard=answer, at=self.clock())


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
