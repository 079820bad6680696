"""What `tollgauge demo` does: the world, the service in it, one round, one purchase, one server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tollgauge import app, reports
from tollgauge.core.errors import TollgaugeError
from tollgauge.demo.buyer import Purchase, buy
from tollgauge.demo.control import run_control
from tollgauge.demo.stage import Progress, configuration, prepare
from tollgauge.demo.world import World

PORT: Final = 8402


class DemoError(TollgaugeError):
    """The demo could not do its round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`once`: one round and no server left behind. `port` 0 takes any free one. `folder` keeps
    the database; without one it lives as long as the demo.
    """

    once: bool = False
    history_days: int = 0
    port: int = PORT
    folder: Path | None = None


async def play(
    options: Options, *, progress: Progress, show: Callable[[dict[str, Any], str], None]
) -> None:
    """Play the demo. `show` gets the round's summary and the service's address once the report
    has been bought. Raises TollgaugeError when a part does not start or the round finds nothing.
    """
    async with contextlib.AsyncExitStack() as stack:
        progress("starting a chain, a facilitator and the sellers", 0, 1)
        world = await stack.enter_async_context(World.start(clock=app.now_ms))
        port = _free_port() if options.once else options.port or _free_port()
        control = (
            ""
            if options.once
            else await stack.enter_async_context(run_control(world.faults, port=port + 1))
        )
        url = f"sqlite:///{options.folder / 'demo.sqlite'}" if options.folder else "sqlite://"
        service = await stack.enter_async_context(
            app.opened(configuration(world, port=port, store_url=url))
        )
        found = await prepare(service, history_days=options.history_days, report=progress)
        stop, ready = asyncio.Event(), asyncio.Event()
        jobs = () if options.once else service.jobs()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(app.run(service, jobs=jobs, stop=stop, on_ready=ready.set))
            try:
                await _either(ready.wait(), running)
                progress("buying a trust report", 0, 1)
                base_url = service.config.server.base_url
                bought = await buy(base_url, await _best(service), account=world.buyer)
                show(_summary(found, bought) | ({"control": control} if control else {}), base_url)
                if options.once:
                    stop.set()
                await running
            finally:
                stop.set()


async def _either(wanted: Any, running: asyncio.Task[None]) -> None:
    """Wait for `wanted`, but no longer than the server lives."""
    waiting = asyncio.ensure_future(wanted)
    await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        running.result()
        raise DemoError("The server stopped before it answered.", hint="Is its port taken?")


async def _best(service: app.Opened) -> str:
    """The best endpoint of the leaderboard that is to be had as it stands."""
    async with service.store.read() as tx:
        board = await reports.leaderboard(tx, now=service.clock())
    fit = [row for row in board.rows if row.recommendation == "proceed"] or [*board.rows]
    if not fit:
        raise DemoError("No endpoint of the demo was scored.")
    return fit[0].resource


def _summary(found: Any, bought: Purchase) -> dict[str, Any]:
    return {
        "endpoints": found.endpoints,
        "probes": found.probes,
        "scored": found.scored,
        "grades": found.grades,
        "report": bought.report,
        "payment": {
            "transaction": bought.transaction,
            "payer": bought.payer,
            "amount": str(bought.amount),
        },
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
