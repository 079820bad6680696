"""Live probes for paid reports: queueing for hosts, and sharing of results.

Rules:
- at most one live probe per host in 10 seconds; callers in that time share its result, unless it
  shows a failure of this service or one without a clear cause;
- a resource that is not monitored yet is adopted with its first result;
- a target that is down is a result; a failure of this service is 503 and costs nothing;
- a resource that sent Retry-After is not probed until then, its host for at most ten minutes. A
  result of the last ten minutes replaces the probe; without one the request is refused;
- a few callers may wait for a host, in order, and no longer than published clients wait.

The probe itself is monitor/probing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import MINUTE_MS, SECOND_MS, whole_seconds
from tollgauge.core.endpoint.identity import Endpoint, Resource
from tollgauge.core.probe.attribution import PARTLY_REACHABLE
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.monitor import recording
from tollgauge.monitor.discovery import new_endpoint
from tollgauge.monitor.probing import Prober
from tollgauge.observe import LIVE_PROBES
from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger import payer_limit
from tollgauge.store.probes import probes
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import HostState
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.admission import Waiting
from tollgauge.web.paid.sale import HeldClaim

SHARE_MS: Final = 10 * SECOND_MS
LEASE_MS: Final = 45 * SECOND_MS
STAND_IN_MS: Final = 10 * MINUTE_MS
"""The age up to which a stored result replaces a probe of a host on hold."""
HOLD_MS: Final = 5 * SECOND_MS
"""Callers do not wait for a host with a longer pause."""
WAIT_S: Final = 12.0
"""Maximum wait for the host, because published clients give up after 20 seconds."""
WAITING_MAX: Final = 8
"""Resources of one host that may wait for it: each occupies a sale that others need."""
PAUSES_S: Final = (0.25, 0.5, 1.0)
"""How long to wait for a host that another process probes; the last is repeated."""


class Turns:
    """Locks by key (a resource's id, or a host), for the callers of one process in the order in
    which they came.
    """

    def __init__(self) -> None:
        self._locks: Final[dict[str, asyncio.Lock]] = {}
        self._callers: Final[Counter[str]] = Counter()

    def count(self, key: str) -> int:
        """How many callers hold a key or wait for it."""
        return self._callers[key]

    @contextlib.asynccontextmanager
    async def turn(self, key: str, *, until: float) -> AsyncIterator[None]:
        """Hold a key exclusively. Raises TimeoutError if it is not free by `until` (the event
        loop's clock).
        """
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._callers[key] += 1
        try:
            async with asyncio.timeout_at(until):
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            self._callers[key] -= 1
            if not self._callers[key]:
                del self._callers[key], self._locks[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProbe:
    """Live probes for callers who wait: each in turn, with the result of the one before if that is
    young enough.
    """

    prober: Prober
    waiting: Waiting
    _turns: Turns = field(default_factory=Turns, init=False, repr=False)

    async def fresh_result(
        self,
        resource: Resource,
        claim: HeldClaim,
        *,
        accept: Callable[[ProbeResult], None] = lambda _: None,
    ) -> tuple[Endpoint, ProbeResult]:
        """Return the endpoint and a result at most 10 seconds old. `accept` gets the first result
        of an unknown resource and may raise Problem: then the resource is not adopted.

        Raises Problem 503 when we could not probe.
        """
        until = asyncio.get_running_loop().time() + WAIT_S
        try:
            with self.waiting.on((resource.host,)):
                async with self._turns.turn(resource.id, until=until):
                    known, _, usable = await self.prober.store.reading(self.find_result, resource)
                    if known is not None and usable is not None:
                        return known, usable
                    if self._turns.count(resource.host) > WAITING_MAX:
                        raise _busy(resource.host)
                    async with self._turns.turn(resource.host, until=until):
                        return await self._probe_and_record(
                            resource, known, claim, accept=accept, until=until
                        )
        except TimeoutError:
            raise _busy(resource.host, waited=True) from None

    def find_result(
        self, tx: Connection, resource: Resource
    ) -> tuple[Endpoint | None, HostState, ProbeResult | None]:
        """Return a resource's endpoint, if it is known, its host, and a result that is recent
        enough to be the answer. Raises Problem 503 if the host is on hold and there is no such
        result.
        """
        now, known = self.prober.clock(), endpoints.get_with_host(tx, resource.id)
        endpoint, host = known or (None, hosts.get(tx, resource.host))
        free_at = max(host.free_at, endpoint.paused_until if endpoint else 0)
        on_hold = free_at > now + HOLD_MS
        last = probes.last(tx, resource.id)
        usable = recent_result(last, now=now, age_ms=STAND_IN_MS if on_hold else SHARE_MS)
        if on_hold and usable is None:
            raise Problem(
                503,
                "host-busy",
                f"{resource.host} asked not to be probed for a while, and nothing was seen of "
                "this resource within the last ten minutes. Nothing was charged.",
                retry_after=whole_seconds(free_at - now),
                host=payer_limit.for_probe(resource.host),
            )
        return endpoint, host, usable

    async def _probe_and_record(
        self,
        resource: Resource,
        known: Endpoint | None,
        claim: HeldClaim,
        *,
        accept: Callable[[ProbeResult], None],
        until: float,
    ) -> tuple[Endpoint, ProbeResult]:
        """Take the lease of the host, probe the resource and record the result."""
        owner = f"live-{secrets.token_hex(8)}"
        shared = await self._take_host(resource, owner, until=until)
        if shared is not None:
            return shared
        endpoint = known or new_endpoint(resource, now=self.prober.clock(), spread_ms=0)
        with LIVE_PROBES.track_inprogress():
            observation = await self.prober.probe_alone(endpoint, first=known is None)
        result = observation.result
        if known is None and not _is_local_failure(result):
            await self._accept(endpoint, result, accept, owner)
        endpoint = await claim.writing(
            recording.record_requested,
            resource,
            observation,
            cadence=self.prober.cadence,
            owner=owner,
            now=self.prober.clock(),
            vantages=self.prober.vantages,
        )
        if _is_local_failure(result):
            raise Problem(
                503,
                "probe-failed-here",
                "The probe failed because of an error on our side, or the cause is unclear. "
                "Nothing was charged.",
                retry_after=30,
                # A name server that does not answer may be the target's own.
                wasted=result.attribution is Attribution.UNKNOWN,
            )
        return endpoint, result

    async def _accept(
        self,
        endpoint: Endpoint,
        result: ProbeResult,
        accept: Callable[[ProbeResult], None],
        owner: str,
    ) -> None:
        """Let the caller refuse an unknown resource; then only the host's lease is released."""
        try:
            accept(result)
        except Problem:
            now = self.prober.clock()
            free_at = now + self.prober.cadence.host_gap_ms
            await self.prober.store.writing(
                hosts.release, {endpoint.host: free_at}, owner=owner, now=now
            )
            raise

    async def _take_host(
        self, resource: Resource, owner: str, *, until: float
    ) -> tuple[Endpoint, ProbeResult] | None:
        """Take the lease of a host and return None, or return the result of another process.

        Raises TimeoutError, or Problem 503 for a host on hold.
        """
        loop = asyncio.get_running_loop()
        for pause in chain(PAUSES_S, repeat(PAUSES_S[-1])):
            known, host, usable = await self.prober.store.reading(self.find_result, resource)
            if known is not None and usable is not None:
                return known, usable
            now = self.prober.clock()
            free = max(host.free_at, host.lease_until) <= now
            if free and await self.prober.store.writing(
                hosts.claim, resource.host, owner=owner, now=now, lease_ms=LEASE_MS
            ):
                return None
            wait = max((host.free_at - now) / 1000, pause)
            if loop.time() + wait > until:
                raise TimeoutError
            await asyncio.sleep(wait)
        raise AssertionError("the pauses never end")


def recent_result(last: ProbeResult | None, *, now: int, age_ms: int) -> ProbeResult | None:
    """Return the last result of an endpoint if it is recent enough to be shared and is about the
    target: after a failure of this service, or one without a clear cause, it is probed again.
    """
    if last is None or _is_local_failure(last) or not now - age_ms < last.at <= now:
        return None
    return last


def _busy(host: str, *, waited: bool = False) -> Problem:
    """503 for a host that is being probed for others. `waited`: the caller occupied a sale."""
    return Problem(
        503,
        "host-busy",
        f"{host} is being probed for others. Nothing was charged; try again.",
        retry_after=10,
        wasted=waited,
    )


def _is_local_failure(result: ProbeResult) -> bool:
    """Return whether a result does not describe the target. Refusals do, and so does a failure that
    other vantages do not see.
    """
    return not result.scored and result.reason != PARTLY_REACHABLE
