"""Budgets: what hosts and sites can do, and how often their endpoints are probed for it.

Rules:
- a host can do one probe at a time with a pause after it: `Cadence.host_gap_ms`, or what a probe of
  it was seen to take, whichever is longer;
- a site can do one probe in `Cadence.site_gap_ms`, where its hosts together could do more;
- where that is too little for the cadence of all, endpoints share it by weight (core/schedule);
- all probes together come at most `catch_up` times as fast as the plan needs, so that what is
  overdue after a stop comes in order and not at once.

What is counted is store/endpoints/standings', what keeps to it store/endpoints/budgets'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tollgauge.core.schedule import Cadence, Demand, Standing, round_for, shared_ms
from tollgauge.core.units import SECOND_MS

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
    """What a host gets: the columns of the same names (db/schema)."""

    round_ms: int = 0
    sharing: int = 0
    takes_turns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The shares of all hosts, and the budgets: the time of one probe in microseconds, by name (a
    site, or ALL).
    """

    shares: Mapping[str, HostShare]
    gaps_us: Mapping[str, int]


def plan(loads: Iterable[HostLoad], cadence: Cadence, *, catch_up: int) -> Plan:
    """The plan for these hosts."""
    by_site: dict[str, list[HostLoad]] = {}
    for load in loads:
        by_site.setdefault(load.site, []).append(load)
    shares: dict[str, HostShare] = {}
    gaps_us: dict[str, int] = {}
    rate = 0
    for site, hosts in by_site.items():
        rounds = {load.host: _host_round(load, cadence) for load in hosts}
        takes_turns = len(hosts) * cadence.site_gap_ms > max(cadence.host_gap_ms, 1)
        takes_turns &= len(hosts) > 1
        site_round = 0
        if takes_turns:
            gaps_us[site] = cadence.site_gap_ms * _US_PER_MS
            demands = _demands(hosts, rounds)
            site_round = round_for(demands, cadence, gap_ms=cadence.site_gap_ms)
        everybody = sum(sum(load.endpoints.values()) for load in hosts)
        for load in hosts:
            round_ms = max(rounds[load.host], site_round)
            mine = sum(load.endpoints.values())
            sharing = everybody if site_round > rounds[load.host] else mine
            shares[load.host] = HostShare(
                round_ms=round_ms, sharing=sharing if round_ms else 0, takes_turns=takes_turns
            )
        rate += sum(
            demand.endpoints * _SCALE // shared_ms(demand, cadence, site_round)
            for demand in _demands(hosts, rounds)
        )
    if rate:
        gaps_us[ALL] = max(_SCALE * _US_PER_MS // (catch_up * rate), 1)
    return Plan(shares=shares, gaps_us=gaps_us)


def _host_round(load: HostLoad, cadence: Cadence) -> int:
    """How long a round of a host's endpoints takes, by what the host alone can do."""
    pace_ms = load.pace_ms + ROUND_WAIT_MS if load.pace_ms else 0
    gap_ms = max(cadence.host_gap_ms, pace_ms)
    return round_for(_demands([load], {load.host: 0}), cadence, gap_ms=gap_ms)


def _demands(hosts: Iterable[HostLoad], rounds: Mapping[str, int]) -> list[Demand]:
    """What hosts want together; those of the same round are one."""
    counts: Counter[tuple[Standing, int]] = Counter()
    for load in hosts:
        for standing, number in load.endpoints.items():
            counts[standing, rounds[load.host]] += number
    return [
        Demand(standing=standing, endpoints=number, round_ms=round_ms)
        for (standing, round_ms), number in sorted(counts.items())
    ]
