"""Load over HTTP/1.1: closed loops on kept connections, cheap enough to outrun what they measure.

A loop sends a request, waits for the whole answer, notes how long that took, and sends the next.
Only answers with a `Content-Length` are understood.
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
    """A whole answer. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Seen:
    """What a load met: seconds of every answer, and how many of each status."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def percentile_ms(self, permille: int) -> float:
        """A percentile of the answers in milliseconds."""
        ordered = sorted(self.seconds)
        return round(ordered[min(len(ordered) * permille // 1_000, len(ordered) - 1)] * 1_000, 2)


class Connection(asyncio.Protocol):
    """One kept connection that carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Reply] | None = None
        self._got = b""

    @classmethod
    async def to(cls, port: int) -> Connection:
        """A connection to a loopback port."""
        _, protocol = await asyncio.get_running_loop().create_connection(cls, HOST, port)
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)  # TCP has no other kind

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side hung up."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
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
        """Send a request and wait for its answer. Raises ConnectionError."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


def get(path: str, *, caller: int = 1) -> bytes:
    """A GET as it goes over the wire. `caller` is the address that a trusted proxy would name."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: {_address(caller)}\r\n\r\n"
    ).encode()


def post(path: str, body: bytes, *, payment: str = "", caller: int = 1) -> bytes:
    """A POST of JSON, with a payment where there is one."""
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
    """Send `requests` over some connections at once, until they end or `until` (the loop's time);
    `resting` says what a caller does after an answer. What had no answer by then is not counted.
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
