"""Schedule: the time of an endpoint's next probe, from cadence, budget, random draws and requested
pauses.

An endpoint is probed every 30 minutes, and every 5 minutes while it is watched. A delisted one is
probed every 6 hours if it was watched or a report of it was sold in the last 30 days, once a day
otherwise. An endpoint that was down for more than 7 days is dead: it is probed every 6 hours until
it is up, a caller asks for it, or its listing changes.

If a host or a site cannot be probed that often (one probe at a time, a pause after each), its
endpoints share the available probes by weight (`Standing.weight`): a watched endpoint gets 512
times the share of a listed one, and every endpoint gets some. `round_for` computes the length of a
round, `interval_ms` the actual interval of each endpoint.

The gap between two probes of an endpoint is drawn at random, so that no seller can predict them;
its mean is the interval. The store finds and leases due endpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.probe.exchange import Answer, Fault, retry_after_ms
from tollgauge.core.probe.probe import ProbeResult, holds_ms, statement

RETRY_AFTER_MAX_MS: Final = 6 * HOUR_MS
"""Maximum pause of an endpoint that requests one: its state is unknown in the meantime."""
HOST_PAUSE_MAX_MS: Final = 10 * MINUTE_MS
"""Maximum pause that one endpoint causes for the others of its host."""
DELISTED_EVERY_MS: Final = 6 * HOUR_MS
"""Interval of a delisted endpoint that was recently requested."""
ASKED_MS: Final = 30 * DAY_MS
"""Period after the last request in which an endpoint is probed more often."""
CONFIRM_LIMITS_MS: Final = (
    (40 * SECOND_MS, 80 * SECOND_MS),
    (3 * MINUTE_MS, 7 * MINUTE_MS),
)
"""Minimum and maximum delays of the confirming probes after the failure of an endpoint that was
payable.
"""
CONFIRM_WITHIN_MS: Final = 10 * MINUTE_MS
DRAW_RANGE: Final = 1 << 32
DEAD_MS: Final = 7 * DAY_MS
"""An endpoint that is down for longer is dead."""
DEAD_EVERY_MS: Final = 6 * HOUR_MS
"""Interval of a dead endpoint, unless the cadence is slower."""
INTERVAL_MAX_MS: Final = 30 * DAY_MS
"""Maximum interval of any endpoint: the window of a score."""
_PAUSING: Final = frozenset({429, 503})
"""The statuses whose Retry-After is honoured."""
_USED_PERCENT: Final = 95
"""Planned share of a budget: late probes need some room."""
RATE_SCALE: Final = 10**15
"""Fixed-point scale of probes per millisecond."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """Probe intervals and pauses, in milliseconds. `site_gap_ms` applies if the hosts of a site
    could be probed faster than that.
    """

    every_ms: Annotated[int, Field(ge=SECOND_MS)] = 30 * MINUTE_MS
    """Interval of an endpoint: 30 minutes."""
    watched_every_ms: Annotated[int, Field(ge=SECOND_MS)] = 5 * MINUTE_MS
    """Interval of a watched endpoint: 5 minutes."""
    host_gap_ms: NonNegativeInt = SECOND_MS
    """Pause of a host after each probe, independent of its number of endpoints."""
    site_gap_ms: NonNegativeInt = 250
    """Time between the starts of two probes of a site, over all its hosts."""


NORMAL: Final = Cadence()
"""The default cadence."""


class Standing(StrEnum):
    """Probe priority of an endpoint, highest first."""

    WATCHED = "watched"
    ASKED = "asked"
    LISTED = "listed"
    DELISTED_ASKED = "delisted-asked"
    DEAD = "dead"
    DELISTED = "delisted"

    @property
    def weight(self) -> int:
        """Relative share of a budget that is too small."""
        return _WEIGHTS[self]

    def interval_ms(self, cadence: Cadence, round_ms: int = 0) -> int:
        """Return the interval of its endpoints on a host with rounds of `round_ms` (0: no rounds,
        because the budget is large enough for the cadence).
        """
        share_ms = min(round_ms // self.weight, INTERVAL_MAX_MS)
        return max(self._cadence_ms(cadence), share_ms)

    def _cadence_ms(self, cadence: Cadence) -> int:
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


def find_standing(endpoint: Endpoint, *, now: int) -> Standing:
    """Return the standing of an endpoint. store/schedule/claims implements the same rule in
    SQL.
    """
    asked = endpoint.asked_at is not None and now - endpoint.asked_at <= ASKED_MS
    if endpoint.watched_until > now:
        return Standing.WATCHED
    if endpoint.status is Listing.DELISTED:
        return Standing.DELISTED_ASKED if asked else Standing.DELISTED
    if is_dead(endpoint, now=now):
        return Standing.DEAD
    return Standing.ASKED if asked else Standing.LISTED


def is_dead(endpoint: Endpoint, *, now: int) -> bool:
    """Return whether an endpoint was down for more than DEAD_MS, without a request for it or a
    change of its listing in that time.
    """
    if endpoint.down_since is None:
        return False
    reasons = (endpoint.down_since, endpoint.asked_at or 0, endpoint.listing_changed_at or 0)
    return now - max(reasons) > DEAD_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDemand:
    """A number of endpoints of one standing. Their interval is at least that of a host with rounds
    of `round_ms` (0: no such limit).
    """

    standing: Standing
    endpoints: int
    round_ms: int = 0

    def rate(self, cadence: Cadence, round_ms: int) -> int:
        """Return their probes per RATE_SCALE milliseconds if they share rounds of `round_ms`."""
        interval_ms = self.standing.interval_ms(cadence, max(round_ms, self.round_ms))
        return self.endpoints * RATE_SCALE // interval_ms


def round_for(demands: Sequence[ProbeDemand], cadence: Cadence, *, gap_ms: int) -> int:
    """Return the length of a round of endpoints that share a budget of one probe per `gap_ms`.

    It is the interval of an endpoint with weight 1; the others get a share by weight. 0 if the
    budget is large enough for the cadence of all.
    """

    def load(round_ms: int) -> int:
        return sum(demand.rate(cadence, round_ms) for demand in demands)

    budget = RATE_SCALE * _USED_PERCENT // (100 * gap_ms) if gap_ms else 0
    if not gap_ms or load(0) <= budget:
        return 0
    # Binary search. Upper limit: the longest interval, times the largest weight.
    low, high = 0, INTERVAL_MAX_MS * max(_WEIGHTS.values())
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if load(middle) <= budget else (middle, high)
    return high


def interval_ms(endpoint: Endpoint, cadence: Cadence, *, now: int, round_ms: int = 0) -> int:
    """Return the present interval of an endpoint in milliseconds.

    `round_ms` is the length of its host's rounds (0: its endpoints' cadence).
    """
    return find_standing(endpoint, now=now).interval_ms(cadence, round_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Random numbers for the times of the next probes, from 0 to below DRAW_RANGE.

    They come from a secure source outside of this package, and the drawn times are not published
    before they have passed.
    """

    gap: int
    confirm: int


def next_due(
    endpoint: Endpoint,
    cadence: Cadence,
    *,
    now: int,
    draw: int,
    pause_ms: int = 0,
    round_ms: int = 0,
) -> int:
    """Return the time of an endpoint's next probe (ms UTC); not before `now + pause_ms`.

    The gap is uniform between 1/6 and 11/6 of the interval, so no part of it is safe for a seller
    that closes between probes.
    """
    period = interval_ms(endpoint, cadence, now=now, round_ms=round_ms)
    return now + max(_draw_between((period // 6, period * 11 // 6), draw), pause_ms)


def _draw_between(limits: tuple[int, int], draw: int) -> int:
    """Map a draw to a time between two limits in milliseconds."""
    least, most = limits
    return least + (most - least) * draw // DRAW_RANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class NextProbe:
    """The effect of a result on the schedule of its endpoint.

    Attributes:
        due: Time of the next probe (ms UTC).
        holds: Maximum time in milliseconds that this result counts for.
        confirms: Whether this probe confirms a failure.
        unconfirmed_at: Time of the failure that is being confirmed; None otherwise.
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
    draws: Draws,
    pause_ms: int = 0,
    round_ms: int = 0,
) -> NextProbe:
    """Return the effect of a result on the schedule.

    - A dead endpoint that is up returns to its regular interval.
    - After a failure, an endpoint that was payable is probed again within each of
      CONFIRM_LIMITS_MS, if its regular probe is due more than a minute later and it did not request
      a pause.
    - A probe that describes the target ends that, whatever its result.

    `endpoint` is its state before this probe; `pause_ms` the pause that it requested (0 for none);
    `round_ms` the length of its host's rounds (0: its endpoints' cadence).
    """
    proven = statement(result)  # None unless the result describes the target
    failed_at = endpoint.unconfirmed_at
    if result.scored and result.up and endpoint.down_since is not None:
        endpoint = replace(endpoint, down_since=None)
    interval = interval_ms(endpoint, cadence, now=now, round_ms=round_ms)
    regular = next_due(
        endpoint, cadence, now=now, draw=draws.gap, pause_ms=pause_ms, round_ms=round_ms
    )
    within = min(interval // 2, CONFIRM_WITHIN_MS)
    confirms = failed_at is not None and result.at < failed_at + within
    if proven is not None:
        fails = endpoint.payable is True and not proven.payable and not pause_ms
        failed_at = result.at if fails else None
    tries = () if failed_at is None else _list_confirmations(failed_at, now=now, draw=draws.confirm)
    again = next((at for at in tries if now < at < regular - MINUTE_MS), None)
    payable = proven is None or proven.payable
    return NextProbe(
        due=regular if again is None else again,
        holds=holds_ms(payable=payable, interval_ms=max(interval, pause_ms)),
        confirms=confirms,
        unconfirmed_at=None if again is None else failed_at,
    )


def _list_confirmations(failed_at: int, *, now: int, draw: int) -> tuple[int, ...]:
    """Return the times of the confirming probes."""
    soon, later = CONFIRM_LIMITS_MS
    waited = now - failed_at
    if waited < soon[0]:
        return failed_at + _draw_between(soon, draw), failed_at + _draw_between(later, draw)
    return (failed_at + _draw_between(later, draw),) if waited < later[0] else ()


def pause_ms(result: Answer | Fault, *, now: int) -> int:
    """Return the pause in milliseconds that a 429 or 503 requests with Retry-After.

    At most RETRY_AFTER_MAX_MS; 0 for every other result.
    """
    if isinstance(result, Fault) or result.status not in _PAUSING:
        return 0
    wait_ms = retry_after_ms(result.header("retry-after"), now=now) or 0
    return min(wait_ms, RETRY_AFTER_MAX_MS)
