"""Process: the listeners, servers and loops of one process, from its start until it is drained.

What they are made of is wired in app.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import uvicorn

from tollgauge.app import DRAIN_SECONDS, Opened, read_status
from tollgauge.jobs.runner import Job, run_jobs
from tollgauge.web import admin
from tollgauge.web.edge.connections import Connections
from tollgauge.web.edge.listen import Listeners
from tollgauge.web.edge.protocol import CountedProtocol, FindReady, no_ready
from tollgauge.web.settings import ServerSettings

_TURN_S: Final = 0.0005
"""How long a thread that computes, such as that of an index, keeps an answer waiting each time that
this needs the interpreter; Python's own 5 ms are as long as a whole answer.
"""
_COLLECT_AFTER: Final = (10_000, 2, 100)
"""So many new objects are looked through at once, so many lots of them again, and then all."""


async def run(
    resources: Opened,
    listeners: Listeners,
    *,
    jobs: tuple[Job, ...] = (),
    stop: asyncio.Event | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve at the `listeners` and run the loops until SIGINT, SIGTERM or `stop`; then drain."""
    sys.setswitchinterval(_TURN_S)
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    served = tuple(_servers(resources, listeners))
    servers = [server for server, _ in served]
    async with asyncio.TaskGroup() as group:
        for server, listener in served:
            group.create_task(server.serve(sockets=[listener]))
        job_loops = run_jobs(
            jobs, store=resources.store, clock=resources.clock, owner=resources.owner, stop=stop
        )
        running = group.create_task(job_loops)
        # uvicorn says that it started by an attribute only.
        while servers and not servers[0].started and not stop.is_set():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)
        on_ready()
        await stop.wait()
        for server in servers:
            server.should_exit = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(running), DRAIN_SECONDS)
        running.cancel()


def _servers(resources: Opened, listeners: Listeners) -> Iterator[tuple[_Server, socket.socket]]:
    """A server for each listener: the public routes, and the operator's."""
    settings = resources.config.server
    if listeners.public is not None:
        # Half of all modules: a process that serves nothing starts without them.
        from tollgauge.web import routes

        edge = routes.create(resources.server())
        yield _server(edge, settings, ready=edge.ready), listeners.public
        resources.alternatives.begin(resources.store)
    if listeners.admin is not None:
        status_of = partial(read_status, resources.config, resources.store, clock=resources.clock)
        yield (
            _server(admin.create(status_of, hosts=settings.admin_hosts), settings),
            listeners.admin,
        )


class _Server(uvicorn.Server):
    """A server that leaves the signals to `run`, which drains servers and loops together."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: Any, settings: ServerSettings, *, ready: FindReady = no_ready) -> _Server:
    """A server with connections of its own; what a proxy forwards is web/edge's to judge."""
    connections = Connections(settings.connections, proxies=settings.front.trusted_proxies)
    protocol: Any = partial(CountedProtocol, connections, ready)
    return _Server(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            access_log=False,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            lifespan="off",
        )
    )


async def serve_mcp(resources: Opened) -> None:
    """Serve MCP over standard input and output until the input ends."""
    from tollgauge.web import routes
    from tollgauge.web.mcp import transport

    resources.alternatives.begin(resources.store)
    await transport.over_stdio(routes.mcp_server(resources.server()))


def freeze_garbage_collector() -> None:
    """Exempt the objects that exist from garbage collection: in a process that only serves they
    stay to its end, and looking through them again and again doubles the time of a report. What
    comes later is looked through in lots that a batch of scores hardly fills, and again in lots of
    30,000: an index of 100,000 endpoints is made of so many objects that in lots of 100,000 an
    answer would wait for a tenth of a second several times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
