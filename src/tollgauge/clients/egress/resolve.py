"""Name resolution for egress: one lookup an attempt, judged whole, with a time-out of its own.

Rules:
- a lookup runs on a thread of its own, so that slow names cannot make others wait; the number of
  threads is bounded, and having none free is our fault, not the name's;
- a name is absolute: the search list of this machine never applies;
- one address that is not public spoils the whole answer; at most eight addresses are tried;
- addresses of a family that this machine has no route for are left out.

Connecting, and checking the final address once more, is clients/egress/client's work.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from tollgauge.core.base.address import address_class
from tollgauge.core.probe.exchange import Fault, FaultKind

Lookup = Callable[[str], Sequence[str]]
"""The addresses of a host name, blocking; raises `socket.gaierror` like `getaddrinfo`."""

ADDRESSES_MAX: Final = 8

_NOT_FOUND: Final = frozenset(
    value
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")
    if (value := getattr(socket, name, None)) is not None
)
_TEMPORARY: Final = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL})


def system_lookup(host: str) -> tuple[str, ...]:
    """All addresses of an absolute name by the system's resolver, each once, in its order."""
    entries = socket.getaddrinfo(host.encode("ascii") + b".", None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


def has_route(address: str) -> bool:
    """Whether this machine has a route to an address. Sends nothing: connecting a datagram
    socket only consults the routing table.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
            datagrams.connect((address, 443))
    except OSError:
        return False
    return True


class Resolver:
    """Looks names up on threads. `timeout_ms` bounds the wait for one name; an abandoned lookup
    keeps its thread until the system gives up.
    """

    def __init__(self, lookup: Lookup, *, threads: int, timeout_ms: int) -> None:
        self._lookup = lookup
        self._slots = threading.Semaphore(threads)
        self._timeout_ms = timeout_ms

    async def resolve(self, host: str) -> tuple[str, ...] | Fault:
        """The public, routable addresses of a host (1 to 8), or the fault that ends the attempt.

        `dns-not-found` is an authoritative no; `dns-failed` may be the name's or the network's
        doing; `local-failure` is ours.
        """
        addresses = await self._answer(host)
        return addresses if isinstance(addresses, Fault) else _usable(addresses)

    async def _answer(self, host: str) -> Sequence[str] | Fault:
        if not self._slots.acquire(blocking=False):
            return Fault(kind=FaultKind.LOCAL, detail="all lookup threads are held by slow names")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str] | Fault] = loop.create_future()

        def deliver(value: Sequence[str] | Fault) -> None:
            if not answer.done():
                answer.set_result(value)

        def work() -> None:
            try:
                value = self._look(host)
            finally:
                self._slots.release()
            with contextlib.suppress(RuntimeError):  # the event loop may have ended meanwhile
                loop.call_soon_threadsafe(deliver, value)

        try:
            threading.Thread(target=work, name=f"lookup {host}", daemon=True).start()
        except RuntimeError:
            self._slots.release()
            return Fault(kind=FaultKind.LOCAL, detail="no thread for a lookup")
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                return await answer
        except TimeoutError:
            detail = f"no answer about the name within {self._timeout_ms} ms"
            return Fault(kind=FaultKind.DNS_FAILED, detail=detail)

    def _look(self, host: str) -> Sequence[str] | Fault:
        try:
            return self._lookup(host)
        except socket.gaierror as error:
            if error.errno in _NOT_FOUND:
                return Fault(kind=FaultKind.DNS_NOT_FOUND, detail="the name has no address")
            if error.errno in _TEMPORARY:
                return Fault(kind=FaultKind.DNS_FAILED, detail="the name servers gave no answer")
        except (OSError, UnicodeError):
            pass
        return Fault(kind=FaultKind.LOCAL, detail="the resolver of this machine failed")


def _usable(addresses: Sequence[str]) -> tuple[str, ...] | Fault:
    if not addresses:
        return Fault(kind=FaultKind.DNS_NOT_FOUND, detail="the name has no address")
    for address in addresses:
        kind = address_class(address)
        if kind != "public":
            detail = f"the name resolves to an address that is not public ({kind})"
            return Fault(kind=FaultKind.NOT_PUBLIC, detail=detail)
    routable = tuple(address for address in addresses[:ADDRESSES_MAX] if has_route(address))
    if not routable:
        return Fault(kind=FaultKind.LOCAL, detail="this machine has no route to the address")
    return routable
