"""`tollgauge demo`: a complete market on this machine, with faults that can be switched on."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from tollgauge.cli.buy import Service
from tollgauge.cli.terminal import (
    ConfigFile,
    Json,
    load_config,
    note,
    progress_bar,
    run_async,
    show,
)
from tollgauge.core.base.units import dollars
from tollgauge.demo.tour import SERVICE_PORT

if TYPE_CHECKING:
    from tollgauge.web.settings import Listeners

_PLACES: Final = (
    ("leaderboard", "leaderboard"),
    ("snapshot", "the endpoint's snapshot"),
    ("wallet", "buy its report with a wallet"),
    ("mcp", "tools for agents (MCP)"),
    ("chain", "the local chain (JSON-RPC)"),
    ("alerts", "alerts of a watch of weather"),
    ("faults", "active faults"),
)

demo_app = typer.Typer(invoke_without_command=True, no_args_is_help=False)


@demo_app.callback()
def demo(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Run one round, then stop.")] = False,
    history_days: Annotated[
        int, typer.Option(min=0, max=90, help="Days of simulated history to load first.")
    ] = 0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Service port.")] = SERVICE_PORT,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder for the demo's files, kept for the next demo."),
    ] = None,
    chain: Annotated[
        bool, typer.Option("--chain/--no-chain", help="Run a local chain. Payments require it.")
    ] = True,
    solana: Annotated[
        bool, typer.Option("--solana", help="Run a local Solana network, too. Requires solders.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a complete market on this machine: sellers, a directory, a chain, the service, a sale."""
    if context.invoked_subcommand is not None:
        return
    from tollgauge.web.settings import LOOPBACK, bind_listeners

    if solana and not (chain and find_spec("solders")):
        raise typer.BadParameter(
            "It requires a chain and the package solders: pip install 'tollgauge[solana]'.",
            param_hint="--solana",
        )
    # Bind first: if the port is taken, the demo fails immediately, before it has started anything.
    with bind_listeners(LOOPBACK, 0 if once else port, setting="--port") as listeners:
        options = {"once": once, "history_days": history_days, "folder": folder}
        _play(listeners, options | {"chain": chain, "solana": solana}, as_json=as_json)
    # On exit, Python scans all objects several times, which takes seconds. Freezing excludes them:
    # nothing needs to be collected any more.
    gc.freeze()


def _play(listeners: Listeners, chosen: dict[str, Any], *, as_json: bool) -> None:
    """Run the demo and print its progress."""
    # The demo's dependencies (a chain, an EVM library) are slow to import.
    from tollgauge.demo import command
    from tollgauge.observe import configure_logs

    options = command.Options(**chosen)
    configure_logs(json_lines=False, level="error" if options.once else "warning")
    with progress_bar() as progress:

        def show_sale(document: dict[str, Any]) -> None:
            progress("", 1, 1)
            show(document, _lines(document, stays=not options.once), as_json=as_json)

        def show_start(links: Mapping[str, str]) -> None:
            for line in _start_lines(links, options.history_days):
                note(line)

        play = command.play(
            options, listeners, progress=progress, say=note, show=show_sale, on_ready=show_start
        )
        run_async(play)


@demo_app.command()
def fault(
    seller: Annotated[str, typer.Argument(help="First label of the seller's host.")] = "",
    kind: Annotated[str, typer.Argument(help="down, slow, price, payto, broken, delisted.")] = "",
    state: Annotated[str, typer.Argument(help="on or off.")] = "on",
    service: Service = "",
    port: Annotated[
        int | None,
        typer.Option(help="Port of the demo's control server. Default: the service's port + 1."),
    ] = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Switch a fault of a seller of the running demo on or off. Without arguments, list them."""
    from tollgauge.demo import control

    url = f"http://127.0.0.1:{port}" if port else _control_url(service, config)
    if state not in ("on", "off"):
        raise typer.BadParameter("The state must be on or off.")
    if seller and not kind:
        raise typer.BadParameter("Name a fault: run `tollgauge demo fault` for the list.")
    faults = control.switch(url, seller, kind, on=state == "on") if seller else control.state(url)
    lines = [] if seller else [f"{name:10} {text}" for name, text in faults["kinds"].items()]
    lines += [f"on at {label}: {', '.join(kinds)}" for label, kinds in faults["on"].items()]
    show(faults, lines if faults["on"] else [*lines, "no fault is on"], as_json=as_json)


def _control_url(service: str, config: Path | None) -> str:
    """Return the URL of the demo's control server, which listens on the service's port + 1.

    The service is found by URL, by tollgauge.toml, or at the default port.
    """
    settings = load_config(config)
    if settings.demo.control_url and not service:
        return settings.demo.control_url
    try:
        port = urlsplit(service or settings.server.base_url).port or SERVICE_PORT
    except ValueError as error:
        raise typer.BadParameter("Give the URL of the demo.", param_hint="--service") from error
    return f"http://127.0.0.1:{port + 1}"


def _lines(document: dict[str, Any], *, stays: bool) -> Iterator[str]:
    grades = ", ".join(f"{letter} {count}" for letter, count in document["grades"].items())
    yield f"{document['endpoints']} endpoints listed, {document['probes']} probed, {grades}"
    if payment := document["payment"]:
        report = document["report"]
        yield f"bought the report of {report['resource']}: {report['grade']} {report['score']}"
        yield f"paid {dollars(int(payment['amount']))} in USDC by {payment['transaction']}"
    else:
        yield f"no chain, so no payments and no settlements: {document['missing']}"
    if stays:
        yield from _places(document)


def _start_lines(links: Mapping[str, str], history_days: int) -> Iterator[str]:
    """Describe where the service listens and how other commands find the demo."""
    past = f"; it is loading {history_days} days of history" if history_days else ""
    yield f"tollgauge serves {links['base']}/{past}"
    yield f"to use other commands with this demo, run them in {links['folder']}, or with"
    yield f"  --config {links['folder']}/tollgauge.toml"


def _places(document: dict[str, Any]) -> Iterator[str]:
    """List the pages to open, the commands to paste, and how to stop the demo."""
    yield ""
    links = document["links"]
    for key, label in _PLACES:
        if key in links:
            yield f"  {label:30}{links[key]}"
    if tour := document.get("tour"):
        yield f"\nPaste into another terminal:\n\n{tour}"
    yield "\nCtrl-C stops the demo."
