"""Claim and record probes of secondary vantages, and confirm failures with the primary vantage.

Results of secondary vantages confirm or contradict the primary one (core/probe/attribution) and do
not enter scores. monitor/probing owns the steps of a probe.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.attribution import PARTLY_REACHABLE, LastUp
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import DRAW_RANGE, HOST_PAUSE_MAX_MS, Cadence, next_due
from tollgauge.monitor.probing import Observation
from tollgauge.store.probes import probes
from tollgauge.store.probes import vantages as vantage_probes
from tollgauge.store.probes.vantages import VantageResult
from tollgauge.store.schedule import hosts

# After a failure at the primary vantage an endpoint is probed at the watched rate for this time,
# so that this vantage's result is never older than core/probe/attribution.VALID_MS.
ASKED_MS: Final = 2 * HOUR_MS
_NEW_ROWS_BATCH: Final = 1_000


def claim(
    tx: Connection,
    vantage: str,
    *,
    owner: str,
    now: int,
    limit: int,
    lease_ms: int,
    cadence: Cadence,
) -> tuple[Endpoint, ...]:
    """Claim endpoints that are due at a vantage.

    Endpoints without a row for it get one first, with due times that are spread over the probe
    interval by endpoint ID.
    """
    new = vantage_probes.find_unknown(tx, vantage, limit=_NEW_ROWS_BATCH)
    vantage_probes.add(tx, vantage, {id_: now + int(id_[:8], 16) % cadence.every_ms for id_ in new})
    return vantage_probes.claim_due(
        tx, vantage, owner=owner, now=now, limit=limit, lease_ms=lease_ms
    )


def record(
    tx: Connection,
    vantage: str,
    observations: Sequence[Observation],
    *,
    cadence: Cadence,
    owner: str,
    now: int,
) -> None:
    """Store a vantage's results for endpoints of different hosts and release the hosts."""
    ids = [observation.endpoint.id for observation in observations]
    before = vantage_probes.last_up_of(tx, vantage, ids)
    asked = vantage_probes.load_request_times(tx, vantage, ids)
    results = []
    free_at: dict[str, int] = {}
    for observation in observations:
        asked_at = asked.get(observation.endpoint.id)
        wanted = asked_at is not None and now - asked_at <= ASKED_MS
        due = next_due(
            observation.endpoint,
            cadence,
            now=now,
            pause_ms=observation.pause_ms,
            draw=secrets.randbelow(DRAW_RANGE),
        )
        results.append(
            VantageResult(
                endpoint_id=observation.endpoint.id,
                result=observation.result,
                last_up=before.get(observation.endpoint.id, LastUp()).after(observation.result),
                next_due=min(due, now + cadence.watched_every_ms) if wanted else due,
            )
        )
        pause_ms = max(cadence.host_gap_ms, min(observation.pause_ms, HOST_PAUSE_MAX_MS))
        free_at[observation.endpoint.host] = now + pause_ms
    vantage_probes.save(tx, vantage, results)
    hosts.release(tx, free_at, owner=owner, now=now)


def record_primary(
    tx: Connection, own: str, new: Sequence[tuple[Endpoint, ProbeResult]], *, now: int
) -> None:
    """Store the primary vantage's results for comparison with the others.

    Endpoints that just failed become due at the other vantages. If those vantages reach the
    endpoint, its first failure is retracted.
    """
    down = [seen.id for seen, result in new if result.scored and not result.up]
    before = vantage_probes.states(tx, down)
    failed = [
        id_ for id_ in down if any(state.primary and state.up for state in before.get(id_, ()))
    ]
    vantage_probes.save_primary(
        tx,
        own,
        [VantageResult(endpoint_id=seen.id, result=_as_seen(result)) for seen, result in new],
    )
    partly = [(seen, result) for seen, result in new if result.reason == PARTLY_REACHABLE]
    if ids := [*failed, *(endpoint.id for endpoint, _ in partly)]:
        vantage_probes.ask(tx, ids, now=now)
    probes.take_back(
        tx,
        {
            endpoint.id: endpoint.unconfirmed_at
            for endpoint, _ in partly
            if endpoint.unconfirmed_at is not None
        },
        reason=PARTLY_REACHABLE,
    )


def _as_seen(result: ProbeResult) -> ProbeResult:
    """Return the result as it was before other vantages were consulted."""
    if result.reason != PARTLY_REACHABLE:
        return result
    return replace(result, attribution=Attribution.TARGET)
