"""Deadlines and limits of client connections.

Rules:
- each wait for a client has a deadline: for the head of a request, for its body, and for the next
  request on an idle connection or for reading an answer;
- one address (IPv6: one /64) may hold a limited number of connections, a trusted proxy any number;
- all connections use at most half of the file descriptors of the process; the rest is for the
  database, the log and probes;
- at a cap, the connection that has waited longest for its client is closed in favour of the new
  one: an honest client sends its request immediately, a half-open connection never does;
- if no connection waits, because all are being answered, a few more are accepted only for the
  health routes, so that a busy process does not look dead.

web/edge/protocol reports when a connection begins to wait and when it is being answered.
"""

from __future__ import annotations

import resource
import time
from collections import OrderedDict, defaultdict
from enum import Enum, auto
from typing import Final, Protocol

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from tollgauge.observe import log
from tollgauge.web.edge.middleware import address_key

TOTAL_MAX: Final = 16_384
"""Concurrent connections, even with more descriptors: each uses some kilobytes of memory."""
HEALTH_ONLY_MAX: Final = 32
"""Connections above a cap, only for the health routes."""
LOG_EVERY_S: Final = 60.0
"""Seconds between two log lines about a reached cap; each states the count since the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Deadlines in milliseconds, and the cap of one address.

    `head_ms` runs from the connection, or from the first byte on a kept one, to the end of the
    request's head; `body_ms` from there to the end of its body; `idle_ms` bounds a kept connection
    between two requests, and a client that does not read its answer. It is longer than clients
    keep an idle connection, so that none is closed just as a request is sent. `per_address` does
    not apply to `server.front.trusted_proxies`.
    """

    head_ms: PositiveInt = 10_000
    """Timeout for receiving the head of a request."""
    body_ms: PositiveInt = 10_000
    """Timeout for receiving the body of a request."""
    idle_ms: PositiveInt = 75_000
    """Timeout for an idle connection, and for a client that does not read its response."""
    per_address: PositiveInt = 256
    """Maximum connections per address (IPv6: per /64). Trusted proxies are exempt."""


class Phase(Enum):
    """The phase of a connection. In all but `ANSWERED` it waits for the client."""

    HEAD = auto()
    BODY = auto()
    ANSWERED = auto()
    """A request was read whole, and is being answered."""
    IDLE = auto()
    """Between two requests; of the last answer some bytes may still be unread."""
    UNREAD = auto()
    """An answer cannot continue, because the client does not read it."""
    CLOSING = auto()
    """Closed by this service; the client may still read the last bytes."""


class Held(Protocol):
    """A counted connection: the `key` of its address, and whether it is being answered."""

    key: str
    answered: bool

    def end(self) -> None:
        """Close the connection immediately."""


_ByWait = OrderedDict[Held, None]
"""Connections in the order of their wait for the client, longest first. Connections that are being
answered keep their position and are not closed in favor of another.
"""


class Admission(Enum):
    """The requests that a new connection may send."""

    ANYTHING = auto()
    HEALTH_ONLY = auto()
    NOTHING = auto()


class Connections:
    """The connections of one server. `proxies` have no cap per address."""

    def __init__(self, settings: ConnectionSettings, *, proxies: tuple[str, ...]) -> None:
        self.settings: Final = settings
        self._proxies: Final = frozenset(address_key(proxy) for proxy in proxies)
        self._max_total: Final = total_cap()
        self._held: _ByWait = OrderedDict()
        self._held_by_key: defaultdict[str, _ByWait] = defaultdict(OrderedDict)
        self._cap_hits = 0
        self._logged_at: float | None = None

    def admit(self, new: Held) -> Admission:
        """Count a new connection. At a cap, close the one that has waited longest."""
        crowded = self._is_crowded(new.key)
        if crowded or self._full():
            self._log_cap(new.key, per_address=crowded)
            self._close_oldest(self._held_by_key[new.key] if crowded else self._held)
        # Checked again: nothing was closed if all of them are being answered.
        admission = Admission.ANYTHING
        if self._is_crowded(new.key) or self._full():
            spare = len(self._held) < self._max_total + HEALTH_ONLY_MAX
            admission = Admission.HEALTH_ONLY if spare else Admission.NOTHING
        if admission is not Admission.NOTHING:
            self._held[new] = self._held_by_key[new.key][new] = None
        return admission

    def wait(self, connection: Held) -> None:
        """Move a connection that begins to wait for its client behind all others."""
        if connection in self._held:
            self._held.move_to_end(connection)
            self._held_by_key[connection.key].move_to_end(connection)

    def leave(self, connection: Held) -> None:
        """Remove a closed connection. Uncounted ones are ignored."""
        if connection not in self._held:
            return
        del self._held[connection]
        same_key = self._held_by_key[connection.key]
        del same_key[connection]
        if not same_key:
            del self._held_by_key[connection.key]

    def _is_crowded(self, key: str) -> bool:
        held = self._held_by_key.get(key, ())
        return len(held) >= self.settings.per_address and key not in self._proxies

    def _full(self) -> bool:
        return len(self._held) >= self._max_total

    def _close_oldest(self, held: _ByWait) -> None:
        oldest = next((connection for connection in held if not connection.answered), None)
        if oldest is not None:
            # Removed before it is closed: asyncio calls connection_lost only in a later iteration,
            # and until then the new connection would still be above the cap.
            self.leave(oldest)
            oldest.end()

    def _log_cap(self, key: str, *, per_address: bool) -> None:
        self._cap_hits += 1
        now = time.monotonic()
        if self._logged_at is not None and now - self._logged_at < LOG_EVERY_S:
            return
        cap = "server.connections.per_address" if per_address else "half of the file descriptors"
        maximum = self.settings.per_address if per_address else self._max_total
        log().warning(
            "connections.full", cap=cap, maximum=maximum, times=self._cap_hits, newest=key
        )
        self._logged_at, self._cap_hits = now, 0


def total_cap() -> int:
    """Return half of this process's file descriptors (RLIMIT_NOFILE), at most TOTAL_MAX."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return TOTAL_MAX if soft == resource.RLIM_INFINITY else min(TOTAL_MAX, max(1, soft // 2))
