"""Probe an endpoint now, at the request of anyone, after its last probe found it not payable.

- Only such endpoints: otherwise a seller could request probes at chosen times, and each would
  postpone the next regular probe, whose time cannot be predicted (core/probe/schedule).
- One request per host and RECHECK_PAUSE_MS, because the host's budget serves all its endpoints.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.store.endpoints import endpoints
from tollgauge.store.schedule import hosts
from tollgauge.store.scores import trust_records

RECHECK_PAUSE_MS: Final = 10 * MINUTE_MS


class PayableError(TollgaugeError):
    """The last probe found the endpoint payable, or there was none."""


class RecheckedError(TollgaugeError):
    """A probe of the host was requested shortly before; `next_at` is in ms UTC."""

    def __init__(self, next_at: int) -> None:
        super().__init__("A probe of this host was requested in the last 10 minutes.")
        self.next_at = next_at


def request_probe(tx: Connection, endpoint_id: str, *, now: int) -> Endpoint | None:
    """Make a public endpoint due for a probe; return None for an unknown ID.

    Raises:
        PayableError: No probe is needed.
        RecheckedError: The host's pause is not over.
    """
    if trust_records.get(tx, endpoint_id) is None:
        return None
    endpoints.lock(tx, [endpoint_id])  # before the host's row, like every other transaction
    endpoint = endpoints.get(tx, endpoint_id)
    if endpoint is None:
        return None
    if endpoint.payable is not False:
        raise PayableError("The last probe found this endpoint payable.")
    next_at = hosts.record_recheck(tx, endpoint.host, now=now, pause_ms=RECHECK_PAUSE_MS)
    if next_at is not None:
        raise RecheckedError(next_at)
    endpoints.make_one_due(tx, endpoint, now=now)
    return endpoint
