"""Vantages: the places on the network that endpoints are probed from.

Rules (docs/methodology.md, *several vantages*):
- the first configured vantage is the primary: its probes are the evidence of scores, and published
  latencies are measured there;
- of every other vantage the latest result of each endpoint counts, for RECENT_MS;
- with several vantages, an endpoint is down only if it is down for more than half of those with a
  result in the last RECENT_MS. A failure that fewer of them see is not scored;
- an endpoint that some of them reach and others do not is partly reachable, for as long as a probe
  counts (core/probe/spans).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import HOLDS_MIN_MS, ProbeResult

DEFAULT: Final = "default"
"""The name of the only vantage if the operator configures none."""
NAME_PATTERN: Final = r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
RECENT_MS: Final = 10 * MINUTE_MS
"""Validity of the latest result of another vantage."""
PARTLY_REACHABLE: Final = "partly-reachable"
"""The reason of a failure that most of the other vantages do not see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vantages:
    """The vantage of this process (`own`), and all vantages, the primary first; empty if there is
    only one.
    """

    own: str = DEFAULT
    all: tuple[str, ...] = ()

    @property
    def primary(self) -> str:
        """The name of the vantage whose probes are scored."""
        return self.all[0] if self.all else self.own

    @property
    def is_primary(self) -> bool:
        """Whether this process probes from the primary vantage."""
        return self.own == self.primary

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.all) > 1


ONE: Final = Vantages()
"""A service with one vantage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageState:
    """The last result of a vantage for an endpoint.

    Attributes:
        primary: Whether this vantage's probes are scored.
        at: Milliseconds UTC.
        latency_ms: None if it was not up.
    """

    vantage: str
    primary: bool
    at: int
    outcome: Outcome
    attribution: Attribution
    up: bool
    payable: bool
    latency_ms: int | None

    def says(self, now: int, *, for_ms: int) -> bool:
        """Return whether this describes the endpoint and is at most `for_ms` old."""
        return self.attribution is Attribution.TARGET and now - self.at <= for_ms


def exclude_minority_failure(result: ProbeResult, states: Iterable[VantageState]) -> ProbeResult:
    """Return a result of the primary vantage, excluded if it is a failure that at most half of the
    vantages see.

    `states` are those before this probe.
    """
    if not result.scored or result.up:
        return result
    counted = [
        state for state in states if not state.primary and state.says(result.at, for_ms=RECENT_MS)
    ]
    down = 1 + sum(not state.up for state in counted)
    if 2 * down > 1 + len(counted):
        return result
    return replace(result, attribution=Attribution.UNKNOWN, reason=PARTLY_REACHABLE)


def partly_reachable(states: Iterable[VantageState], *, now: int) -> bool:
    """Return whether an endpoint is up for some vantages and down for others, by their results of
    the last HOLDS_MIN_MS.
    """
    return len({state.up for state in states if state.says(now, for_ms=HOLDS_MIN_MS)}) > 1
