"""The whole service on a socket, and clients that send and read HTTP/1.1 byte by byte.

Every address of 127.0.0.0/8 is this machine, so one test can have clients with many addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from tests.support.http_service import configuration
from tests.support.processes import free_port

from tollgauge import app as root
from tollgauge import process
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.web.edge.connections import ConnectionSettings
from tollgauge.web.edge.middleware import EdgeSettings
from tollgauge.web.settings import listen

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n"
STATS = b"GET /trust/stats HTTP/1.1\r\nhost: t\r\n\r\n"
SHORT_MS = 250
SOON = 30
"""Deadline in seconds, with a margin for a busy machine; shorter than the deadlines of a minute."""


@dataclass
class Client:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, data: bytes) -> bytes:
        """Return the head of a response."""
        self.send(data)
        head, _ = await self.answer()
        return head

    async def answer(self) -> tuple[bytes, bytes]:
        """Return the head and the body of the next response."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 30)
        lines = head.split(b"\r\n")
        length = sum(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        return head, await asyncio.wait_for(self.reader.readexactly(length), 30)

    async def until_closed(self, seconds: float = SOON) -> bytes:
        """Read until the server closes. Raises TimeoutError."""
        received = b""
        async with asyncio.timeout(seconds):
            with contextlib.suppress(ConnectionError):
                while piece := await self.reader.read(65_536):
                    received += piece
        return received

    @property
    def closed(self) -> bool:
        return self.reader.at_eof() or self.reader.exception() is not None


@dataclass
class Server:
    """A running server, and the clients that tests opened."""

    port: int
    stack: contextlib.AsyncExitStack

    async def client(self, address: str = "127.0.0.1") -> Client:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(address, 0)
        )
        self.stack.callback(writer.close)
        return Client(reader, writer)

    async def healthy(self, address: str = "127.0.0.1") -> bool:
        client = await self.client(address)
        return (await client.ask(HEALTH)).startswith(b"HTTP/1.1 200")


@contextlib.asynccontextmanager
async def run_edge(
    connections: ConnectionSettings,
    *,
    proxies: tuple[str, ...] = (),
    free_per_minute: int = 1_000_000,
    facilitator: str = "http://127.0.0.1:9",
) -> AsyncIterator[Server]:
    """The whole service on a socket."""
    config = configuration(
        front=EdgeSettings(free_per_minute=free_per_minute, trusted_proxies=proxies)
    )
    port = free_port()
    config = replace(
        config,
        server=replace(config.server, port=port, connections=connections),
        facilitator=FacilitatorSettings(url=facilitator, verify_timeout_s=3),
    )
    stop, ready = asyncio.Event(), asyncio.Event()
    with listen(config.server, serve=True) as listeners:
        async with root.open_resources(config) as service:
            running = asyncio.create_task(
                process.run(service, listeners, stop=stop, on_ready=ready.set)
            )
            await asyncio.wait_for(ready.wait(), 60)
            async with contextlib.AsyncExitStack() as stack:
                yield Server(port, stack)
            stop.set()
            await running


def settings(**changed: int) -> ConnectionSettings:
    return ConnectionSettings(
        **({"head_ms": 60_000, "body_ms": 60_000, "idle_ms": 60_000} | changed)
    )


@dataclass
class Relay:
    """Loses responses to paid requests.

    `lose` is the number of responses to lose; `payments` are the received payment headers in order;
    `lost` is set when a response was lost.
    """

    port: int
    url: str = ""
    lose: int = 0
    payments: list[bytes] = field(default_factory=list)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    hold: asyncio.Event | None = None
    """If set, a lost response keeps its connection open until this event."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(EOFError, ConnectionError):
            while True:
                if not await self._pass_on(await _message(reader), writer):
                    return

    async def _pass_on(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Forward one request; return whether the response was sent back."""
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
    """Read one request or response of HTTP/1.1 with a Content-Length, or without a body."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(int(_field(head, b"content-length") or 0))


def _field(message: bytes, name: bytes) -> bytes:
    """Return a field of a message's head, or an empty text."""
    for line in message.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return b""


@contextlib.asynccontextmanager
async def relay(port: int) -> AsyncIterator[Relay]:
    """Relay connections to a port of this machine."""
    running = Relay(port)
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    running.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield running
