"""Budgets: how many probes hosts and sites can have, and how they share them.

Rules:
- a host has one probe at a time with a pause after it: one in `Cadence.host_gap_ms`, or in what its
  probes take, whichever is longer;
- a site has one probe in `Cadence.site_gap_ms`, where its hosts together could have more;
- where that is too little for the cadence of all endpoints, they share it by weight
  (core/probe/schedule);
- all probes together come at most `catch_up` times as fast as the plan needs, so that after a stop
  overdue probes come one after another and not at once.

Counting endpoints is store/schedule/budgets' work, claiming within the budgets
store/schedule/budgets'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.probe.schedule import Cadence, ProbeDemand, Standing, round_for, shared_ms

ALL: Final = "*"
"""The name of the budget of all probes together; no site has it."""
ROUND_WAIT_MS: Final = SECOND_MS // 2
"""For how long a free host waits for the next round of the probe loop, on average."""
_US_PER_MS: Final = 1_000
_SCALE: Final = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """How many endpoints of each standing a host has, and how long one of its probes takes in all
    (`pace_ms`), 0 before that is known.
    """

    host: str
    site: str
    pace_ms: int
    endpoints: Mapping[Standing, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """What a host gets: how long its rounds take (0: no longer than its endpoints' cadence), how
    many endpoints share one, and whether it takes turns with the other hosts of its site.
    """

    round_ms: int = 0
    sharing: int = 0
    takes_turns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlan:
    """The shares of all hosts, and the budgets: the time of one probe in microseconds, by site, and
    of all probes together under the name ALL.
    """

    shares: Mapping[str, HostShare]
    gaps_us: Mapping[str, int]


def plan(loads: Iterable[HostLoad], cadence: Cadence, *, catch_up: int) -> BudgetPlan:
    """The plan for these hosts."""
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
            shares[load.host] = HostShare(
                round_ms=max(host_round, site_round),
                sharing=_endpoints(sharing) if host_round or site_round else 0,
                takes_turns=takes_turns,
            )
        rate += sum(
            demand.endpoints * _SCALE // shared_ms(demand, cadence, site_round)
            for demand in demands
        )
    if rate:
        gaps_us[ALL] = max(_SCALE * _US_PER_MS // (catch_up * rate), 1)
    return BudgetPlan(shares=shares, gaps_us=gaps_us)


def _endpoints(loads: Iterable[HostLoad]) -> int:
    """How many endpoints some hosts have together."""
    return sum(sum(load.endpoints.values()) for load in loads)


def _host_round(load: HostLoad, cadence: Cadence) -> int:
    """How long a round of a host's endpoints takes, by the budget of the host alone."""
    pace_ms = load.pace_ms + ROUND_WAIT_MS if load.pace_ms else 0
    gap_ms = max(cadence.host_gap_ms, pace_ms)
    return round_for(_demands([load], {load.host: 0}), cadence, gap_ms=gap_ms)


def _demands(hosts: Iterable[HostLoad], rounds: Mapping[str, int]) -> list[ProbeDemand]:
    """What hosts want together, added up for each standing and round."""
    counts: Counter[tuple[Standing, int]] = Counter()
    for load in hosts:
        for standing, number in load.endpoints.items():
            counts[standing, rounds[load.host]] += number
    return [
        ProbeDemand(standing=standing, endpoints=number, round_ms=round_ms)
        for (standing, round_ms), number in sorted(counts.items())
    ]
