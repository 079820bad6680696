"""The composition root: from a configuration to opened resources, a server and jobs.

This is the only wiring, the one reader of the clock, and the place where the recursion limit that
an EVM library raises is set back.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.logs import ChainLogs
from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.transactions import Transactions
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.facilitator import Facilitator
from tollgauge.config import Config
from tollgauge.core.errors import TollgaugeError
from tollgauge.db.engine import Store
from tollgauge.jobs import alert, discover, index, probe, prune, score, settle, similar
from tollgauge.jobs.runner import Job, run_jobs
from tollgauge.monitor.alternatives import Alternatives
from tollgauge.monitor.probing import Prober
from tollgauge.observe import metrics_text
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.connections import Connections
from tollgauge.web.edge.listen import Listeners, listening
from tollgauge.web.edge.protocol import CountedProtocol
from tollgauge.web.paid.gate import SALE, Gate
from tollgauge.web.paid.live_probe import LiveProbe
from tollgauge.web.settings import ServerSettings

Clock = Callable[[], int]

RECURSION_LIMIT: Final = 3_000
DISCOVER_EVERY_MS: Final = 15 * 60 * 1000
DRAIN_SECONDS: Final = 25


def now_ms() -> int:
    """The clock: milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A configuration with its resources open."""

    config: Config
    store: Store
    egress: Egress
    facilitator: Facilitator
    chain: Prover | None
    logs: ChainLogs | None
    transactions: Transactions
    alternatives: Alternatives
    counting: similar.CountingPause
    clock: Clock
    owner: str

    def server(self) -> Dependencies:
        """What the routes work with."""
        prober = Prober(
            store=self.store,
            egress=self.egress,
            clock=self.clock,
            cadence=self.config.probe.cadence,
            references=self.config.references,
        )
        return Dependencies(
            store=self.store,
            gate=Gate(
                store=self.store,
                facilitator=self.facilitator,
                clock=self.clock,
                chain=self.chain,
            ),
            live=LiveProbe(prober=prober),
            clock=self.clock,
            settings=self.config.sale,
            edge=self.config.server.front,
            base_url=self.config.server.base_url.rstrip("/"),
            perimeter=self.config.egress.perimeter,
            alternatives=self.alternatives,
            sealer=self.config.watch.sealer,
            transactions=self.transactions,
        )

    def jobs(self) -> tuple[Job, ...]:
        """The loops, each with its tick and deadline."""
        found = [
            Job(
                name="probe",
                every_ms=1_000,
                deadline_ms=120_000,
                run=self.probe_round,
                concurrency=self.config.probe.lanes,
            ),
            Job(name="alert", every_ms=1_000, deadline_ms=120_000, run=self.alert_round),
            Job(name="score", every_ms=1_000, deadline_ms=120_000, run=self.score_round),
            Job(
                name="similar",
                every_ms=30_000,
                deadline_ms=600_000,
                run=self.similar_round,
                exclusive=True,
            ),
            Job(
                name="prune",
                every_ms=60_000,
                deadline_ms=300_000,
                run=self.prune_round,
                exclusive=True,
            ),
        ]
        if self.config.sources:
            found.append(
                Job(
                    name="discover",
                    every_ms=DISCOVER_EVERY_MS,
                    deadline_ms=30 * 60 * 1000,
                    run=self.discover_round,
                    exclusive=True,
                )
            )
        if self.chain is not None:
            found.append(
                Job(name="settle", every_ms=10_000, deadline_ms=60_000, run=self.settle_round)
            )
        if self.logs is not None:
            found.append(
                Job(
                    name="index",
                    every_ms=self.config.index.every_ms,
                    deadline_ms=300_000,
                    run=self.index_round,
                    exclusive=True,
                )
            )
        return tuple(found)

    async def probe_round(self) -> dict[str, object]:
        """One wave of probes."""
        return await probe.run(
            self.store,
            self.egress,
            settings=replace(self.config.probe, references=self.config.references),
            clock=self.clock,
            owner=self.owner,
        )

    async def alert_round(self) -> dict[str, object]:
        """One run of deciding and delivering notices."""
        return await alert.run(self.alerts())

    def alerts(self) -> alert.Alerts:
        """What notices are made and delivered with."""
        settings = self.config.watch
        return alert.Alerts(
            store=self.store,
            egress=self.egress,
            settings=settings,
            sealer=settings.sealer,
            base_url=self.config.server.base_url.rstrip("/"),
            clock=self.clock,
            owner=self.owner,
        )

    async def score_round(self) -> dict[str, object]:
        """One batch of scores."""
        return await score.run(self.store, settings=self.config.score, clock=self.clock)

    async def similar_round(self) -> dict[str, object]:
        """One count of better alternatives, unless the loop rests."""
        return await similar.run(
            self.store, self.alternatives, pause=self.counting, clock=self.clock
        )

    async def index_round(self) -> dict[str, object]:
        """One step along the chain."""
        if self.logs is None:
            return {}
        return await index.run(
            self.store,
            self.logs,
            settings=self.config.index,
            clock=self.clock,
            pay_to=self.config.sale.pay_to,
        )

    async def prune_round(self) -> dict[str, object]:
        """One batch of closed days."""
        return await prune.run(self.store, clock=self.clock)

    async def discover_round(self) -> dict[str, object]:
        """One crawl of every source."""
        tally: dict[str, object] = {}
        for source in self.config.sources:
            found = await discover.run(
                self.store,
                self.egress,
                source,
                now=self.clock(),
                perimeter=self.config.egress.perimeter,
            )
            tally[source.name] = found.problem or f"{found.new} new of {found.items}"
        return tally

    async def settle_round(self) -> dict[str, object]:
        """One look at settlements that nobody knows."""
        if self.chain is None:
            return {}
        return await settle.run(self.store, self.chain, clock=self.clock)


@contextlib.asynccontextmanager
async def opened(config: Config, *, clock: Clock = now_ms) -> AsyncIterator[Opened]:
    """Open everything that a configuration names, migrate the store, and close it all again."""
    sys.setrecursionlimit(min(sys.getrecursionlimit(), RECURSION_LIMIT))
    _make_folder(config.store.url)
    store = Store.open(config.store.url)
    egress = Egress(config.egress)
    facilitator = Facilitator(config.facilitator)
    rpc = config.rpc
    chain = Prover.connect(rpc.url, timeout_s=rpc.timeout_s) if rpc.url else None
    logs = _chain_logs(config)
    fallback = {config.sale.network: rpc.url} if rpc.url else {}
    nodes = config.networks.nodes(fallback=fallback, timeout_s=rpc.timeout_s)
    transactions = Transactions(nodes)
    alternatives = Alternatives()
    try:
        await store.migrate()
        egress.start()
        yield Opened(
            config=config,
            store=store,
            egress=egress,
            facilitator=facilitator,
            chain=chain,
            logs=logs,
            transactions=transactions,
            alternatives=alternatives,
            counting=similar.CountingPause(),
            clock=clock,
            owner=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        )
    finally:
        await _sales_end()
        await alternatives.close()
        await egress.close()
        await facilitator.close()
        await transactions.close()
        if chain is not None:
            await chain.close()
        if logs is not None:
            await logs.close()
        await store.close()


def _chain_logs(config: Config) -> ChainLogs | None:
    """The nodes that settlements are read from, None where the operator names none."""
    if not config.rpc.urls:
        return None
    nodes = [Node(url, timeout_s=config.rpc.timeout_s) for url in config.rpc.urls]
    chain_id = int(config.sale.network.rpartition(":")[2])
    return ChainLogs(
        nodes, chain_id=chain_id, token=config.sale.asset, settings=config.index.asking
    )


async def speak(resources: Opened) -> None:
    """Serve the tools for agents over standard input and output, until the input ends."""
    from tollgauge.web import routes
    from tollgauge.web.mcp import transport

    resources.alternatives.begin(resources.store)
    await transport.over_stdio(routes.mcp_server(resources.server()))


def settle_memory() -> None:
    """Let the garbage collector leave alone what is there: in a process that serves, and does
    nothing else, it stays to the end, and looking at it again costs a report its double.
    """
    gc.collect()
    gc.freeze()


async def run(
    resources: Opened,
    *,
    serve: bool = True,
    jobs: tuple[Job, ...] = (),
    stop: asyncio.Event | None = None,
    on_ready: Callable[[], None] | None = None,
    listeners: Listeners | None = None,
) -> None:
    """Serve and turn the loops until SIGINT, SIGTERM or `stop`; then drain.

    Whoever took the addresses before opening the resources hands in the `listeners`; without
    them they are taken now. Raises ListenError.
    """
    with contextlib.ExitStack() as stack:
        taken = listeners or stack.enter_context(listen(resources.config, serve=serve))
        await _run(resources, taken, jobs=jobs, stop=stop or asyncio.Event(), on_ready=on_ready)


def listen(config: Config, *, serve: bool) -> contextlib.AbstractContextManager[Listeners]:
    """Take the addresses that a configuration names. Raises ListenError when it is entered."""
    server = config.server
    return listening(server.host, server.port, admin_port=server.admin_port, serve=serve)


async def _run(
    resources: Opened,
    listeners: Listeners,
    *,
    jobs: tuple[Job, ...],
    stop: asyncio.Event,
    on_ready: Callable[[], None] | None,
) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    served = _served(resources, listeners)
    servers = [_server(app, resources.config.server) for app, _ in served]
    if listeners.public is not None:
        resources.alternatives.begin(resources.store)
    async with asyncio.TaskGroup() as group:
        for server, (_, listener) in zip(servers, served, strict=True):
            group.create_task(server.serve(sockets=[listener]))
        turning = group.create_task(
            run_jobs(
                jobs,
                store=resources.store,
                clock=resources.clock,
                owner=resources.owner,
                stop=stop,
            )
        )
        # uvicorn tells that it started through an attribute only.
        while servers and not servers[0].started and not stop.is_set():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.02)
        if on_ready is not None:
            on_ready()
        await stop.wait()
        for server in servers:
            server.should_exit = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(turning), DRAIN_SECONDS)
        turning.cancel()


class FolderError(TollgaugeError):
    """A database whose folder cannot be made."""


class _Server(uvicorn.Server):
    """A server that leaves the signals to `run`, which drains servers and loops together."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _served(resources: Opened, listeners: Listeners) -> list[tuple[Any, socket.socket]]:
    """The applications with their sockets: the routes of a process that serves, and the metrics."""
    found: list[tuple[Any, socket.socket]] = []
    if listeners.public is not None:
        # Half of all modules: a process that serves nothing starts without them.
        from tollgauge.web import routes

        found.append((routes.create(resources.server()), listeners.public))
    if listeners.admin is not None:
        found.append((_metrics, listeners.admin))
    return found


def _server(app: Any, settings: ServerSettings) -> _Server:
    """A server with connections of its own; what a proxy forwards is web/edge's to judge."""
    connections = Connections(settings.connections, proxies=settings.front.trusted_proxies)
    protocol: Any = partial(CountedProtocol, connections)
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


async def _metrics(scope: Scope, receive: Receive, send: Send) -> None:
    """The admin port: `/metrics` and nothing else."""
    found = scope["path"] == "/metrics"
    body = metrics_text() if found else b"not found\n"
    response = Response(
        body, status_code=200 if found else 404, media_type="text/plain; version=0.0.4"
    )
    await response(scope, receive, send)


async def _sales_end() -> None:
    """Let sales finish whose callers have gone: what they do next needs the store."""
    selling = [task for task in asyncio.all_tasks() if task.get_name() == SALE]
    if selling:
        await asyncio.wait(selling, timeout=DRAIN_SECONDS)


def _make_folder(url: str) -> None:
    """The folder of an SQLite file, so that the first start needs no preparation."""
    scheme, _, rest = url.partition(":///")
    path = Path(rest.partition("?")[0])
    if not scheme.startswith("sqlite") or str(path) in (".", ":memory:"):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(
            f"The folder of the database, {path.parent}, cannot be made.",
            hint="Set store.url (or DATABASE_URL) to a place where this user may write.",
        ) from error
