"""`tollgauge bench serve`: what a ready answer costs, beside a bare ASGI app that sends the same.

Measured: the service as it is served, in a process of its own (bench/service), and an application
that does nothing but send the same status, headers and body to whatever comes (bench/bare), under
uvicorn with the same settings. Both are asked over kept connections on loopback by closed loops in
this process, in turns; a figure is the requests of a CPU second of the server's process, all
threads, the median of the rounds.

- `json`: a snapshot; `page`: an endpoint's page, gzipped; `304`: the snapshot, for a client that
  has it. Requests carry the headers of a client behind a trusted proxy.
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
from bench.child import Child, started
from bench.measurement import Measurement, Report
from bench.seller import free_port

SHARE: Final = 0.4
"""Goal, as a fraction of what the bare application sends per CPU second."""
ROUNDS: Final = 15
CONNECTIONS: Final = 32
ROUND_S: Final = 0.4
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n")
_ADDED: Final = frozenset({"date"})
"""Headers that uvicorn adds to every answer."""


def run(rounds: int = ROUNDS, seconds: float = ROUND_S) -> Report:
    """Measure each kind of answer for so many rounds of so many seconds."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measure(rounds, seconds))


async def measure(rounds: int, seconds: float) -> Report:
    """The service and the bare application in turns."""
    measurements, details = [], {}
    async with served() as (ours, bare):
        for name, request in (await requests(ours)).items():
            reply = await asked(ours.port, request)
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
                    unit="requests a CPU second",
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
    """A server's process, and the port where it serves."""

    process: Child
    port: int

    async def send(self, reply: traffic.Reply) -> None:
        """Have the bare application answer with this."""
        await self.process.order(
            do="answer",
            status=reply.status,
            headers=[pair for pair in reply.headers.items() if pair[0] not in _ADDED],
            body=base64.b64encode(reply.body).decode(),
        )

    async def rate(self, request: bytes, status: int, seconds: float) -> float:
        """Requests that it answers in a CPU second, under load for `seconds`."""
        before = (await self.process.order(do="cpu"))["cpu_s"]
        count = await load(self.port, request, status, seconds)
        after = (await self.process.order(do="cpu"))["cpu_s"]
        return count / float(after - before)


async def requests(server: Server) -> dict[str, bytes]:
    """The request of each kind."""
    endpoint = service.known()[0].id
    snapshot = f"/trust/snapshot/{endpoint}"
    reply = await asked(server.port, _get(snapshot))
    return {
        "json": _get(snapshot),
        "page": _get(f"/endpoint/{endpoint}"),
        "304": _get(snapshot, f"If-None-Match: {reply.headers['etag']}"),
    }


def _get(path: str, *lines: str) -> bytes:
    """A GET as a browser's proxy sends it."""
    more = ("Accept: */*", "Accept-Encoding: gzip, deflate, br", "User-Agent: bench", *lines)
    return traffic.get(path)[:-2] + "".join(f"{line}\r\n" for line in more).encode() + b"\r\n"


async def asked(port: int, request: bytes) -> traffic.Reply:
    """One answer."""
    connection = await traffic.Connection.to(port)
    try:
        return await connection.ask(request)
    finally:
        connection.close()


class ClosedLoop(asyncio.Protocol):
    """One connection that sends the same request again as soon as it is answered. It only finds the
    end of an answer, where traffic.Connection reads all of it: the server is the one to be busy.
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
        """A part of an answer. The head comes as one part."""
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
        """The other side hung up, or this one."""
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def _fail(self, data: bytes) -> None:
        first = data.partition(b"\r\n")[0].decode("latin-1")
        self.ended.set_exception(RuntimeError(f"not the answer that was expected: {first}"))
        self.close()


async def load(port: int, request: bytes, status: int, seconds: float) -> int:
    """Ask over some connections at once for so long; how many answers came."""
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
async def served() -> AsyncIterator[tuple[Server, Server]]:
    """The service on an SQLite file, and the bare application."""
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
        process = await stack.enter_async_context(started(command, folder / "service"))
        bare = await stack.enter_async_context(
            started([sys.executable, "-m", "bench.bare"], folder / "bare")
        )
        await process.line()
        port = int(await bare.line())
        yield Server(process=process, port=settings.port), Server(process=bare, port=port)
