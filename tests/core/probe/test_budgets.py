"""Who gets which share of a budget that is too small."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.probe.budgets import ALL, HostLoad, HostShare, plan
from tollgauge.core.probe.schedule import (
    INTERVAL_MAX_MS,
    NORMAL,
    Cadence,
    Standing,
)

LISTED, WATCHED, DEAD = Standing.LISTED, Standing.WATCHED, Standing.DEAD
COUNTS = st.dictionaries(st.sampled_from(Standing), st.integers(1, 40_000), min_size=1)


def load(endpoints: Mapping[Standing, int], *, host: str = "big.com", pace_ms: int = 0) -> HostLoad:
    return HostLoad(host=host, site="big.com", pace_ms=pace_ms, endpoints=endpoints)


def interval(standing: Standing, share: HostShare) -> int:
    return standing.interval_ms(NORMAL, share.round_ms)


def share_of(endpoints: Mapping[Standing, int], *, pace_ms: int = 0) -> HostShare:
    whole_plan = plan([load(endpoints, pace_ms=pace_ms)], NORMAL, catch_up=2)
    return whole_plan.shares["big.com"]


def test_each_of_32_000_paths_of_a_host_is_probed_about_every_nine_hours() -> None:
    share = share_of({LISTED: 32_000})
    assert 8.8 * HOUR_MS < interval(LISTED, share) < 9.5 * HOUR_MS
    assert share.sharing == 32_000


def test_host_with_sufficient_budget_keeps_the_cadence() -> None:
    assert share_of({LISTED: 1_500, WATCHED: 30}) == HostShare()


def test_slow_host_has_a_smaller_budget() -> None:
    assert share_of({LISTED: 300}) == HostShare()
    slow = share_of({LISTED: 300}, pace_ms=11 * SECOND_MS)
    assert 55 * MINUTE_MS < interval(LISTED, slow) < 65 * MINUTE_MS


def test_watched_endpoints_of_a_crowded_host_keep_their_cadence_and_the_dead_wait_longest() -> None:
    share = share_of({WATCHED: 50, LISTED: 20_000, DEAD: 12_000})
    assert interval(WATCHED, share) == NORMAL.watched_every_ms
    assert interval(DEAD, share) > 3 * interval(LISTED, share) > HOUR_MS


@given(COUNTS, st.integers(0, 30_000))
def test_budgets_hold_no_endpoint_starves_and_priority_order_is_kept(
    endpoints: dict[Standing, int], pace_ms: int
) -> None:
    share = share_of(endpoints, pace_ms=pace_ms)
    gap_ms = max(SECOND_MS, pace_ms + 500 if pace_ms else 0)
    intervals = [interval(standing, share) for standing in Standing]
    asked_a_day = sum(
        number * DAY_MS / interval(standing, share) for standing, number in endpoints.items()
    )
    longest = max(interval(standing, share) for standing in endpoints)
    assert asked_a_day <= DAY_MS / gap_ms or longest == INTERVAL_MAX_MS
    assert max(intervals) <= INTERVAL_MAX_MS
    assert interval(WATCHED, share) <= interval(Standing.ASKED, share) <= interval(LISTED, share)
    assert interval(LISTED, share) <= min(interval(DEAD, share), interval(Standing.DELISTED, share))


@given(COUNTS, st.sampled_from(Standing))
def test_additional_endpoint_never_shortens_another_interval(
    endpoints: dict[Standing, int], more: Standing
) -> None:
    before = share_of(endpoints)
    after = share_of(endpoints | {more: endpoints.get(more, 0) + 1_000})
    assert after.round_ms >= before.round_ms


def test_site_of_a_thousand_hosts_gets_at_most_four_requests_per_second() -> None:
    loads = [load({LISTED: 50}, host=f"{number}.big.com") for number in range(1_000)]
    whole_plan = plan(loads, NORMAL, catch_up=2)
    (share,) = set(whole_plan.shares.values())
    assert (share.takes_turns, share.sharing) == (True, 50_000)
    assert 3.4 * HOUR_MS < interval(LISTED, share) < 3.8 * HOUR_MS, "50,000 at 4 a second: 3.5 h"
    assert whole_plan.gaps_us["big.com"] == 250_000


def test_hosts_of_a_small_site_do_not_share_a_budget() -> None:
    loads = [load({LISTED: 10}, host=f"{number}.big.com") for number in range(4)]
    whole_plan = plan(loads, NORMAL, catch_up=2)
    assert set(whole_plan.shares.values()) == {HostShare()}
    assert set(whole_plan.gaps_us) == {ALL}


def test_crowded_host_of_a_site_keeps_the_longer_of_both_intervals() -> None:
    others = [load({LISTED: 1}, host=f"{number}.big.com") for number in range(1_000)]
    whole_plan = plan([load({LISTED: 32_000}), *others], NORMAL, catch_up=2)
    alone = plan([load({LISTED: 32_000})], NORMAL, catch_up=2)
    assert whole_plan.shares["big.com"].round_ms == alone.shares["big.com"].round_ms
    assert whole_plan.shares["0.big.com"].round_ms == 0


def test_all_probes_together_may_come_twice_as_fast_as_they_usually_do() -> None:
    hosts = [
        HostLoad(host=f"h{number}.com", site=f"h{number}.com", pace_ms=0, endpoints={LISTED: 20})
        for number in range(900)
    ]
    gap_us = plan(hosts, NORMAL, catch_up=2).gaps_us[ALL]
    assert gap_us == 50_000, "18,000 endpoints in 30 minutes are 10 a second"
    assert plan(hosts, NORMAL, catch_up=4).gaps_us[ALL] == 25_000
    assert plan([], NORMAL, catch_up=2).gaps_us == {}


def test_without_gaps_no_budget_is_shared() -> None:
    free = Cadence(host_gap_ms=0, site_gap_ms=0)
    loads = [load({LISTED: 9_000}, host=f"{number}.big.com") for number in range(9)]
    assert set(plan(loads, free, catch_up=2).shares.values()) == {HostShare()}
