"""The live probe behind a paid report: one exchange now, judged, recorded, shared.

Rules:
- at most one live probe a host and 10 seconds; callers that come meanwhile share its result;
- a resource that nobody monitors yet is adopted with its first result;
- a target that is down is a result; a fault of ours is 503 and costs nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.clients import x402
from tollgauge.clients.connectivity import connected
from tollgauge.clients.egress import Egress
from tollgauge.clients.x402 import Probe
from tollgauge.core.attribution import common_mode
from tollgauge.core.endpoint import Endpoint, Listing, Resource
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
            wildcard = await self._wildcard(endpoint, known, result)
        if known is None and not _failed_here(result):
            await self._accepted(endpoint, result, accept, owner)
        endpoint = await self.store.writing(
            self._record, resource, probe, result, owner, wildcard=wildcard
        )
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
        if result.status is None:
            online = await connected(self.egress, self.references)
            ((_, result),) = common_mode([(endpoint.host, result)], connected=online)
            if online is None and result.outcome is Outcome.DNS:
                # With no reference to ask, a resolver of ours that answers wrongly looks the same.
                result = replace(result, attribution=Attribution.UNKNOWN, reason="no-reference")
        return probe, result

    async def _wildcard(
        self, endpoint: Endpoint, known: Endpoint | None, result: ProbeResult
    ) -> bool | None:
        """Whether a random path of the host answers 402 too. Asked where the first 402 of a
        resource that nobody lists would make it public, and the host was never asked.
        """
        first = known is None or (known.status is Listing.UNLISTED and known.learned is None)
        if not first or result.status != x402.PAYMENT_REQUIRED:
            return None
        host = await self.store.reading(endpoints.host_state, endpoint.host)
        if host.wildcard_at is not None:
            return None
        token = secrets.token_hex(8)
        return await x402.wildcard(self.egress, endpoint.resource, token=token, now=self.clock())

    def _record(
        self,
        tx: Connection,
        resource: Resource,
        probe: Probe,
        result: ProbeResult,
        owner: str,
        *,
        wildcard: bool | None,
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
            wildcard=wildcard,
        )
        observations.record(tx, (seen,), cadence=self.cadence, owner=owner, now=now)
        return endpoints.get(tx, endpoint.id) or endpoint


def known_now(
    tx: Connection, endpoint_id: str, *, now: int
) -> tuple[Endpoint | None, ProbeResult | None]:
    """An endpoint, and its last result if that is young enough to be shared."""
    last = probes.latest(tx, endpoint_id, since=now - SHARE_MS, until=now)
    fresh = None if last is None or last.outcome is Outcome.LOCAL else last
    return endpoints.get(tx, endpoint_id), fresh


def _failed_here(result: ProbeResult) -> bool:
    return result.status is None and result.attribution is not Attribution.THEIRS
