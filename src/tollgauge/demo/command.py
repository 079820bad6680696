"""`tollgauge demo`: starts the world and the service in it, does one round, and buys a report."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tollgauge import app
from tollgauge.core.endpoint import parse_resource
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.units import DAY_MS, HOUR_MS
from tollgauge.demo.anvil import AnvilMissingError, find_or_fetch_anvil
from tollgauge.demo.buyer import BoughtAnswer, buy, watch
from tollgauge.demo.control import run_control
from tollgauge.demo.customers import first_sales, purchases, sale_at
from tollgauge.demo.receiver import RECEIVER_URL
from tollgauge.demo.seed import Progress, Round, configuration, prepare
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.settlements import Settlements
from tollgauge.demo.tour import tour
from tollgauge.demo.world import Sellers, World
from tollgauge.monitor import reports
from tollgauge.web.edge.listen import LOOPBACK, listening

SALE_SECONDS: Final = 7.0
_PORT_MAX: Final = 65_535
WATCHED: Final = SELLERS[0]
"""The seller whose watch the demo buys."""


class DemoError(TollgaugeError):
    """The demo could not do its round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`once`: one round and no server left behind. `port` 0 takes any free one. `folder` keeps
    the database; without one it ends with the demo. Without a `chain` nothing can be paid.
    """

    once: bool = False
    chain: bool = True
    history_days: int = 0
    port: int
    folder: Path | None = None


async def play(
    options: Options,
    *,
    progress: Progress,
    say: Callable[[str], None],
    show: Callable[[dict[str, Any]], None],
) -> None:
    """Run the demo. `say` gets what somebody should know who waits, `show` the round's summary
    once the report has been bought. Raises TollgaugeError when a part does not start or the round
    finds nothing.
    """
    async with contextlib.AsyncExitStack() as stack:
        # Bind first: a demo whose port is taken must not have started anything.
        free_or_named = 0 if options.once else options.port
        listeners = stack.enter_context(listening(LOOPBACK, free_or_named, setting="--port"))
        port = listeners.port
        progress("starting a chain, a facilitator and the sellers", 0, 1)
        began = app.now_ms() - options.history_days * DAY_MS if options.history_days else None
        anvil, missing = await _anvil(options, say)
        world: Sellers = await stack.enter_async_context(
            World.start(clock=app.now_ms, chain_began=began and began - HOUR_MS, anvil=anvil)
            if anvil
            else Sellers.open(clock=app.now_ms)
        )
        sales = Settlements(world.chain) if isinstance(world, World) else None
        if sales is not None:
            await _settle(sales, began=began, now=app.now_ms(), progress=progress)
        control = (
            ""
            if options.once
            else await stack.enter_async_context(
                run_control(world.faults, world.market.receiver, port=_next(port))
            )
        )
        file = options.folder and options.folder / "demo.sqlite"
        url = f"sqlite:///{file}" if file else "sqlite://"
        service = await stack.enter_async_context(
            app.opened(configuration(world, port=port, store_url=url))
        )
        first_round = await prepare(service, history_days=options.history_days, report=progress)
        stop, ready = asyncio.Event(), asyncio.Event()
        jobs = () if options.once else service.jobs()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(
                app.run(service, listeners, jobs=jobs, stop=stop, on_ready=ready.set)
            )
            try:
                await _wait_unless_stopped(ready.wait(), running)
                base_url = service.config.server.base_url
                best = await _best(service)
                purchase = None
                if isinstance(world, World):
                    progress("buying a trust report", 0, 1)
                    purchase = await buy(base_url, best, account=world.buyer)
                summary = _summary(first_round, purchase, missing=missing)
                if options.once:
                    stop.set()
                else:
                    if isinstance(world, World):
                        buyer = world.buyer
                        await watch(base_url, WATCHED.url, webhook=RECEIVER_URL, account=buyer)
                    if sales is not None:
                        group.create_task(_trade(sales, stop))
                    summary["links"] = _links(base_url, best, control=control, world=world)
                    summary["tour"] = tour(
                        WATCHED, folder=_folder(), service=port, control=_port(control)
                    )
                show(summary)
                await running
            finally:
                stop.set()


async def _anvil(options: Options, say: Callable[[str], None]) -> tuple[Path | None, str]:
    """The chain's program, None where there is none; and why there is none, in a sentence."""
    if not options.chain:
        return None, "The demo was started with --no-chain."
    try:
        return await asyncio.to_thread(find_or_fetch_anvil, say), ""
    except AnvilMissingError as error:
        say(f"{error} {error.hint}")
        return None, str(error)


async def _settle(sales: Settlements, *, began: int | None, now: int, progress: Progress) -> None:
    """Let customers pay the sellers: from `began` (ms UTC) on, or a first round of them now."""
    if began is None:
        progress("customers pay the sellers", 0, 1)
        await sales.now(list(first_sales(now)))
        return
    await sales.past(
        list(purchases(began, now, present=now)),
        until=app.now_ms(),
        report=lambda done, total: progress("customers pay the sellers", done, total),
    )


async def _trade(sales: Settlements, stop: asyncio.Event) -> None:
    """A purchase every few seconds until the demo ends."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), SALE_SECONDS)
            return
        await sales.now([sale_at(app.now_ms())])


async def _wait_unless_stopped(ready: Any, running: asyncio.Task[None]) -> None:
    """Wait for `ready`. Raises DemoError if the server stops before."""
    waiting = asyncio.ensure_future(ready)
    await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        running.result()
        raise DemoError("The server stopped before it answered.")


async def _best(service: app.Opened) -> str:
    """The best endpoint of the leaderboard whose recommendation is to proceed, else the first."""
    board = await service.store.reading(reports.leaderboard, now=service.clock())
    candidates = [row for row in board.rows if row.recommendation == "proceed"] or [*board.rows]
    if not candidates:
        raise DemoError("No endpoint of the demo was scored.")
    return candidates[0].resource


def _summary(first_round: Round, purchase: BoughtAnswer | None, *, missing: str) -> dict[str, Any]:
    """The figures of the round, and what was bought; `missing` says why nothing could be."""
    figures = {
        "endpoints": first_round.endpoints,
        "probes": first_round.probes,
        "scored": first_round.scored,
        "grades": first_round.grades,
    }
    if purchase is None:
        return {**figures, "report": None, "payment": None, "missing": missing}
    payment = {
        "transaction": purchase.transaction,
        "payer": purchase.payer,
        "amount": str(purchase.amount),
    }
    return {**figures, "report": purchase.report, "payment": payment}


def _links(base_url: str, resource: str, *, control: str, world: Sellers) -> dict[str, str]:
    """Addresses for a visitor, by what is there."""
    page = f"{base_url}/endpoint/{parse_resource(resource, world.perimeter).id}"
    links = {
        "leaderboard": f"{base_url}/",
        "snapshot": page,
        "mcp": f"{base_url}/mcp",
        "faults": f"{control}/faults",
    }
    if isinstance(world, World):
        paid = {"wallet": f"{page}/upgrade", "alerts": f"{control}/alerts", "chain": world.rpc_url}
        links |= paid
    return links


def _folder() -> str:
    """Where this program is installed, "" where a shell finds it."""
    return "" if shutil.which("tollgauge") else str(Path(sys.argv[0]).absolute().parent)


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _next(port: int) -> int:
    """The port after `port`; 0, which means any free one, after the last."""
    return port + 1 if port < _PORT_MAX else 0
