"""The probe loop: claim what is due, make one exchange each, judge, record.

A round takes one wave of endpoints, at most one a host, and has each host for itself until it
gives it back. Failures are judged together, because when unrelated hosts fail at once the fault
is ours (core/attribution); then each result is recorded in one transaction that also gives its
host back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tollgauge.clients import x402
from tollgauge.clients.connectivity import connected
from tollgauge.clients.egress import Egress
from tollgauge.clients.x402 import Probe
from tollgauge.core.attribution import common_mode
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """How many endpoints a round takes and how they are probed.

    `references` are https URLs of the operator's choice that tell whether *we* are connected.
    Raises ValueError.
    """

    wave: int = 128
    lease_ms: int = 60_000
    references: tuple[str, ...] = ()
    cadence: Cadence = field(default_factory=Cadence)

    def __post_init__(self) -> None:
        if self.wave < 1 or self.lease_ms < SECOND_MS:
            raise ValueError("wave must be at least 1, lease_ms at least 1000")
        for url in self.references:
            if not url.startswith("https://"):
                raise ValueError(f"references: {url!r} does not start with https://")


async def run(
    store: Store, egress: Egress, *, settings: ProbeSettings, clock: Clock, owner: str
) -> dict[str, object]:
    """Probe one wave of due endpoints; the tally counts outcomes, `busy` asks for the next."""
    async with store.write() as tx:
        due = await endpoints.claim_due(
            tx, owner=owner, now=clock(), limit=settings.wave, lease_ms=settings.lease_ms
        )
    if not due:
        return {}
    made = await asyncio.gather(*(x402.exchange(egress, each, now=clock()) for each in due))
    results = await _judged(egress, due, made, references=settings.references)
    await _wildcards(store, egress, due, results, clock=clock)
    async with store.read() as tx:
        slow_here = await flips.slow_here(tx, list(zip(due, results, strict=True)))
    for endpoint, probe, result in zip(due, made, results, strict=True):
        now = clock()
        async with store.write() as tx:
            await observations.record(
                tx,
                endpoint,
                result,
                learned=probe.learned,
                cadence=settings.cadence,
                pause_ms=pause_ms(probe.exchange.result, now=now),
                owner=owner,
                now=now,
                slow_here=slow_here,
            )
        PROBES.labels(result.outcome.value, result.attribution.value).inc()
    tally = Counter(str(result.outcome) for result in results)
    return {"probed": len(results), **tally, "busy": len(due) >= settings.wave}


async def _judged(
    egress: Egress,
    due: Sequence[Endpoint],
    made: Sequence[Probe],
    *,
    references: tuple[str, ...],
) -> tuple[ProbeResult, ...]:
    """The wave's results, with failures that are not the targets' doing attributed to us."""
    results = [judge(probe.exchange, lint(probe.exchange)) for probe in made]
    wave = [(endpoint.host, result) for endpoint, result in zip(due, results, strict=True)]
    silent = not any(result.status for result in results)
    online = await connected(egress, references) if silent else True
    return tuple(result for _, result in common_mode(wave, connected=online))


async def _wildcards(
    store: Store,
    egress: Egress,
    due: Sequence[Endpoint],
    results: Sequence[ProbeResult],
    *,
    clock: Clock,
) -> None:
    """Once a day, ask a random path of each host that sells: a 402 there means nothing."""
    selling = [each for each, result in zip(due, results, strict=True) if result.status == 402]
    await asyncio.gather(*(_wildcard(store, egress, each, clock=clock) for each in selling))


async def _wildcard(store: Store, egress: Egress, endpoint: Endpoint, *, clock: Clock) -> None:
    async with store.read() as tx:
        host = await endpoints.host_state(tx, endpoint.host)
    if host.wildcard_at is not None and host.wildcard_at > clock() - WILDCARD_EVERY_MS:
        return
    token = secrets.token_hex(8)
    answer = await x402.wildcard(egress, endpoint.resource, token=token, now=clock())
    if answer is not None:
        async with store.write() as tx:
            await endpoints.set_wildcard(tx, endpoint.host, wildcard=answer, at=clock())
