"""A relay in front of a service that can lose answers: it passes a request on, waits until the
service has answered, and closes the caller's connection instead of passing the answer back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class Relay:
    """`lose` is how many answers to paid requests are to be lost; `payments` are the payment
    headers that came, in order; `lost` is set when an answer was lost.
    """

    port: int
    url: str = ""
    lose: int = 0
    payments: list[bytes] = field(default_factory=list)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    hold: asyncio.Event | None = None
    """Where it is there, a lost answer keeps its connection open until it is set."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(EOFError, ConnectionError):
            while True:
                if not await self._pass_on(await _message(reader), writer):
                    return

    async def _pass_on(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the answer went back."""
        reader, theirs = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.closing(theirs):
            theirs.write(request)
            answer = await _message(reader)
        signed = _field(request, b"payment-signature")
        if signed:
            self.payments.append(signed)
        if signed and self.lose:
            self.lose -= 1
            self.lost.set()
            if self.hold:
                await self.hold.wait()
            return False
        writer.write(answer)
        await writer.drain()
        return True


async def _message(reader: asyncio.StreamReader) -> bytes:
    """One request or answer of HTTP/1.1 with a Content-Length, or without a body."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(int(_field(head, b"content-length") or 0))


def _field(message: bytes, name: bytes) -> bytes:
    """A field of a message's head, empty where it is not there."""
    for line in message.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return b""


@contextlib.asynccontextmanager
async def relay(port: int) -> AsyncIterator[Relay]:
    """A relay to a port of this machine."""
    running = Relay(port)
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    running.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield running
