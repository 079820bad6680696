"""Load over HTTP/1.1: closed loops on persistent connections, faster than the measured servers.

A loop sends a request, waits for the complete response, records the duration, and sends the next
request. Responses must have a `Content-Length`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete response. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Seen:
    """The result of a load: the seconds of each response, and the number of each status."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def percentile_ms(self, permille: int) -> float:
        """Return a percentile of the durations in milliseconds."""
        ordered = sorted(self.seconds)
        return round(ordered[min(len(ordered) * permille // 1_000, len(ordered) - 1)] * 1_000, 2)


class Connection(asyncio.Protocol):
    """A persistent connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Reply] | None = None
        self._got = b""

    @classmethod
    async def to(cls, port: int) -> Connection:
        """Connect to a loopback port."""
        _, protocol = await asyncio.get_running_loop().create_connection(cls, HOST, port)
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)  # TCP has no other kind

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending request: the server closed the connection."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        """Receive a part of a response."""
        self._got += data
        head, end, rest = self._got.partition(b"\r\n\r\n")
        if not end:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        if len(rest) < int(headers.get("content-length", "0")):
            return
        self._got = b""
        reply = Reply(status=int(first.split(" ", 2)[1]), headers=headers, body=rest)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(reply)

    async def ask(self, request: bytes) -> Reply:
        """Send a request and wait for its response. Raises ConnectionError."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


def get(path: str, *, caller: int = 1) -> bytes:
    """Return the bytes of a GET. `caller` selects the address that a trusted proxy would state."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: {_address(caller)}\r\n\r\n"
    ).encode()


def post(path: str, body: bytes, *, payment: str = "", caller: int = 1) -> bytes:
    """Return the bytes of a POST of JSON, with a payment unless it is empty."""
    paid = f"PAYMENT-SIGNATURE: {payment}\r\n" if payment else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nX-Forwarded-For: {_address(caller)}\r\n{paid}\r\n"
    )
    return head.encode() + body


def _address(caller: int) -> str:
    return f"198.18.{caller // 250 % 250}.{caller % 250 + 1}"


async def run(
    port: int,
    requests: Iterator[bytes],
    *,
    connections: int,
    until: float | None = None,
    resting: Callable[[Reply], Awaitable[None]] | None = None,
) -> Seen:
    """Send requests over concurrent connections, and count the responses.

    Args:
        port: a loopback port.
        requests: the requests, shared by all connections.
        connections: number of connections.
        until: time of the event loop at which to stop; pending requests are not counted.
        resting: called after each response, for example to wait.
    """
    seen = Seen()
    loop = asyncio.get_running_loop()

    async def caller() -> None:
        connection = await Connection.to(port)
        try:
            for request in requests:
                if until is not None and loop.time() >= until:
                    break
                began = time.perf_counter()
                reply = await connection.ask(request)
                seen.seconds.append(time.perf_counter() - began)
                seen.statuses[reply.status] += 1
                if resting is not None:
                    await resting(reply)
        finally:
            connection.close()

    tasks = [asyncio.create_task(caller()) for _ in range(connections)]
    left = None if until is None else max(0.0, until - loop.time()) + 0.5
    done, pending = await asyncio.wait(tasks, timeout=left)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()
    return seen
