"""Serves an ASGI application on a loopback port, in this process, until a `with` block ends.

The socket listens before the server starts, so that its port is known and accepts connections. The
server does not handle signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

import uvicorn

from tollgauge.web.settings import LOOPBACK

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_POLL_SECONDS: Final = 0.005
_DATE_SECONDS: Final = 1
_GRACE_SECONDS: Final = 5
"""Longer than the latency of the slowest seller."""


@contextlib.asynccontextmanager
async def serve(
    app: ASGIApp, *, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[int]:
    """Serve `app`, over TLS if a context is given, and yield the port.

    If `port` is 0 or in use, a free port is used.
    """
    with contextlib.closing(_listener(port)) as listener:
        server = _DemoServer(_config(app, tls))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started and not task.done():  # noqa: ASYNC110 (it has no event)
                await asyncio.sleep(_POLL_SECONDS)
            yield listener.getsockname()[1]
        finally:
            server.end()
            await task


def closed_port() -> socket.socket:
    """Return a socket whose port refuses connections while it exists: it is bound but not
    listening.
    """
    unused = socket.socket()
    unused.bind((LOOPBACK, 0))
    return unused


class _DemoServer(uvicorn.Server):
    """A server that does not handle signals and stops within milliseconds once it is idle.

    uvicorn's server checks every 100 ms whether to stop, and then again whether it is idle.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Stop accepting connections, and stop."""
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """Update the `Date` header until the server stops."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - uvicorn calls it so
        """Finish running requests, for at most _GRACE_SECONDS."""
        state = self.server_state
        for listening in self.servers:
            listening.close()
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                while state.connections or state.tasks:  # noqa: ASYNC110 (they have no event)
                    await asyncio.sleep(_POLL_SECONDS)
        for task in state.tasks:
            task.cancel()


def _listener(port: int) -> socket.socket:
    # Declared as TCP: otherwise asyncio leaves Nagle's delay (40 ms per response) enabled.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError:
        listener.bind((LOOPBACK, 0))
    listener.listen(512)
    return listener


def _config(app: ASGIApp, tls: ssl.SSLContext | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        ssl_context_factory=(lambda *_: tls) if tls else None,
    )
