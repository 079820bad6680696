"""An observation: one probe of an endpoint and its outcome, before it is recorded."""

from __future__ import annotations

from dataclasses import dataclass

from tollgauge.clients.x402 import PAYMENT_REQUIRED
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.probe.attribution import is_network_failure
from tollgauge.core.probe.probe import ProbeResult


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
