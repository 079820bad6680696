"""`tollgauge bench serve`: the cost of a cached response, compared with a minimal ASGI application.

The complete service runs in a separate process (bench/service). The application (bench/bare) sends
the same status, headers and body to each request, under uvicorn with the same settings. Closed
loops in this process send requests to both in alternating rounds, over persistent loopback
connections. A figure is the number of requests per CPU second of the server's process, all threads:
the median of the rounds.

- `json`: a snapshot; `page`: an endpoint's page, gzipped; `304`: the snapshot for a client that has
  it in its cache. Requests have the headers of a client behind a trusted proxy.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import uvloop

from bench import service, traffic
from bench.child import Child, start_child
from bench.measurement import Measurement, Report
from bench.seller import free_port

SHARE: Final = 0.4
"""Goal, as a fraction of the minimal application's requests per CPU second."""
ROUNDS: Final = 15
CONNECTIONS: Final = 32
ROUND_S: Final = 0.4
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n")
_ADDED: Final = frozenset({"date"})
"""Headers that uvicorn adds to every response."""


def run(rounds: int = ROUNDS, seconds: float = ROUND_S) -> Report:
    """Measure each kind of response in `rounds` rounds of `seconds` seconds."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measure(rounds, seconds))


async def measure(rounds: int, seconds: float) -> Report:
    """Measure the service and the minimal application in alternating rounds."""
    measurements, details = [], {}
    async with run_servers() as (ours, bare):
        for name, request in (await requests(ours)).items():
            reply = await request_once(ours.port, request)
            await bare.send(reply)
            figures = [
                [await server.rate(request, reply.status, seconds) for server in (ours, bare)]
                for _ in range(rounds)
            ]
            figure, peer = (statistics.median(column) for column in zip(*figures, strict=True))
            measurements.append(
                Measurement(
                    name=name,
                    figure=figure,
                    unit="requests per CPU second",
                    goal=SHARE,
                    bound="least",
                    peer="a bare ASGI app",
                    peer_figure=peer,
                )
            )
            details[name] = {
                "bytes": len(reply.body),
                "us_of_cpu": round(1e6 / figure, 1),
                "us_of_cpu_of_peer": round(1e6 / peer, 1),
                "ratios_of_rounds": [round(mine / other, 3) for mine, other in figures],
            }
    return Report(measurements=tuple(measurements), details=details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server's process and its port."""

    process: Child
    port: int

    async def send(self, reply: traffic.Reply) -> None:
        """Set the response of the minimal application."""
        await self.process.order(
            do="answer",
            status=reply.status,
            headers=[pair for pair in reply.headers.items() if pair[0] not in _ADDED],
            body=base64.b64encode(reply.body).decode(),
        )

    async def rate(self, request: bytes, status: int, seconds: float) -> float:
        """Return the requests per CPU second under load for `seconds`."""
        before = (await self.process.order(do="cpu"))["cpu_s"]
        count = await load(self.port, request, status, seconds)
        after = (await self.process.order(do="cpu"))["cpu_s"]
        return count / float(after - before)


async def requests(server: Server) -> dict[str, bytes]:
    """Return the request of each kind."""
    endpoint = service.known_endpoints()[0].id
    snapshot = f"/trust/snapshot/{endpoint}"
    reply = await request_once(server.port, _get(snapshot))
    return {
        "json": _get(snapshot),
        "page": _get(f"/endpoint/{endpoint}"),
        "304": _get(snapshot, f"If-None-Match: {reply.headers['etag']}"),
    }


def _get(path: str, *lines: str) -> bytes:
    """Return a GET as a browser's proxy sends it."""
    more = ("Accept: */*", "Accept-Encoding: gzip, deflate, br", "User-Agent: bench", *lines)
    return traffic.get(path)[:-2] + "".join(f"{line}\r\n" for line in more).encode() + b"\r\n"


async def request_once(port: int, request: bytes) -> traffic.Reply:
    """Send one request and return the response."""
    connection = await traffic.Connection.to(port)
    try:
        return await connection.ask(request)
    finally:
        connection.close()


class ClosedLoop(asyncio.Protocol):
    """A connection that repeats a request as soon as the response has arrived.

    It only searches for the end of a response, unlike traffic.Connection, so that the client uses
    little CPU.
    """

    def __init__(self, request: bytes, status: int) -> None:
        self.count = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._begin = b"HTTP/1.1 %d " % status
        self._left = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.Transport", transport)  # TCP has no other kind
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Receive a part of a response. The head arrives as one part."""
        if self._left:
            self._left -= len(data)
        else:
            length = _LENGTH.search(data)
            end = data.find(b"\r\n\r\n") + 4
            if not data.startswith(self._begin) or end < 4:
                self._fail(data)
                return
            self._left = end + (int(length[1]) if length else 0) - len(data)
        if not self._left:
            self.count += 1
            self._transport.write(self._request)  # type: ignore[union-attr]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it so
        """End the loop: one of the sides closed the connection."""
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _fail(self, data: bytes) -> None:
        first = data.partition(b"\r\n")[0].decode("latin-1")
        self.ended.set_exception(RuntimeError(f"Unexpected response: {first}"))
        self.close()


async def load(port: int, request: bytes, status: int, seconds: float) -> int:
    """Send requests over concurrent connections and return the number of responses."""
    loop = asyncio.get_running_loop()
    connections = [
        await loop.create_connection(lambda: ClosedLoop(request, status), traffic.HOST, port)
        for _ in range(CONNECTIONS)
    ]
    loops = [protocol for _, protocol in connections]
    ended = [one.ended for one in loops]
    await asyncio.wait(ended, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for one in loops:
        one.close()
    await asyncio.gather(*ended)
    return sum(one.count for one in loops)


@contextlib.asynccontextmanager
async def run_servers() -> AsyncIterator[tuple[Server, Server]]:
    """Run the service on an SQLite file, and the minimal application."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = service.Settings(
            port=free_port(),
            store=f"sqlite:///{folder / 'bench.db'}",
            facilitator="http://127.0.0.1:9",
            seller_port=9,
            ca_file="",
        )
        command = service.command(settings)
        process = await stack.enter_async_context(start_child(command, folder / "service"))
        bare = await stack.enter_async_context(
            start_child([sys.executable, "-m", "bench.bare"], folder / "bare")
        )
        await process.line()
        port = int(await bare.line())
        yield Server(process=process, port=settings.port), Server(process=bare, port=port)
