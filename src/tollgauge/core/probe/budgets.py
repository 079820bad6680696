"""Budgets: the number of probes that hosts and sites can have, and how they share them.

Rules:
- a host has one probe at a time with a pause after it: one per `Cadence.host_gap_ms`, or per
  duration of its probes, whichever is longer;
- a site has one probe per `Cadence.site_gap_ms`, if its hosts together could have more;
- if that is too little for the cadence of all endpoints, they share it by weight
  (core/probe/schedule);
- all probes together come at most `catch_up` times as fast as planned, so overdue probes after a
  stop are spread over time.

store/schedule/claims counts endpoints and claims within the budgets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.probe.schedule import RATE_SCALE, Cadence, ProbeDemand, Standing, round_for

ALL: Final = "*"
"""Name of the budget of all probes together; no site has this name."""
ROUND_WAIT_MS: Final = SECOND_MS // 2
"""Average time that a free host waits for the next round of the probe loop."""
_US_PER_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """The endpoints of a host by standing, and the total duration of one of its probes (`pace_ms`;
    0 before it is known).
    """

    host: str
    site: str
    pace_ms: int
    endpoints: Mapping[Standing, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """The share of a host.

    Attributes:
        round_ms: Length of its rounds; 0: its endpoints' cadence.
        sharing: Number of endpoints that share a round.
        takes_turns: Whether it shares a budget with the other hosts of its site.
    """

    round_ms: int = 0
    sharing: int = 0
    takes_turns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlan:
    """The shares of all hosts, and the budgets: the time per probe in microseconds by site, and of
    all probes together under the name ALL.
    """

    shares: Mapping[str, HostShare]
    gaps_us: Mapping[str, int]


def plan(loads: Iterable[HostLoad], cadence: Cadence, *, catch_up: int) -> BudgetPlan:
    """Return the shares of hosts, and the budgets of sites and of all probes together.

    All probes together come at most `catch_up` times as fast as planned.
    """
    by_site: dict[str, list[HostLoad]] = {}
    for load in loads:
        by_site.setdefault(load.site, []).append(load)
    shares: dict[str, HostShare] = {}
    gaps_us: dict[str, int] = {}
    rate = 0
    for site, hosts in by_site.items():
        rounds = {load.host: _host_round(load, cadence) for load in hosts}
        demands = _demands(hosts, rounds)
        least_ms = len(hosts) * cadence.site_gap_ms
        takes_turns = len(hosts) > 1 and least_ms > max(cadence.host_gap_ms, 1)
        site_round = 0
        if takes_turns:
            gaps_us[site] = cadence.site_gap_ms * _US_PER_MS
            site_round = round_for(demands, cadence, gap_ms=cadence.site_gap_ms)
        for load in hosts:
            host_round = rounds[load.host]
            sharing = hosts if site_round > host_round else [load]
            count = sum(sum(one.endpoints.values()) for one in sharing)
            shares[load.host] = HostShare(
                round_ms=max(host_round, site_round),
                sharing=count if host_round or site_round else 0,
                takes_turns=takes_turns,
            )
        rate += sum(demand.rate(cadence, site_round) for demand in demands)
    if rate:
        gaps_us[ALL] = max(RATE_SCALE * _US_PER_MS // (catch_up * rate), 1)
    return BudgetPlan(shares=shares, gaps_us=gaps_us)


def _host_round(load: HostLoad, cadence: Cadence) -> int:
    """Return the length of a round by the host's budget only."""
    pace_ms = load.pace_ms + ROUND_WAIT_MS if load.pace_ms else 0
    gap_ms = max(cadence.host_gap_ms, pace_ms)
    return round_for(_demands([load], {load.host: 0}), cadence, gap_ms=gap_ms)


def _demands(hosts: Iterable[HostLoad], rounds: Mapping[str, int]) -> list[ProbeDemand]:
    """Return the demands of hosts, added up by standing and round."""
    counts: Counter[tuple[Standing, int]] = Counter()
    for load in hosts:
        for standing, number in load.endpoints.items():
            counts[standing, rounds[load.host]] += number
    return [
        ProbeDemand(standing=standing, endpoints=number, round_ms=round_ms)
        for (standing, round_ms), number in sorted(counts.items())
    ]
