"""Rate limit: how many requests a client may send, and who a client is.

The generic cell rate algorithm (GCRA): one number for each client, the instant at which all that it
has sent would be paid off at the allowed pace. No timer runs.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final

CLIENTS_MAX: Final = 50_000
"""How many clients the rate limit remembers; the least recent is forgotten first."""
MINUTE_NS: Final = 60_000_000_000
_SECOND_NS: Final = 1_000_000_000
_REMEMBERED_MAX: Final = 128
"""Bytes: the client of a longer `X-Forwarded-For` is parsed each time, of a shorter one cached."""


class RateLimit:
    """`per_minute` requests for each client, which may send a whole minute's at once."""

    def __init__(
        self, per_minute: int, *, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._interval_ns: Final = MINUTE_NS // per_minute
        self._burst_ns: Final = self._interval_ns * per_minute
        self._monotonic_ns: Final = monotonic_ns
        self._paid_off: Final[OrderedDict[str, int]] = OrderedDict()

    def take(self, client: str) -> int:
        """Count a request of a client and return 0; or, where it has sent too many, the seconds
        until it may send the next. A refused request does not count.
        """
        now, paid_off = self._monotonic_ns(), self._paid_off
        next_paid_off = max(now, paid_off.get(client, now)) + self._interval_ns
        excess_ns = next_paid_off - now - self._burst_ns
        if excess_ns > 0:
            return -(-excess_ns // _SECOND_NS)
        paid_off[client] = next_paid_off
        paid_off.move_to_end(client)
        if len(paid_off) > CLIENTS_MAX:
            paid_off.popitem(last=False)
        return 0


class Clients:
    """Whom the rate limit counts. The `X-Forwarded-For` of `proxies` is believed."""

    def __init__(self, proxies: tuple[str, ...]) -> None:
        self._proxies: Final = frozenset(parse_address(proxy) for proxy in proxies)
        self._known: Final = lru_cache(maxsize=4_096)(self._find)

    def key(self, peer: str, forwarded: bytes | None) -> str:
        """The peer's address, IPv6 by /64; behind a trusted proxy, the last address that the proxy
        itself saw. An IPv4 address that a dual-stack socket wrote as IPv6 is that IPv4 address.
        """
        if not forwarded or not self._proxies:
            return self._known(peer, b"")
        find = self._find if len(forwarded) > _REMEMBERED_MAX else self._known
        return find(peer, forwarded)

    def _find(self, peer: str, forwarded: bytes) -> str:
        if forwarded and parse_address(peer) in self._proxies:
            peer = forwarded.decode("latin-1").rpartition(",")[2].strip()
        return address_key(peer)


def address_key(text: str) -> str:
    """An address as it is counted: IPv4 whole, IPv6 by /64, `unknown` for anything else."""
    address = parse_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return "unknown" if address is None else str(address)


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address of a text, None if it is none; IPv4 also where it is written as IPv6."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
