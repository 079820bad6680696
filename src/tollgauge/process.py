"""Run the servers and loops of one process until it is drained. app composes them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from tollgauge.app import DRAIN_SECONDS, Opened
from tollgauge.core.base.units import SECOND_MS
from tollgauge.jobs.runner import Job, run_jobs
from tollgauge.service_status import read_status
from tollgauge.web import admin
from tollgauge.web.edge.connections import Connections
from tollgauge.web.edge.protocol import CountedProtocol
from tollgauge.web.settings import Listeners, ServerSettings

if TYPE_CHECKING:
    from tollgauge.web.route import Route

# Maximum time that a computing thread holds the interpreter. Python's default of 5 ms is as long
# as an entire response takes.
SWITCH_INTERVAL_S: Final = 0.0005

# Options of mallopt(3) with their values. By default glibc raises the mmap threshold to 32 MB as
# large blocks are freed; the arrays of a rebuilt index then fragment the heap and stay resident.
MALLOC_OPTIONS: Final = {
    -3: 256 * 1024,  # M_MMAP_THRESHOLD: larger blocks are returned when they are freed
    -1: 1024 * 1024,  # M_TRIM_THRESHOLD: free memory kept at the top of the heap
}


async def run(
    resources: Opened,
    listeners: Listeners,
    *,
    jobs: tuple[Job, ...] = (),
    stop: asyncio.Event | None = None,
    on_ready: Callable[[], None] = lambda: None,
    more: Iterable[Route] = (),
) -> None:
    """Serve at the `listeners` and run the loops until SIGINT, SIGTERM or `stop`, then drain. The
    demo adds `more` routes.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    served = tuple(_servers(resources, listeners, more))
    tune_interpreter()
    servers = [server for server, _ in served]
    async with asyncio.TaskGroup() as group:
        for server, listener in served:
            group.create_task(server.serve(sockets=[listener]))
        job_loops = run_jobs(
            jobs, store=resources.store, clock=resources.clock, owner=resources.owner, stop=stop
        )
        running = group.create_task(job_loops)
        # uvicorn has no event for its start, only an attribute.
        while servers and not servers[0].started and not stop.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        on_ready()
        await stop.wait()
        for server in servers:
            server.should_exit = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(running), DRAIN_SECONDS)
        running.cancel()


def tune_interpreter() -> None:
    """Limit the time for which a computing thread, or the garbage collector, blocks all others, and
    return freed memory to the system.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Everything is imported now and stays alive. A collection that scans it too takes 160 ms.
    gc.freeze()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc
    if mallopt is not None:
        for option, value in MALLOC_OPTIONS.items():
            mallopt(option, value)


def _servers(
    resources: Opened, listeners: Listeners, more: Iterable[Route]
) -> Iterator[tuple[_Server, socket.socket]]:
    """Yield a server per listener: the public routes and the operator's port."""
    settings = resources.config.server
    if listeners.public is not None:
        # Imported here because it loads half of all modules, which a worker does not need.
        from tollgauge.web import routes

        edge = routes.create(resources.server(), more)
        yield _server(edge, settings), listeners.public
        resources.alternatives.begin(resources.store)
    if listeners.admin is not None:
        status_of = partial(read_status, resources.config, resources.store, clock=resources.clock)
        yield (
            _server(admin.create(status_of, hosts=settings.admin_hosts), settings),
            listeners.admin,
        )


class _Server(uvicorn.Server):
    """A server that leaves signals to `run`, which drains servers and loops together."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: Any, settings: ServerSettings) -> _Server:
    """Return a server with its own connection limits."""
    connections = Connections(settings.connections, proxies=settings.front.trusted_proxies)
    protocol: Any = partial(CountedProtocol, connections)
    return _Server(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            access_log=False,
            log_level="warning",
            proxy_headers=False,  # web/edge/middleware reads X-Forwarded-For of trusted proxies
            # Longer than CountedProtocol's deadline, which replaces uvicorn's.
            timeout_keep_alive=settings.connections.idle_ms // SECOND_MS + 1,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            lifespan="off",
        )
    )


async def serve_mcp(resources: Opened) -> None:
    """Serve MCP over standard input and output until the input ends."""
    from tollgauge.web.mcp import transport

    resources.alternatives.begin(resources.store)
    await transport.over_stdio(transport.build_server(resources.server()))
