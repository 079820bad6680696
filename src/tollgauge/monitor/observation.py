"""An observation: one probe of an endpoint and its outcome, before it is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from tollgauge.clients.x402 import PAYMENT_REQUIRED
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.probe.attribution import (
    LastUp,
    NetworkProbe,
    Vantages,
    Wave,
    is_network_failure,
    sign,
)
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.store.probes import probes
from tollgauge.store.probes import vantages as vantage_probes


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One probe of an endpoint and its outcome.

    `learned` is the request that elicited a 402, stored as `Endpoint.learned`. `pause_ms` is the
    pause that the host asked for (Retry-After). `wildcard` is True if the host answers 402 for any
    path, None if that was not tested. `round_ms` is the time for one round of the host's endpoints
    (HostState).
    """

    endpoint: Endpoint
    result: ProbeResult
    learned: str | None
    pause_ms: int = 0
    wildcard: bool | None = None
    round_ms: int = 0

    @property
    def sells(self) -> bool:
        """Whether the endpoint answered 402."""
        return self.result.status == PAYMENT_REQUIRED

    def makes_public(self, *, first: bool) -> bool:
        """Return whether this probe publishes the endpoint: it is the first 402 of an endpoint that
        no directory lists. `first` means that the endpoint was unknown before.
        """
        endpoint = self.endpoint
        never_sold = endpoint.status is Listing.UNLISTED and endpoint.learned is None
        return self.sells and (first or never_sold)

    @property
    def is_final(self) -> bool:
        """Whether this result does not depend on other results of its batch."""
        watched = self.endpoint.watched_until > self.result.at
        return not watched and not is_network_failure(self.result)


def wildcard_results(observations: Sequence[Observation]) -> dict[str, bool]:
    """Return the wildcard results by host, where tested."""
    return {seen.endpoint.host: seen.wildcard for seen in observations if seen.wildcard is not None}


def read_recent(tx: Connection, since: int, *, vantages: Vantages) -> tuple[NetworkProbe, ...]:
    """Return this vantage's results since a time; other vantages use other networks."""
    if vantages.is_primary:
        return probes.asked_since(tx, since)
    return vantage_probes.asked_since(tx, vantages.own, since)


def to_network_probes(
    tx: Connection, observations: Sequence[Observation], *, vantages: Vantages
) -> Wave:
    """Convert observations to the input of core/probe/attribution."""
    ids = [seen.endpoint.id for seen in observations]
    if vantages.is_primary:
        known = probes.last_up_of(tx, ids)
    else:
        known = vantage_probes.last_up_of(tx, vantages.own, ids)
    return [
        (
            NetworkProbe(
                host=seen.endpoint.host,
                at=seen.result.at,
                sign=sign(seen.result),
                last_up=known.get(seen.endpoint.id, LastUp()),
            ),
            seen.result,
        )
        for seen in observations
    ]
