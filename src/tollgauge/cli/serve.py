"""Commands that run until they are stopped: `run`, `serve`, `work`, `mcp`."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from tollgauge.cli.config import collect_advice
from tollgauge.cli.terminal import (
    ConfigFile,
    load_config,
    load_existing,
    note,
    run_async,
    with_service,
)
from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.config import Config
    from tollgauge.web.settings import Listeners


def run(config: ConfigFile = None) -> None:
    """Run API, pages and workers together, on one machine."""
    _run_until_stopped(config, serve=True, only=None)


def serve(config: ConfigFile = None) -> None:
    """Run only the API and the pages; workers run elsewhere."""
    _run_until_stopped(config, serve=True, only=())


def work(
    config: ConfigFile = None,
    only: Annotated[str, typer.Option(help="Names of loops, separated by commas.")] = "",
) -> None:
    """Run only workers: all loops, or those that --only names.

    The loops are probe, schedule, lateness, alert, score, similar, rank, prune, calibrate, bundle
    and seller-files. The loop discover requires a source. The loops index, one per chain such as
    index-8453, require nodes of the chains, and settle a node of the chain of sale.network.
    """
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    _run_until_stopped(config, serve=False, only=names or None)


def mcp(config: ConfigFile = None) -> None:
    """Serve tools to an agent on this machine: MCP over standard input and output."""
    from tollgauge.observe import configure_logs
    from tollgauge.process import serve_mcp

    # A blocking read of standard input cannot be interrupted. The ledger tolerates a sudden exit.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    settings = load_existing(config)
    configure_logs(json_lines=settings.server.json_logs, level="warning")
    with_service(settings, serve_mcp)


def _run_until_stopped(config: ConfigFile, *, serve: bool, only: tuple[str, ...] | None) -> None:
    """Run on uvloop, the faster event loop; `only` None runs every loop."""
    from tollgauge.observe import configure_logs
    from tollgauge.web.settings import listen

    settings = load_config(config)
    places = settings.probe.places
    configure_logs(json_lines=settings.server.json_logs)
    if serve and not places.is_primary:
        raise TollgaugeError(
            f"The vantage {places.own!r} only probes. Reports are served by {places.primary!r}.",
            hint="Use `tollgauge work` here, or put this vantage first in probe.vantages.",
        )
    # Bind first: if the address is taken, the process fails before it imports the rest of the
    # service or changes anything.
    with listen(settings.server, serve=serve) as listeners:
        import uvloop

        service = _run(settings, listeners, serve=serve, only=only)
        run_async(service, loop_factory=uvloop.new_event_loop)


def selectors(loop: str) -> set[str]:
    """Return the names that select a loop: its own, and `index` for that of any chain."""
    return {loop, "index"} if loop.startswith("index-") else {loop}


async def _run(
    config: Config, listeners: Listeners, *, serve: bool, only: tuple[str, ...] | None
) -> None:
    from tollgauge import app as root
    from tollgauge import process
    from tollgauge.observe import log

    async with contextlib.AsyncExitStack() as stack:
        for advice in collect_advice(config):
            log().warning("config.advice", advice=advice)
        service = await stack.enter_async_context(root.open_resources(config))
        jobs = service.jobs()
        if only is not None:
            selected = set(only)
            unknown = selected - {name for job in jobs for name in selectors(job.name)}
            if unknown:
                raise TollgaugeError(
                    f"There is no loop named {', '.join(sorted(unknown))}.",
                    hint=f"The loops are {', '.join(job.name for job in jobs)}. "
                    "discover requires [[sources]]; settle and index-ID require a node of a chain.",
                )
            jobs = tuple(job for job in jobs if selectors(job.name) & selected)

        def ready() -> None:
            if serve:
                note(f"tollgauge serves {config.server.base_url}")
            else:
                names = ", ".join(job.name for job in jobs)
                note(f"tollgauge works: {names}")

        await process.run(service, listeners, jobs=jobs, on_ready=ready)
