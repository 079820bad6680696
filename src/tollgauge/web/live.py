"""The live probe behind a paid report: one exchange now, judged, recorded, shared.

Rules:
- at most one live probe a host and 10 seconds; callers that come meanwhile share its result,
  unless it was made by a fault of ours or nobody can vouch for it;
- a resource that nobody monitors yet is adopted with its first result;
- a target that is down is a result; a fault of ours is 503 and costs nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients import x402
from tollgauge.clients.connectivity import connected
from tollgauge.clients.egress import Egress
from tollgauge.clients.x402 import Probe
from tollgauge.core.attribution import RECENT_MS, common_mode, network_failure, unproven
from tollgauge.core.endpoint import Endpoint, Resource
from tollgauge.core.lint import lint
from tollgauge.core.probe import Attribution, Outcome, ProbeResult, judge
from tollgauge.core.schedule import Cadence, pause_ms
from tollgauge.core.units import SECOND_MS
from tollgauge.observe import LIVE_PROBES
from tollgauge.store import discovery, endpoints, observations, probes
from tollgauge.store.engine import Store
from tollgauge.store.merging import new_endpoint
from tollgauge.store.observations import Observation
from tollgauge.web.problem import Problem

SHARE_MS: Final = 10 * SECOND_MS
LEASE_MS: Final = 45 * SECOND_MS
WAIT_S: Final = 25.0
STEP_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProbe:
    """What live probes need: the store, the one way out, and the operator's pace."""

    store: Store
    egress: Egress
    clock: Callable[[], int]
    cadence: Cadence
    references: tuple[str, ...] = ()

    async def look(
        self, resource: Resource, *, accept: Callable[[ProbeResult], None] = lambda _: None
    ) -> tuple[Endpoint, ProbeResult]:
        """The endpoint and a result at most 10 seconds old. `accept` sees the result of a resource
        that nobody knows and may raise Problem: then the resource is not adopted.

        Raises Problem 503 when we could not probe.
        """
        owner = f"live-{secrets.token_hex(8)}"
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while True:
            known, fresh = await self.store.lookup(known_now, resource.id, now=self.clock())
            if known is not None and fresh is not None:
                return known, fresh
            endpoint = known or new_endpoint(resource, now=self.clock(), spread_ms=0)
            if await self._take_host(endpoint.host, owner):
                break
            if asyncio.get_running_loop().time() > deadline:
                raise Problem(
                    503,
                    "host-busy",
                    "This host is being probed for others. Nothing was charged; try again.",
                    retry_after=10,
                )
            await asyncio.sleep(STEP_S)
        with LIVE_PROBES.track_inprogress():
            probe, result = await self._probe(endpoint)
        if known is None and not _failed_here(result):
            await self._accepted(endpoint, result, accept, owner)
        endpoint = await self.store.writing(self._record, resource, probe, result, owner)
        if _failed_here(result):
            raise Problem(
                503,
                "probe-failed-here",
                "We could not probe because of a fault on our side. Nothing was charged.",
                retry_after=30,
            )
        return endpoint, result

    async def _accepted(
        self,
        endpoint: Endpoint,
        result: ProbeResult,
        accept: Callable[[ProbeResult], None],
        owner: str,
    ) -> None:
        """Let the caller refuse a first contact; then only the host is given back."""
        try:
            accept(result)
        except Problem:
            now = self.clock()
            free_at = now + self.cadence.host_gap_ms
            await self.store.writing(
                endpoints.release_host, endpoint.host, owner=owner, now=now, free_at=free_at
            )
            raise

    async def _take_host(self, host: str, owner: str) -> bool:
        return await self.store.writing(
            endpoints.claim_host, host, owner=owner, now=self.clock(), lease_ms=LEASE_MS
        )

    async def _probe(self, endpoint: Endpoint) -> tuple[Probe, ProbeResult]:
        probe = await x402.exchange(self.egress, endpoint, now=self.clock())
        result = judge(probe.exchange, lint(probe.exchange))
        if network_failure(result):
            result = await self._whose_fault(endpoint.host, result)
        return probe, result

    async def _whose_fault(self, host: str, result: ProbeResult) -> ProbeResult:
        """A failure, judged with what the references and other probes of these minutes say."""
        now = self.clock()
        recent = await self.store.reading(probes.recent, since=now - RECENT_MS, until=now)
        online = await connected(self.egress, self.references)
        judged = common_mode([(host, result)], connected=online, recent=recent)
        if online is None:
            judged = unproven(judged, recent=recent)
        return judged[0][1]

    def _record(
        self, tx: Connection, resource: Resource, probe: Probe, result: ProbeResult, owner: str
    ) -> Endpoint:
        """Remember a result, and adopt its resource if nobody knew it."""
        now = self.clock()
        endpoint = endpoints.get(tx, resource.id)
        if endpoint is None:
            endpoint = discovery.adopt(tx, resource, source="request", now=now)
        seen = Observation(
            endpoint=endpoint,
            result=result,
            learned=probe.learned,
            pause_ms=pause_ms(probe.exchange.result, now=now),
        )
        observations.record(tx, (seen,), cadence=self.cadence, owner=owner, now=now)
        return endpoints.get(tx, endpoint.id) or endpoint


def known_now(
    tx: Connection, endpoint_id: str, *, now: int
) -> tuple[Endpoint | None, ProbeResult | None]:
    """An endpoint, and its last result if that is young enough to be shared and tells of the
    target: what our own fault made, or what nobody can vouch for, is probed anew.
    """
    last = probes.latest(tx, endpoint_id, since=now - SHARE_MS, until=now)
    fresh = None if last is None or _failed_here(last) else last
    return endpoints.get(tx, endpoint_id), fresh


def _failed_here(result: ProbeResult) -> bool:
    """Whether a result tells nothing of the target; 429 does, though it is not scored."""
    told = result.attribution is Attribution.THEIRS or result.outcome is Outcome.THROTTLED
    return not told
