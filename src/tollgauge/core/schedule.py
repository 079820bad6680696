"""When to probe again: cadence, jitter, and the pause that a target asked for.

An endpoint is probed every 30 minutes, and every 5 minutes while it is watched. One that was
delisted is probed every 6 hours while somebody watched it or paid for a report of it in the last
30 days, then once a day. The jitter, up to a tenth of that period, comes from a hash of the
endpoint's id and the time, so it needs no randomness and does not drift. Which endpoints are due is
the store's query; leasing them is jobs/probe's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.core.endpoint import Endpoint, Listing
from tollgauge.core.exchange import Answer, Fault
from tollgauge.core.probe import ProbeResult
from tollgauge.core.retry_after import retry_after_ms
from tollgauge.core.spans import holds_ms, statement
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

RETRY_AFTER_MAX_MS: Final = 6 * HOUR_MS
"""The longest pause that a target is granted: while it is not probed, its state is unknown."""
HOST_PAUSE_MAX_MS: Final = 10 * MINUTE_MS
"""The longest pause that one endpoint gets for the others of its host."""
DELISTED_EVERY_MS: Final = 6 * HOUR_MS
ASKED_MS: Final = 30 * DAY_MS
"""For how long a delisted endpoint that somebody asked for is probed more often than once a day."""
CONFIRM_AFTER_MS: Final = (MINUTE_MS, 5 * MINUTE_MS)
"""How long after the failure of an endpoint that was payable it is asked again."""
_PAUSING: Final = frozenset({429, 503})


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How often and how gently to probe, in milliseconds.

    `host_gap_ms` is the pause that a host gets after each probe, however many paths it lists.
    """

    every_ms: Annotated[int, Field(ge=SECOND_MS)] = 30 * MINUTE_MS
    watched_every_ms: Annotated[int, Field(ge=SECOND_MS)] = 5 * MINUTE_MS
    host_gap_ms: NonNegativeInt = SECOND_MS


NORMAL: Final = Cadence()
"""The cadence where the operator sets none."""


def interval_ms(endpoint: Endpoint, cadence: Cadence, *, now: int) -> int:
    """How often an endpoint is probed now, in milliseconds."""
    if endpoint.watched_until > now:
        return cadence.watched_every_ms
    if endpoint.status is not Listing.DELISTED:
        return cadence.every_ms
    asked_lately = endpoint.asked_at is not None and now - endpoint.asked_at <= ASKED_MS
    return DELISTED_EVERY_MS if asked_lately else DAY_MS


def next_due(endpoint: Endpoint, cadence: Cadence, *, now: int, pause_ms: int = 0) -> int:
    """When to probe an endpoint next, in milliseconds UTC; not before `now + pause_ms`."""
    period = interval_ms(endpoint, cadence, now=now)
    seed = hashlib.sha256(f"{endpoint.id}:{now // period}".encode()).digest()
    jitter = int.from_bytes(seed[:4], "big") % (period // 10)
    return now + max(period - period // 20 + jitter, pause_ms)


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
    endpoint: Endpoint, result: ProbeResult, cadence: Cadence, *, now: int, pause_ms: int = 0
) -> NextProbe:
    """What comes after a result of an endpoint (as it was before), which asked for a pause or not:

    - a failure of an endpoint that was payable is asked again after each of CONFIRM_AFTER_MS, as
      far as its regular probe is due more than a minute later, and unless it asked for a pause;
    - a probe that says something of the target ends that, whatever it says;
    - the regular probes stay where they would have been.
    """
    said = statement(result)
    failed_at = endpoint.unconfirmed_at
    regular = next_due(endpoint, cadence, now=now, pause_ms=pause_ms)
    confirms = False
    if failed_at is not None:
        planned = next_due(endpoint, cadence, now=failed_at)
        confirms = result.at < planned - MINUTE_MS
        regular = max(planned, now + pause_ms) if confirms else regular
    if said is not None:
        fails = endpoint.payable is True and not said.payable and not pause_ms
        failed_at = result.at if fails else None
    tries = () if failed_at is None else (failed_at + wait for wait in CONFIRM_AFTER_MS)
    again = next((at for at in tries if now < at < regular - MINUTE_MS), None)
    payable = said is None or said.payable
    return NextProbe(
        due=regular if again is None else again,
        holds=holds_ms(payable=payable, interval_ms=regular - result.at),
        confirms=confirms,
        unconfirmed_at=None if again is None else failed_at,
    )


def pause_ms(result: Answer | Fault, *, now: int) -> int:
    """The pause in milliseconds that a 429 or 503 asks for with Retry-After, at most
    RETRY_AFTER_MAX_MS; 0 for every other result.
    """
    if isinstance(result, Fault) or result.status not in _PAUSING:
        return 0
    wait_ms = retry_after_ms(result.header("retry-after"), now=now) or 0
    return min(wait_ms, RETRY_AFTER_MAX_MS)
