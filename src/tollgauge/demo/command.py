"""`tollgauge demo`: starts the market and the service, loads a history, and buys a report."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tollgauge import app, process
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.endpoint.identity import page_url, parse_resource
from tollgauge.demo import wallet as demo_wallet
from tollgauge.demo.anvil import AnvilMissingError, find_or_fetch_anvil
from tollgauge.demo.buyer import BoughtAnswer, buy, watch
from tollgauge.demo.control import run_control
from tollgauge.demo.customers import first_sales, purchases, sale_at
from tollgauge.demo.folder import DemoFolder, named_folder, temporary_folder
from tollgauge.demo.receiver import RECEIVER_URL
from tollgauge.demo.seed import (
    FIRST_ROUND,
    PAST,
    SALES,
    Progress,
    Round,
    configuration,
    prepare,
)
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.settlements import Sales, Settlements
from tollgauge.demo.tour import tour_at
from tollgauge.demo.world import Sellers, World
from tollgauge.jobs.runner import run_jobs
from tollgauge.monitor.reports.overview import leaderboard
from tollgauge.web.settings import Listeners
from tollgauge.web.signing import new_key

SALE_SECONDS: Final = 7.0
DRAIN_SECONDS: Final = 0.5
"""Time that the end of the demo allows for running work."""
_PORT_MAX: Final = 65_535
WATCHED: Final = SELLERS[0]
"""The seller whose watch the demo buys."""


class DemoError(TollgaugeError):
    """The demo could not complete its round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `tollgauge demo`.

    Attributes:
        once: run one round and exit.
        folder: folder that keeps the database and the configuration; a temporary one by default.
        chain: start a local chain, which payments require.
        solana: also start a local Solana network, which requires a chain.
    """

    once: bool
    chain: bool
    solana: bool
    history_days: int
    folder: Path | None


async def play(
    options: Options,
    listeners: Listeners,
    *,
    progress: Progress,
    say: Callable[[str], None],
    show: Callable[[dict[str, Any]], None],
    on_ready: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> None:
    """Run the demo at `listeners`.

    `say` receives messages for the user, `show` the summary of the round after the purchase of the
    report, and `on_ready` the addresses as soon as the pages respond, before the history is loaded.

    Raises:
        TollgaugeError: A part does not start, or no endpoint was scored.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(_folder(options))
        path = None if folder is None else folder.path
        if folder is not None and folder.starts_over:
            say(f"{path} contains an earlier demo. This one has a new chain and a new database.")
        progress("starting a chain, a facilitator and the sellers", 0, 1)
        began = app.now_ms() - options.history_days * DAY_MS if options.history_days else None
        anvil, missing = await _anvil(options, say)
        world = await stack.enter_async_context(_world(anvil, options, folder=path, began=began))
        config = configuration(
            world,
            port=listeners.port,
            store_url="sqlite://" if folder is None else folder.store_url,
            signing_key=new_key() if folder is None else folder.signing_key(),
        )
        links = _links(config.server.base_url, world)
        if not options.once:
            control = run_control(world.faults, world.market.receiver, port=_next(listeners.port))
            control_url = await stack.enter_async_context(control)
            links |= _control_links(control_url, world)
            config = replace(config, demo=replace(config.demo, control_url=control_url))
        if folder is not None:
            links["folder"] = str(folder.path)
            folder.write(config)
        opened = app.open_resources(config, drain_s=DRAIN_SECONDS)
        service = await stack.enter_async_context(opened)
        service.loading.days, service.loading.percent = options.history_days, 0
        stop, ready = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(
            process.run(
                service, listeners, stop=stop, on_ready=ready.set, more=demo_wallet.ROUTES.rows
            )
        )
        demo = _Demo(options, world, service, links, stop, began, missing)
        living = asyncio.create_task(
            demo.live(ready, progress=progress, show=show, on_ready=on_ready)
        )
        await until_one_ends(
            serving, living, stop, is_loading=lambda: service.loading.percent is not None
        )


def _world(
    anvil: Path | None, options: Options, *, folder: Path | None, began: int | None
) -> contextlib.AbstractAsyncContextManager[Sellers]:
    """Return the sellers, with a chain if `anvil` is given. It begins an hour before the
    history.
    """
    if anvil is None:
        return Sellers.open(clock=app.now_ms, folder=folder)
    chain_began = began and began - HOUR_MS
    return World.start(
        clock=app.now_ms,
        chain_began=chain_began,
        anvil=anvil,
        solana=options.solana,
        folder=folder,
    )


@dataclass(frozen=True, slots=True)
class _Demo:
    """A world and the running service.

    Attributes:
        began: start of the simulated history (ms UTC), or None without a history.
        missing: the reason why there is no chain, or empty.
    """

    options: Options
    world: Sellers
    service: app.Opened
    links: Mapping[str, str]
    stop: asyncio.Event
    began: int | None
    missing: str

    async def live(
        self,
        ready: asyncio.Event,
        *,
        progress: Progress,
        show: Callable[[dict[str, Any]], None],
        on_ready: Callable[[Mapping[str, str]], None],
    ) -> None:
        """Load the history, buy a report and show it. Unless only one round is requested, run the
        loops and the customers until the demo is stopped.
        """
        await ready.wait()
        service, world, base_url = self.service, self.world, self.links["base"]
        if not self.options.once:
            on_ready(self.links)
        sales: list[Sales] = []
        report = self._report(progress)
        if isinstance(world, World):
            sales = [Settlements(chain) for chain in world.chains]
            sales += [world.solana] if world.solana else []
            await _settle(sales, began=self.began, now=service.clock(), progress=report)
            world.chain_ready.set()
        days = self.options.history_days
        first_round = await prepare(service, history_days=days, report=report)
        if not first_round.scored:
            raise DemoError("No endpoint of the demo was scored.")
        service.loading.percent = None
        best, purchase = await _best(service), None
        if isinstance(world, World):
            progress("buying a trust report", 0, 1)
            purchase = await buy(base_url, best, account=world.buyer)
        summary = _summary(first_round, purchase, missing=self.missing)
        if self.options.once:
            show(summary)
            return
        if isinstance(world, World):
            await watch(base_url, WATCHED.url, webhook=RECEIVER_URL, account=world.buyer)
        show(summary | self._visitor(best))
        jobs = run_jobs(
            service.jobs(),
            store=service.store,
            clock=service.clock,
            owner=service.owner,
            stop=self.stop,
        )
        await asyncio.gather(jobs, *([_trade(sales, self.stop)] if sales else []))

    def _visitor(self, best: str) -> dict[str, Any]:
        """Pages to open, and commands to paste."""
        page = page_url(self.links["base"], parse_resource(best, self.world.perimeter).id)
        wallet = {"wallet": f"{page}/upgrade"} if isinstance(self.world, World) else {}
        links = {**self.links, "snapshot": page, **wallet}
        if not wallet:  # purchases need a chain
            return {"links": links}
        return {"links": links, "tour": tour_at(WATCHED, links["base"], links["faults"])}

    def _report(self, progress: Progress) -> Progress:
        """Report progress to the terminal, and to the pages as a share of the whole load."""
        shares = (PAST if self.began else {}) | FIRST_ROUND
        loading, steps, whole = self.service.loading, list(shares), sum(shares.values())

        def report(words: str, done: int, total: int) -> None:
            progress(words, done, total)
            if words in shares:
                before = sum(shares[step] for step in steps[: steps.index(words)])
                part = shares[words] * min(done, total) / max(total, 1)
                loading.percent = int(100 * (before + part) / whole)

        return report


async def until_one_ends(
    serving: asyncio.Task[None],
    living: asyncio.Task[None],
    stop: asyncio.Event,
    *,
    is_loading: Callable[[], bool],
) -> None:
    """Wait until the demo is stopped or one of its tasks ends, then end the others.

    The others get DRAIN_SECONDS to finish. Loading the history is cancelled immediately, because a
    part of it is useless. Raises the error of the task that ended first.
    """
    tasks = {serving, living}
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        if is_loading():
            living.cancel()
        await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _folder(options: Options) -> contextlib.AbstractContextManager[DemoFolder | None]:
    """Return the folder of the demo's files: the named folder, or a temporary one.

    None for a single round, whose database is in memory.
    """
    if options.folder is not None:
        return named_folder(options.folder)
    return contextlib.nullcontext() if options.once else temporary_folder()


async def _anvil(options: Options, say: Callable[[str], None]) -> tuple[Path | None, str]:
    """Return anvil, or None and a sentence with the reason why it is missing."""
    if not options.chain:
        return None, "The demo was started with --no-chain."
    try:
        return await asyncio.to_thread(find_or_fetch_anvil, say), ""
    except AnvilMissingError as error:
        say(f"{error} {error.hint}")
        return None, str(error)


async def _settle(
    sales: Sequence[Sales], *, began: int | None, now: int, progress: Progress
) -> None:
    """Let customers pay the sellers since `began` (ms UTC), or make the first purchases now."""
    for of_chain in sales:
        if began is None:
            progress(SALES, 0, 1)
            await of_chain.now(list(first_sales(now)))
            continue
        await of_chain.past(
            list(purchases(began, now, present=now)),
            until=app.now_ms(),
            report=lambda done, total: progress(SALES, done, total),
        )


async def _trade(sales: Sequence[Sales], stop: asyncio.Event) -> None:
    """Make a purchase every few seconds until the demo ends."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), SALE_SECONDS)
            return
        purchase = sale_at(app.now_ms())
        for of_chain in sales:
            await of_chain.now([purchase])


async def _best(service: app.Opened) -> str:
    """Return the first endpoint of the leaderboard.

    Without a simulated history the leaderboard is empty: an endpoint needs 12 hours of probes for
    `proceed`. The watched seller is returned then.
    """
    board = await service.store.reading(leaderboard, now=service.clock())
    return board.rows[0].resource if board.rows else WATCHED.url


def _summary(first_round: Round, purchase: BoughtAnswer | None, *, missing: str) -> dict[str, Any]:
    """Return the figures of the round and the purchase, or the reason why there was none."""
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


def _links(base_url: str, world: Sellers) -> dict[str, str]:
    """Return the addresses for a visitor, by name."""
    links = {"base": base_url, "leaderboard": f"{base_url}/", "mcp": f"{base_url}/mcp"}
    return links | ({"chain": world.rpc_url} if isinstance(world, World) else {})


def _control_links(url: str, world: Sellers) -> dict[str, str]:
    """Return the addresses that switch faults and show alerts."""
    links = {"faults": f"{url}/faults"}
    return links | ({"alerts": f"{url}/alerts"} if isinstance(world, World) else {})


def _next(port: int) -> int:
    """Return the next port, or 0 (any free port) after the last one."""
    return port + 1 if port < _PORT_MAX else 0
