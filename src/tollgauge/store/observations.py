"""One probe's result, remembered as a whole.

The evidence, the price it quoted, what flipped, the next due time, the dirty mark and the end of
the host's lease are one transaction (architecture.md, journey *a probe*): a crash leaves all or
nothing.
"""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from tollgauge.core.endpoint import Endpoint
from tollgauge.core.probe import ProbeResult
from tollgauge.core.schedule import Cadence, next_due
from tollgauge.store import discovery, endpoints, flips, probes


async def record(
    tx: AsyncConnection,
    endpoint: Endpoint,
    result: ProbeResult,
    *,
    learned: str | None,
    cadence: Cadence,
    pause_ms: int,
    owner: str,
    now: int,
    slow_here: bool = False,
) -> None:
    """Record a result and give its host back to others after a gap.

    `pause_ms` is what the target asked for (Retry-After); `slow_here` says that unrelated endpoints
    answered slowly together, so that it tells nothing of this one. A repeated call for the same
    endpoint and instant changes nothing.
    """
    due = next_due(endpoint, cadence, now=now, pause_ms=pause_ms)
    new = await probes.record(tx, endpoint.id, result, next_due=due, learned=learned)
    if new:
        await flips.observe(tx, endpoint, result, slow_here=slow_here)
    if result.quote is not None and result.scored:
        await discovery.observe_quote(tx, endpoint, result.quote, at=result.at)
    free_at = now + max(cadence.host_gap_ms, pause_ms)
    await endpoints.release_host(tx, endpoint.host, owner=owner, now=now, free_at=free_at)
