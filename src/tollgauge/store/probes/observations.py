"""Probes' results, each remembered as a whole.

The evidence, the price it quoted, what flipped, the next due time, the dirty mark and the end of
the host's lease are one transaction: a crash leaves all or nothing. Several results may share
one, which costs as many statements as one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from tollgauge.core.endpoint import Endpoint
from tollgauge.core.probe import ProbeResult
from tollgauge.core.schedule import Cadence, next_due
from tollgauge.db.transaction import step
from tollgauge.store.endpoints import discovery, endpoints
from tollgauge.store.probes import changes, probes
from tollgauge.store.probes.probes import NewProbe


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A probe's result. `learned` is the request that elicited a 402, `pause_ms` what the target
    asked for (Retry-After), `wildcard` whether a random path of the host answered 402 too (None:
    not asked).
    """

    endpoint: Endpoint
    result: ProbeResult
    learned: str | None
    pause_ms: int = 0
    wildcard: bool | None = None


@step
def record(
    tx: Connection,
    seen: Sequence[Observation],
    *,
    cadence: Cadence,
    owner: str,
    now: int,
    slow_here: bool = False,
) -> None:
    """Record results of endpoints of different hosts and give the hosts back after a gap.

    `slow_here` says that unrelated endpoints answered slowly together, so that it tells nothing
    of these. A repeated call for the same endpoint and instant changes nothing.
    """
    new = probes.record_each(
        tx,
        [
            NewProbe(
                endpoint_id=each.endpoint.id,
                result=each.result,
                next_due=next_due(each.endpoint, cadence, now=now, pause_ms=each.pause_ms),
                learned=each.learned,
            )
            for each in seen
        ],
    )
    fresh = [(each.endpoint, each.result) for each in seen if each.endpoint.id in new]
    changes.observe_each(tx, fresh, slow_here=slow_here)
    quotes = {
        each.endpoint.id: (each.result.quote, each.result.at)
        for each in seen
        if each.result.quote is not None and each.result.scored
    }
    if quotes:
        discovery.observe_quotes(tx, quotes)
    for each in seen:
        if each.wildcard is not None:
            endpoints.set_wildcard(tx, each.endpoint.host, wildcard=each.wildcard, at=now)
    free_at = {each.endpoint.host: now + max(cadence.host_gap_ms, each.pause_ms) for each in seen}
    endpoints.release_hosts(tx, free_at, owner=owner, now=now)
