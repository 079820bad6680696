"""Name resolution for egress: one lookup per attempt, with its own timeout.

Names are absolute: the search list of this machine never applies. One address that is not public
invalidates the whole result. At most eight addresses are used; addresses of a family without a
route are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from dns.exception import DNSException

from tollgauge.core.base.address import address_class
from tollgauge.core.probe.exchange import Fault, FaultKind

if TYPE_CHECKING:
    from dns.resolver import Resolver as NameServers

Lookup = Callable[[str], Sequence[str]]
"""Blocking lookup of a host name's addresses; raises `socket.gaierror` like `getaddrinfo`."""

TextLookup = Callable[[str], Sequence[str]]
"""Blocking lookup of a name's TXT records; empty if there are none. Raises DNSException if no name
server states that.
"""

ADDRESSES_MAX: Final = 8

_NOT_FOUND: Final = frozenset(
    value
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")
    if (value := getattr(socket, name, None)) is not None
)
_TEMPORARY: Final = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL})
_TXT_TIMEOUT_S: Final = 2.0


def system_lookup(host: str) -> tuple[str, ...]:
    """Return the addresses of an absolute name from the system's resolver, without duplicates."""
    entries = socket.getaddrinfo(host.encode("ascii") + b".", None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


def system_texts(name: str) -> tuple[str, ...]:
    """Return the TXT records of an absolute name from the system's name servers."""
    # 8 % of the CPU time of a start if imported above; only sellers' files need it.
    from dns.resolver import Resolver as NameServers

    return query_texts(NameServers(), name)


def query_texts(servers: NameServers, name: str) -> tuple[str, ...]:
    """Return the TXT records of an absolute name, which the standard library cannot read.

    Uses TCP (RFC 7766): an answer is neither cut nor easily forged.

    Raises:
        DNSException: No name server gave a usable answer.
    """
    from dns.resolver import NXDOMAIN, NoAnswer

    try:
        answer = servers.resolve(name + ".", "TXT", tcp=True, lifetime=_TXT_TIMEOUT_S)
    except (NXDOMAIN, NoAnswer):
        return ()
    return tuple(b"".join(record.strings).decode("latin-1") for record in answer)


def has_route(address: str) -> bool:
    """Whether this machine has a route to an address. Sends nothing: connecting a datagram socket
    only consults the routing table.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
            datagrams.connect((address, 443))
    except OSError:
        return False
    return True


class Resolver:
    """Looks up names on threads, so that a slow name does not delay others.

    `timeout_ms` limits the wait for one name; an abandoned lookup occupies its thread until the
    system gives up.
    """

    def __init__(
        self,
        lookup: Lookup,
        *,
        threads: int,
        timeout_ms: int,
        texts: TextLookup = system_texts,
    ) -> None:
        self._lookup = lookup
        self._texts = texts
        self._slots = threading.Semaphore(threads)
        self._timeout_ms = timeout_ms

    async def resolve(self, host: str) -> tuple[str, ...] | Fault:
        """Return the 1 to 8 public, routable addresses of a host, or the fault that ends the
        attempt.

        `dns-not-found` is an authoritative answer; `dns-failed` may be caused by the name or by
        the network; `local-failure` is this machine's.
        """
        addresses = await self._answer(self._look, host)
        return addresses if isinstance(addresses, Fault) else _usable(addresses)

    async def resolve_texts(self, name: str) -> Sequence[str] | Fault:
        """Return the TXT records of a name, empty if there are none, or a fault."""
        return await self._answer(self._look_up_texts, name)

    async def _answer(
        self, look: Callable[[str], Sequence[str] | Fault], host: str
    ) -> Sequence[str] | Fault:
        if not self._slots.acquire(blocking=False):
            return Fault(kind=FaultKind.LOCAL, detail="all lookup threads are busy with slow names")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str] | Fault] = loop.create_future()

        def deliver(value: Sequence[str] | Fault) -> None:
            if not answer.done():
                answer.set_result(value)

        def work() -> None:
            try:
                value = look(host)
            finally:
                self._slots.release()
            with contextlib.suppress(RuntimeError):  # the event loop may have ended already
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

    def _look_up_texts(self, name: str) -> Sequence[str] | Fault:
        try:
            return self._texts(name)
        except (DNSException, OSError):
            return Fault(kind=FaultKind.DNS_FAILED, detail="the name servers gave no answer")

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
