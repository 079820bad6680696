"""Schedule: when to probe again, by cadence, budget, jitter, and the pause that a target asks for.

An endpoint is probed every 30 minutes, and every 5 minutes while it is watched. One that was
delisted is probed every 6 hours while somebody watched it or paid for a report of it in the last
30 days, then once a day. One that was down for more than 7 days is dead: it is probed every 6
hours, until it is up, somebody asks for it, or a directory says something new of it.

Where a host or a site cannot be asked so often (one probe at a time, a pause after each), its
endpoints share the probes that it can have by weight (`Standing.weight`): a watched endpoint gets
512 times the share of a listed one, and every endpoint gets some. `round_for` says how long a round
takes then, `interval_ms` how often each endpoint really is probed.

Each endpoint has its place in the period, in the order of the ids, which probes and days have in
the database too. Endpoints that were probed together (after a stop, after a crawl) move apart
again, each towards its place by up to a twentieth of the period. At its place an endpoint is probed
up to a fortieth of the period earlier or later; how much changes from round to round, steadily for
all of them. This comes from hashes of ids and times, so it needs no randomness and does not drift.
Finding and leasing those that are due is the store's work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.probe.exchange import Answer, Fault, retry_after_ms
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.spans import holds_ms, statement

RETRY_AFTER_MAX_MS: Final = 6 * HOUR_MS
"""The longest pause that a target is granted: while it is not probed, its state is unknown."""
HOST_PAUSE_MAX_MS: Final = 10 * MINUTE_MS
"""The longest pause that one endpoint gets for the others of its host."""
DELISTED_EVERY_MS: Final = 6 * HOUR_MS
"""How often a delisted endpoint is probed that somebody asked for."""
ASKED_MS: Final = 30 * DAY_MS
"""For how long a delisted endpoint that somebody asked for is probed more often than once a day."""
CONFIRM_AFTER_MS: Final = (MINUTE_MS, 5 * MINUTE_MS)
"""How long after the failure of an endpoint that was payable it is probed again, without draws."""
CONFIRM_LIMITS_MS: Final = (
    (40 * SECOND_MS, 80 * SECOND_MS),
    (3 * MINUTE_MS, 7 * MINUTE_MS),
)
"""Limits of the same with draws."""
CONFIRM_WITHIN_MS: Final = 10 * MINUTE_MS
DRAW_RANGE: Final = 1 << 32
DEAD_MS: Final = 7 * DAY_MS
"""How long an endpoint is down until it is dead."""
DEAD_EVERY_MS: Final = 6 * HOUR_MS
"""How often a dead endpoint is probed, unless the cadence is slower."""
INTERVAL_MAX_MS: Final = 30 * DAY_MS
"""No endpoint waits longer: the window of a score."""
_PAUSING: Final = frozenset({429, 503})
"""The statuses whose Retry-After is heeded."""
_USED_PERCENT: Final = 95
"""How much of a budget is planned: late probes need some room."""
_ID_BITS: Final = 64
"""An endpoint's id is so many bits, in hexadecimal digits."""
_SCALE: Final = 10**15
"""Probes per millisecond are counted in so many parts, as integers."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How often and how gently to probe, in milliseconds. `site_gap_ms` counts where a site could
    be probed faster than that.
    """

    every_ms: Annotated[int, Field(ge=SECOND_MS)] = 30 * MINUTE_MS
    """Between two probes of an endpoint: 30 minutes."""
    watched_every_ms: Annotated[int, Field(ge=SECOND_MS)] = 5 * MINUTE_MS
    """Between two probes of a watched endpoint: 5 minutes."""
    host_gap_ms: NonNegativeInt = SECOND_MS
    """The pause of a host after each probe, however many paths it lists."""
    site_gap_ms: NonNegativeInt = 250
    """Between the beginnings of two probes of a site, however many hosts it has."""


NORMAL: Final = Cadence()
"""The cadence where the operator sets none."""


class Standing(StrEnum):
    """What an endpoint is worth a probe, the most valuable first."""

    WATCHED = "watched"
    ASKED = "asked"
    LISTED = "listed"
    DELISTED_ASKED = "delisted-asked"
    DEAD = "dead"
    DELISTED = "delisted"

    @property
    def weight(self) -> int:
        """Its share of a budget that is too small, relative to others."""
        return _WEIGHTS[self]

    def every_ms(self, cadence: Cadence) -> int:
        """How often it is probed where the budget allows."""
        match self:
            case Standing.WATCHED:
                return cadence.watched_every_ms
            case Standing.ASKED | Standing.LISTED:
                return cadence.every_ms
            case Standing.DEAD:
                return max(cadence.every_ms, DEAD_EVERY_MS)
            case Standing.DELISTED_ASKED:
                return DELISTED_EVERY_MS
            case Standing.DELISTED:
                return DAY_MS


_WEIGHTS: Final = {
    Standing.WATCHED: 2_048,
    Standing.ASKED: 16,
    Standing.LISTED: 4,
    Standing.DELISTED_ASKED: 4,
    Standing.DEAD: 1,
    Standing.DELISTED: 1,
}


def standing(endpoint: Endpoint, *, now: int) -> Standing:
    """The standing of an endpoint. store/schedule/budgets says the same in SQL."""
    asked = endpoint.asked_at is not None and now - endpoint.asked_at <= ASKED_MS
    if endpoint.watched_until > now:
        return Standing.WATCHED
    if endpoint.status is Listing.DELISTED:
        return Standing.DELISTED_ASKED if asked else Standing.DELISTED
    if is_dead(endpoint, now=now):
        return Standing.DEAD
    return Standing.ASKED if asked else Standing.LISTED


def is_dead(endpoint: Endpoint, *, now: int) -> bool:
    """Whether an endpoint was down for more than DEAD_MS, and for so long nobody asked for it, and
    no directory said anything new of it.
    """
    if endpoint.down_since is None:
        return False
    reasons = (endpoint.down_since, endpoint.asked_at or 0, endpoint.listing_changed_at or 0)
    return now - max(reasons) > DEAD_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDemand:
    """So many endpoints of one standing, none of which gets a shorter interval than a host's
    `round_ms` allows (0: no such limit).
    """

    standing: Standing
    endpoints: int
    round_ms: int = 0


def round_for(demands: Sequence[ProbeDemand], cadence: Cadence, *, gap_ms: int) -> int:
    """How long a round of endpoints that share a budget of one probe in `gap_ms` takes: the
    interval of one with weight 1, of which the others get a share by weight. 0 where the budget is
    large enough for the cadence of all.
    """

    def load(round_ms: int) -> int:
        return sum(
            demand.endpoints * _SCALE // shared_ms(demand, cadence, round_ms) for demand in demands
        )

    budget = _SCALE * _USED_PERCENT // (100 * gap_ms) if gap_ms else 0
    if not gap_ms or load(0) <= budget:
        return 0
    # An interval is at most as long as the longest that one of weight 1 may get.
    low, high = 0, INTERVAL_MAX_MS * max(_WEIGHTS.values())
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if load(middle) <= budget else (middle, high)
    return high


def shared_ms(demand: ProbeDemand, cadence: Cadence, round_ms: int) -> int:
    """How often each endpoint of a demand is probed in rounds of `round_ms`."""
    return _interval_ms(demand.standing, cadence, max(round_ms, demand.round_ms))


def interval_ms(endpoint: Endpoint, cadence: Cadence, *, now: int, round_ms: int = 0) -> int:
    """How often an endpoint is probed now, in milliseconds, on a host whose rounds take `round_ms`
    (0: as long as its endpoints' cadence).
    """
    return _interval_ms(standing(endpoint, now=now), cadence, round_ms)


def _interval_ms(standing_: Standing, cadence: Cadence, round_ms: int) -> int:
    every_ms = standing_.every_ms(cadence)
    return max(every_ms, min(round_ms // standing_.weight, INTERVAL_MAX_MS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Random numbers for the times of the next probes, each from 0 to below DRAW_RANGE. They come
    from a secure source outside of this package, and the drawn times are published nowhere before
    they have passed.
    """

    gap: int
    confirm: int


def next_due(
    endpoint: Endpoint,
    cadence: Cadence,
    *,
    now: int,
    pause_ms: int = 0,
    round_ms: int = 0,
    draws: Draws | None = None,
) -> int:
    """When to probe an endpoint next, in milliseconds UTC; not before `now + pause_ms`.

    With `draws` the gap is uniform between 1/6 and 11/6 of the interval, so that no part of it is
    safe for a seller that closes between probes. Without, it is the endpoint's place in the next
    period.
    """
    period = interval_ms(endpoint, cadence, now=now, round_ms=round_ms)
    if draws is not None:
        return now + max(_uniform((period // 6, period * 11 // 6), draws.gap), pause_ms)
    half, most = period // 2, period // 20
    # To its place: later, or earlier below zero.
    offset = (place_ms(endpoint.id, period) - now + half) % period - half
    if abs(offset) > most:
        drawn = _drawn(f"{endpoint.id}:{now // period}", most)
        jitter = drawn * (1 if offset > 0 else -1)
    else:
        jitter = max(-most, min(offset + _wobble_ms(now + period + offset, period), most))
    return now + max(period + jitter, pause_ms)


def _uniform(limits: tuple[int, int], draw: int) -> int:
    """A time between two limits in milliseconds."""
    least, most = limits
    return least + (most - least) * draw // DRAW_RANGE


def place_ms(endpoint_id: str, period: int) -> int:
    """The place of an endpoint in every period of so many milliseconds, counted from the epoch.
    Places have the order of the ids, so that what is probed together lies together in the tables
    that have an endpoint's id as their key.
    """
    return int(endpoint_id, 16) * period >> _ID_BITS


def _wobble_ms(at: int, period: int) -> int:
    """How much later than at its place an endpoint is probed whose place comes at an instant;
    earlier below zero. From one round to the next it changes steadily, so that the probes of a
    round keep the order of their places and come as evenly as those.
    """
    number, place = divmod(at, period)
    before, after = (_drawn(f"{period}:{one}", period // 20) for one in (number, number + 1))
    return before + (after - before) * place // period - period // 40


def _drawn(seed: str, below: int) -> int:
    """A number from 0 on, the same for a seed every time."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % below


@dataclass(frozen=True, slots=True, kw_only=True)
class NextProbe:
    """What a result means for the probes of its endpoint: when the next one is `due` (ms UTC), for
    how long this one `holds`, whether it `confirms` a failure, and the instant of the failure that
    is being asked again (`unconfirmed_at`), None while there is none.
    """

    due: int
    holds: int
    confirms: bool
    unconfirmed_at: int | None


def after_probe(
    endpoint: Endpoint,
    result: ProbeResult,
    cadence: Cadence,
    *,
    now: int,
    pause_ms: int = 0,
    round_ms: int = 0,
    draws: Draws | None = None,
) -> NextProbe:
    """What follows from a result. `endpoint` is as it was before; `pause_ms` is the pause that it
    asked for, 0 for none; `round_ms` how long the rounds of its host take (0: as long as its
    endpoints' cadence).

    - a dead endpoint that is up is probed as often as any other again;
    - after a failure, an endpoint that was payable is asked again after each of CONFIRM_AFTER_MS,
      as far as its regular probe is due more than a minute later, and unless it asked for a pause;
    - a probe that says something of the target ends that, whatever it says;
    - the regular probes stay where they would have been.
    """
    said = statement(result)
    failed_at = endpoint.unconfirmed_at
    if result.scored and result.up and endpoint.down_since is not None:
        endpoint = replace(endpoint, down_since=None)
    regular = next_due(
        endpoint, cadence, now=now, pause_ms=pause_ms, round_ms=round_ms, draws=draws
    )
    nominal = regular - result.at
    confirms = False
    if draws is not None:
        interval = interval_ms(endpoint, cadence, now=now, round_ms=round_ms)
        nominal = max(interval, pause_ms)
        within = min(interval // 2, CONFIRM_WITHIN_MS)
        confirms = failed_at is not None and result.at < failed_at + within
    elif failed_at is not None:
        planned = next_due(endpoint, cadence, now=failed_at, round_ms=round_ms)
        confirms = result.at < planned - MINUTE_MS
        regular = max(planned, now + pause_ms) if confirms else regular
    if said is not None:
        fails = endpoint.payable is True and not said.payable and not pause_ms
        failed_at = result.at if fails else None
    tries = () if failed_at is None else _confirmations(failed_at, now=now, draws=draws)
    again = next((at for at in tries if now < at < regular - MINUTE_MS), None)
    payable = said is None or said.payable
    return NextProbe(
        due=regular if again is None else again,
        holds=holds_ms(payable=payable, interval_ms=nominal),
        confirms=confirms,
        unconfirmed_at=None if again is None else failed_at,
    )


def _confirmations(failed_at: int, *, now: int, draws: Draws | None) -> tuple[int, ...]:
    """When a failure can be probed again; each of the two draws is used once."""
    if draws is None:
        return tuple(failed_at + wait for wait in CONFIRM_AFTER_MS)
    soon, later = CONFIRM_LIMITS_MS
    waited = now - failed_at
    if waited < soon[0]:
        return failed_at + _uniform(soon, draws.confirm), failed_at + _uniform(later, draws.confirm)
    return (failed_at + _uniform(later, draws.confirm),) if waited < later[0] else ()


def pause_ms(result: Answer | Fault, *, now: int) -> int:
    """The pause in milliseconds that a 429 or 503 asks for with Retry-After, at most
    RETRY_AFTER_MAX_MS; 0 for every other result.
    """
    if isinstance(result, Fault) or result.status not in _PAUSING:
        return 0
    wait_ms = retry_after_ms(result.header("retry-after"), now=now) or 0
    return min(wait_ms, RETRY_AFTER_MAX_MS)
