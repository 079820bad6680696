"""Hostile sellers on loopback with real sockets and real TLS.

`hostile_world()` yields a World: one TLS listener whose certificate depends on the requested name
and whose behaviour depends on the path, raw TCP listeners without TLS, and a canary that no client
may reach. Names end in `.sellers.example` and are mapped by egress settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trustme
from tests.support.hostile_replies import Reply, replies_of
from tests.support.tls_server import CERTIFICATES, ZONE, issue_certificates


@dataclass
class World:
    """A test's view of the world. `requests` are raw request texts in order of arrival; `otherwise`
    is the path whose response is used for unknown paths.
    """

    ca_file: str
    mapped: dict[str, tuple[str, int]]
    canary_port: int
    canary_hits: list[str] = field(default_factory=list)
    otherwise: str = "/always-404"
    requests: list[bytes] = field(default_factory=list)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, request: bytes) -> None:
        """Record a request."""
        self.requests.append(request)
        self._news.set()

    async def wait_for_requests(self, count: int) -> None:
        """Wait until this many requests have arrived."""
        while len(self.requests) < count:
            self._news.clear()
            await self._news.wait()

    def list_requests(self, path: str) -> list[bytes]:
        """Return the requests for a path."""
        return [item for item in self.requests if item.split(b" ", 2)[1] == path.encode()]


@functools.cache
def _create_authority() -> trustme.CA:
    """Create the authority once, because its certificates take longer than most tests."""
    return trustme.CA()


@contextlib.asynccontextmanager
async def hostile_world(folder: Path) -> AsyncIterator[World]:
    """Start everything on free ports; stop it at the end."""
    authority = _create_authority()
    ca_file = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    async with contextlib.AsyncExitStack() as stack:
        canary = await stack.enter_async_context(_canary())
        world = World(ca_file=str(ca_file), mapped={}, canary_port=canary.port)
        world.canary_hits = canary.hits
        replies = replies_of(canary_port=canary.port, hung_up=world.hung_up)
        tls_port = await stack.enter_async_context(
            _listener(_speaker(world, replies), issue_certificates(authority))
        )
        for name in ("good", *CERTIFICATES, "alert"):
            world.mapped[f"{name}.{ZONE}"] = ("127.0.0.1", tls_port)
        for name, behaviour in _RAW.items():
            port = await stack.enter_async_context(_listener(behaviour, None))
            world.mapped[f"{name}.{ZONE}"] = ("127.0.0.1", port)
        world.mapped[f"refused.{ZONE}"] = ("127.0.0.1", stack.enter_context(_closed_port()))
        world.mapped[f"full.{ZONE}"] = ("127.0.0.1", stack.enter_context(_full_backlog()))
        yield world


# The listeners


@dataclass
class Canary:
    """Listens on both loopback families; every connection is a hit."""

    port: int
    hits: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def _canary() -> AsyncIterator[Canary]:
    canary = Canary(port=0)

    async def hit(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        canary.hits.append(str(writer.get_extra_info("peername")))
        writer.close()

    async with contextlib.AsyncExitStack() as stack:
        first = await asyncio.start_server(hit, "127.0.0.1", 0)
        await stack.enter_async_context(first)
        canary.port = first.sockets[0].getsockname()[1]
        if socket.has_ipv6:
            with contextlib.suppress(OSError):  # a machine without IPv6 has no ::1 to protect
                second = await asyncio.start_server(hit, "::1", canary.port)
                await stack.enter_async_context(second)
        yield canary


@contextlib.asynccontextmanager
async def _listener(
    behaviour: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None,
) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await behaviour(reader, writer)
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, backlog=256)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def _closed_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        yield holder.getsockname()[1]


@contextlib.contextmanager
def _full_backlog() -> Iterator[int]:
    """A port that does not answer a SYN, because its queue is full and no connection is
    accepted.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


# Raw TCP behaviours


async def _reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def _plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(64)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65_536)
    writer.close()


_RAW: Final = {"reset": _reset, "silent": _silent, "plain": _plain, "hang-up": _hang_up}


# HTTP behaviours, by path


def _speaker(
    world: World, replies: dict[str, Reply]
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line[:15] == b"Content-Length:"), 0
        )
        request = head + (await reader.readexactly(length) if length else b"")
        world.note(request)
        path = request.split(b" ", 2)[1].decode().split("?")[0]
        try:
            await replies[path if path in replies else world.otherwise](writer, request)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except OSError:
            world.hung_up.set()

    return speak
