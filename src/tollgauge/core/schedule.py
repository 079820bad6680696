"""When to probe again: cadence, jitter, and the pause that a target asked for.

An endpoint is probed every 30 minutes, every 5 minutes while it is watched, and once a day after it
was delisted. The jitter, up to a tenth of that period, comes from a hash of the endpoint's id and
the time, so it needs no randomness and does not drift. Which endpoints are due is the store's
query; leasing them is jobs/probe's.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

from pydantic import Field, NonNegativeInt
from pydantic.dataclasses import dataclass

from tollgauge.core.endpoint import Endpoint, Listing
from tollgauge.core.exchange import Answer, Fault
from tollgauge.core.retry_after import retry_after_ms
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

RETRY_AFTER_MAX_MS: Final = 6 * HOUR_MS
"""The longest pause that a target is granted: while it is not probed, its state is unknown."""
_PAUSING: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How often and how gently to probe, in milliseconds.

    `host_gap_ms` is the pause that a host gets after each probe, however many paths it lists.
    """

    every_ms: Annotated[int, Field(ge=SECOND_MS)] = 30 * MINUTE_MS
    watched_every_ms: Annotated[int, Field(ge=SECOND_MS)] = 5 * MINUTE_MS
    host_gap_ms: NonNegativeInt = SECOND_MS


def next_due(endpoint: Endpoint, cadence: Cadence, *, now: int, pause_ms: int = 0) -> int:
    """When to probe an endpoint next, in milliseconds UTC; not before `now + pause_ms`."""
    if endpoint.watched_until > now:
        period = cadence.watched_every_ms
    elif endpoint.status is Listing.DELISTED:
        period = DAY_MS
    else:
        period = cadence.every_ms
    seed = hashlib.sha256(f"{endpoint.id}:{now // period}".encode()).digest()
    jitter = int.from_bytes(seed[:4], "big") % (period // 10)
    return now + max(period - period // 20 + jitter, pause_ms)


def pause_ms(result: Answer | Fault, *, now: int) -> int:
    """The pause in milliseconds that a 429 or 503 asks for with Retry-After, at most
    RETRY_AFTER_MAX_MS; 0 for every other result.
    """
    if isinstance(result, Fault) or result.status not in _PAUSING:
        return 0
    wait_ms = retry_after_ms(result.header("retry-after"), now=now) or 0
    return min(wait_ms, RETRY_AFTER_MAX_MS)
