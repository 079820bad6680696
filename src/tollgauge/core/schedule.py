"""When to probe again: cadence, jitter, and the pause that a target asked for.

Rules: every 30 minutes, every 5 while watched; a delisted endpoint
once a day. The jitter is derived from the endpoint's id and the time, so that it needs no
randomness: it spreads probes by up to a tenth of the cadence and never drifts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from tollgauge.core.endpoint import Endpoint, Listing
from tollgauge.core.exchange import Answer, Fault
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

RETRY_AFTER_MAX_MS: Final = 6 * HOUR_MS
"""A target may ask for silence, but not for longer than this: unknown is not up."""
_PAUSING: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How often and how gently to probe, in milliseconds.

    `host_gap_ms` is the pause that a host gets after each probe: a host that lists thousands of
    paths is probed at that pace, not at its listing's. Raises ValueError for a pace that would
    be a flood.
    """

    every_ms: int = 30 * MINUTE_MS
    watched_every_ms: int = 5 * MINUTE_MS
    host_gap_ms: int = SECOND_MS

    def __post_init__(self) -> None:
        if min(self.every_ms, self.watched_every_ms) < SECOND_MS:
            raise ValueError("every_ms and watched_every_ms must be at least 1000")
        if self.host_gap_ms < 0:
            raise ValueError("host_gap_ms must not be negative")


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
    """The pause that a 429 or 503 asked for (RFC 9110, Retry-After), bounded; 0 without."""
    if isinstance(result, Fault) or result.status not in _PAUSING:
        return 0
    text = (result.header("retry-after") or "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text.lstrip("0")[:9] or 0) * 1000, RETRY_AFTER_MAX_MS)
    try:
        date = parsedate_to_datetime(text)
        # HTTP dates are in GMT (RFC 9110 section 5.6.7), also where they do not say so.
        at = int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        return 0
    return min(max(at - now, 0), RETRY_AFTER_MAX_MS)
