"""Observation: one probe of an endpoint and what was seen, before it is recorded.

How it is made and recorded is monitor/probing's, and monitor/vantages' where it is not the
primary vantage that asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from tollgauge.clients.x402 import PAYMENT_REQUIRED
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.probe.attribution import network_failure
from tollgauge.core.probe.probe import ProbeResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One probe of an endpoint and what was seen.

    `learned` is the request that elicited a 402 (`Endpoint.learned` from now on), `pause_ms` what
    the target asked for (Retry-After), `wildcard` whether a 402 of its host means nothing, None
    where that was not asked. `round_ms` is how long a round of the host's endpoints takes
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
        """Whether this is the first 402 of a resource that no directory lists, which anyone may
        see from now on; `first` says that nobody knew it.
        """
        endpoint = self.endpoint
        never_sold = endpoint.status is Listing.UNLISTED and endpoint.learned is None
        return self.sells and (first or never_sold)

    @property
    def is_final(self) -> bool:
        """Whether no other result of the same wave could change what is made of this one."""
        watched = self.endpoint.watched_until > self.result.at
        return not watched and not network_failure(self.result)
