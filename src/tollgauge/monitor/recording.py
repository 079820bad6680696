"""Record the results of probes: in one transaction the probe itself, the price, the changes
(monitor/watched_changes), the next due time and the mark for scoring, and release the hosts. The
caller holds their leases. Also records requests for a probe.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, Resource
from tollgauge.core.probe.attribution import ONE_VANTAGE, PARTLY_REACHABLE, Vantages
from tollgauge.core.probe.schedule import (
    DRAW_RANGE,
    HOST_PAUSE_MAX_MS,
    Cadence,
    Draws,
    after_probe,
)
from tollgauge.db import meta
from tollgauge.monitor import discovery, terms
from tollgauge.monitor import vantages as other_vantages
from tollgauge.monitor import watched_changes as changes
from tollgauge.monitor.probing import Observation
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.probes import probes
from tollgauge.store.probes.probes import NewProbe
from tollgauge.store.schedule import hosts
from tollgauge.store.scores import trust_records


def record(
    tx: Connection,
    observations: Sequence[Observation],
    *,
    cadence: Cadence,
    owner: str,
    now: int,
    slow_here: bool = False,
    vantages: Vantages = ONE_VANTAGE,
) -> None:
    """Record results of endpoints of different hosts and release the hosts after a gap.

    Everything is one transaction: after a crash either all or nothing is recorded. A repeated
    result (same endpoint and time) changes nothing.

    - `owner`: holder of the hosts' leases.
    - `slow_here`: unrelated endpoints were slow together, so the latencies of this batch are not
      evidence.
    - `vantages`: all vantages; the primary one made these probes.
    """
    _rescore_changed_hosts(tx, observations, now=now)
    probed = [_new_probe(seen, cadence, now=now) for seen in observations]
    recorded = probes.record_each(tx, probed)
    new = [
        (seen.endpoint, probe.result)
        for seen, probe in zip(observations, probed, strict=True)
        if seen.endpoint.id in recorded
    ]
    changes.observe_each(tx, new, slow_here=slow_here)
    if vantages.several:
        other_vantages.record_primary(tx, vantages.own, new, now=now)
    quotes = {
        seen.endpoint.id: (seen.result.quote, seen.result.at)
        for seen in observations
        if seen.result.quote is not None
        and seen.result.scored
        and not recorded.get(seen.endpoint.id)
    }
    if quotes:
        terms.observe_quotes(tx, quotes)
    free_at = {
        seen.endpoint.host: now + max(cadence.host_gap_ms, min(seen.pause_ms, HOST_PAUSE_MAX_MS))
        for seen in observations
    }
    hosts.release(tx, free_at, owner=owner, now=now)  # locks all host rows
    hosts.set_wildcards(tx, _wildcard_results(observations), at=now)


def _rescore_changed_hosts(
    tx: Connection, observations: Sequence[Observation], *, now: int
) -> None:
    """Mark all endpoints of hosts whose wildcard result changed for scoring.

    Their rows and those of the batch are locked together, sorted by ID and before any host, so that
    concurrent writers cannot deadlock.
    """
    changed = hosts.find_changed(tx, _wildcard_results(observations))
    if changed:
        of_wave = (seen.endpoint.id for seen in observations)
        endpoints.mark_dirty(tx, (*changed, *of_wave), now=now)


def draw_times() -> Draws:
    """Draw random times for the next probes, so that a host cannot predict them."""
    return Draws(gap=secrets.randbelow(DRAW_RANGE), confirm=secrets.randbelow(DRAW_RANGE))


def _new_probe(seen: Observation, cadence: Cadence, *, now: int) -> NewProbe:
    """Build the probe to record, with the next due time."""
    following = after_probe(
        seen.endpoint,
        seen.result,
        cadence,
        now=now,
        pause_ms=seen.pause_ms,
        round_ms=seen.round_ms,
        draws=draw_times(),
    )
    due, result = following.due, seen.result
    if result.reason == PARTLY_REACHABLE and not seen.pause_ms:
        due = min(due, now + cadence.watched_every_ms)  # the others' results may be older
    if (result.holds, result.confirms) != (following.holds, following.confirms):
        result = replace(result, holds=following.holds, confirms=following.confirms)
    return NewProbe(
        endpoint_id=seen.endpoint.id,
        result=result,
        next_due=due,
        learned=seen.learned,
        unconfirmed_at=following.unconfirmed_at,
        paused_until=now + seen.pause_ms if seen.pause_ms else 0,
    )


def record_requested(
    tx: Connection,
    resource: Resource,
    observation: Observation,
    *,
    cadence: Cadence,
    owner: str,
    now: int,
    vantages: Vantages = ONE_VANTAGE,
) -> Endpoint:
    """Record a probe made at a caller's request, and add its endpoint if it is unknown.

    Returns:
        The endpoint after the probe.
    """
    endpoint = endpoints.get(tx, resource.id)
    if endpoint is None:
        # Lock order: the turn of listings first, as in crawls, then endpoints, then hosts.
        meta.take_turn(tx, listings.LISTINGS_TURN)
        _rescore_changed_hosts(tx, (observation,), now=now)
        endpoint = discovery.adopt(tx, resource, source=discovery.REQUESTED, now=now)
    round_ms = hosts.get(tx, endpoint.host).round_ms
    seen = replace(observation, endpoint=replace(endpoint, asked_at=now), round_ms=round_ms)
    record(tx, (seen,), cadence=cadence, owner=owner, now=now, vantages=vantages)
    endpoints.record_request(tx, endpoint.id, now=now)  # its row is locked by now
    return endpoints.get(tx, endpoint.id) or endpoint


def _wildcard_results(observations: Sequence[Observation]) -> dict[str, bool]:
    """Return the wildcard results by host, where tested."""
    return {seen.endpoint.host: seen.wildcard for seen in observations if seen.wildcard is not None}


RECHECK_PAUSE_MS: Final = 10 * MINUTE_MS


class PayableError(TollgaugeError):
    """The last probe found the endpoint payable, or there was none."""


class RecheckedError(TollgaugeError):
    """A probe of the host was requested shortly before; `next_at` is in ms UTC."""

    def __init__(self, next_at: int) -> None:
        super().__init__("A probe of this host was requested in the last 10 minutes.")
        self.next_at = next_at


def request_probe(tx: Connection, endpoint_id: str, *, now: int) -> Endpoint | None:
    """Make a public endpoint due for a probe, at the request of anyone; return None for an unknown
    ID.

    Only after a probe that found it not payable: otherwise a seller could request probes at chosen
    times, and each would postpone the next regular one, whose time cannot be predicted
    (core/probe/schedule). Once per host and RECHECK_PAUSE_MS, because the host's budget serves all
    its endpoints.

    Raises:
        PayableError: No probe is needed.
        RecheckedError: The host's pause is not over.
    """
    if trust_records.get(tx, endpoint_id) is None:
        return None
    endpoints.lock(tx, [endpoint_id])  # before the host's row, like every other transaction
    endpoint = endpoints.get(tx, endpoint_id)
    if endpoint is None:
        return None
    if endpoint.payable is not False:
        raise PayableError("The last probe found this endpoint payable.")
    next_at = hosts.record_recheck(tx, endpoint.host, now=now, pause_ms=RECHECK_PAUSE_MS)
    if next_at is not None:
        raise RecheckedError(next_at)
    endpoints.make_one_due(tx, endpoint, now=now)
    return endpoint
