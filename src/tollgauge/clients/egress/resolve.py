"""Name resolution for egress: one lookup per attempt, with its own timeout.

Names are absolute: the search list of this machine never applies. One address that is not public
invalidates the whole result. At most eight addresses are used; addresses of a family without a
route are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tollgauge.core.base.address import address_class
from tollgauge.core.probe.exchange import Fault, FaultKind

Lookup = Callable[[str], Sequence[str]]
"""Blocking lookup of a host name's addresses; raises `socket.gaierror` like `getaddrinfo`."""

TextLookup = Callable[[str], Sequence[str]]
"""Blocking lookup of a name's TXT records; empty if there are none. Raises OSError or ValueError if
no name server states that.
"""

ADDRESSES_MAX: Final = 8

_NOT_FOUND: Final = frozenset(
    value
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")
    if (value := getattr(socket, name, None)) is not None
)
_TEMPORARY: Final = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL})
_RESOLV_CONF: Final = Path("/etc/resolv.conf")
_NAME_SERVER: Final = re.compile(r"^nameserver[ \t]+(\S+)", re.MULTILINE)
_TXT_TIMEOUT_S: Final = 2.0
_TXT: Final = 16
_NO_SUCH_NAME: Final = 3


def system_lookup(host: str) -> tuple[str, ...]:
    """Return the addresses of an absolute name from the system's resolver, without duplicates."""
    entries = socket.getaddrinfo(host.encode("ascii") + b".", None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


def system_texts(name: str) -> tuple[str, ...]:
    """Return the TXT records of an absolute name from the first system name server that answers."""
    servers = _NAME_SERVER.findall(_RESOLV_CONF.read_text(encoding="utf-8"))
    for server in servers:
        with contextlib.suppress(OSError, ValueError):
            return query_texts((server, 53), name)
    raise OSError("no name server gave an answer")


def query_texts(server: tuple[str, int], name: str) -> tuple[str, ...]:
    """Ask a name server for the TXT records of a name, which the standard library cannot read.

    Uses TCP (RFC 7766): an answer is neither cut nor easily forged.

    Raises:
        OSError: The server cannot be reached.
        ValueError: It gave no usable answer.
    """
    labels = b"".join(len(label).to_bytes() + label.encode("ascii") for label in name.split("."))
    head = secrets.token_bytes(2) + bytes.fromhex("01000001000000000000")
    query = head + labels + bytes.fromhex("0000100001")
    with socket.create_connection(server, timeout=_TXT_TIMEOUT_S) as stream:
        stream.sendall(len(query).to_bytes(2) + query)
        with stream.makefile("rb") as replies:
            reply = replies.read(int.from_bytes(replies.read(2)))
    try:
        return tuple(_read_texts(reply, query))
    except IndexError as error:
        raise ValueError("the answer is cut") from error


def _read_texts(reply: bytes, query: bytes) -> Iterator[str]:
    """Yield the TXT records of a message (RFC 1035, section 4). Raises ValueError, IndexError."""
    code = reply[3] & 15
    if reply[:2] != query[:2] or not reply[2] & 0x80 or code not in (0, _NO_SUCH_NAME):
        raise ValueError("the name server gave no answer")
    at = len(query)  # an answer repeats the question
    for _ in range(int.from_bytes(reply[6:8])):
        while 0 < reply[at] < 0xC0:  # a name ends with an empty label or a pointer
            at += 1 + reply[at]
        at += 1 if reply[at] == 0 else 2
        kind, size = int.from_bytes(reply[at : at + 2]), int.from_bytes(reply[at + 8 : at + 10])
        at += 10 + size
        text, data = b"", reply[at - size : at]
        if at > len(reply):
            raise ValueError("the answer is cut")
        while kind == _TXT and data:
            text, data = text + data[1 : 1 + data[0]], data[1 + data[0] :]
        if kind == _TXT:
            yield text.decode("latin-1")


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
        except (OSError, ValueError):
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
