"""`tollgauge demo`: the whole business on this machine, and a hand on its sellers' faults."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tollgauge.cli.terminal import Json, print_json, progress_bar

PORT: Final = 8402
_PLACES: Final = (
    ("leaderboard", "leaderboard"),
    ("snapshot", "what it says of the endpoint"),
    ("wallet", "buy its report with a wallet"),
    ("mcp", "tools for agents (MCP)"),
    ("chain", "the local chain (JSON-RPC)"),
    ("alerts", "alerts of a watch of weather"),
    ("faults", "faults that are on"),
)

demo_app = typer.Typer(invoke_without_command=True, no_args_is_help=False)


@demo_app.callback()
def demo(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="One round, then stop.")] = False,
    history_days: Annotated[
        int, typer.Option(min=0, max=90, help="Days of simulated past to load first.")
    ] = 0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to serve.")] = PORT,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the database here instead of in memory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The whole business on this machine: sellers, a directory, a chain, the service, a sale."""
    if context.invoked_subcommand is not None:
        return
    # The demo's parts (a chain, an EVM library) are heavy: only this command loads them.
    from tollgauge.demo import command
    from tollgauge.observe import configure_logs

    configure_logs(json_lines=False, level="error" if once else "warning")
    options = command.Options(once=once, history_days=history_days, port=port, folder=folder)
    with progress_bar() as progress:

        def show(found: dict[str, Any]) -> None:
            progress("", 1, 1)
            if as_json:
                print_json(found)
            else:
                _print_demo(found, stays=not once)

        asyncio.run(command.play(options, progress=progress, show=show))


@demo_app.command()
def fault(
    seller: Annotated[str, typer.Argument(help="The first part of the seller's host.")] = "",
    kind: Annotated[str, typer.Argument(help="down, slow, price, payto, broken, delisted.")] = "",
    state: Annotated[str, typer.Argument(help="on or off.")] = "on",
    port: Annotated[int, typer.Option(help="Where the demo listens to this.")] = PORT + 1,
    as_json: Json = False,
) -> None:
    """Switch a fault of a seller of the running demo on or off; without words, list them."""
    from tollgauge.demo import control

    url = f"http://127.0.0.1:{port}"
    if state not in ("on", "off"):
        raise typer.BadParameter("A fault is switched on or off.")
    if seller and not kind:
        raise typer.BadParameter("Name the fault too: run `tollgauge demo fault` for the list.")
    found = control.switch(url, seller, kind, on=state == "on") if seller else control.state(url)
    if as_json:
        print_json(found)
        return
    if not seller:
        for name, meaning in found["kinds"].items():
            print(f"{name:10} {meaning}")
    for label, kinds in found["on"].items():
        print(f"on at {label}: {', '.join(kinds)}")
    if not found["on"]:
        print("no fault is on")


def _print_demo(found: dict[str, Any], *, stays: bool) -> None:
    report, payment = found["report"], found["payment"]
    grades = ", ".join(f"{letter} {count}" for letter, count in found["grades"].items())
    print(f"{found['endpoints']} endpoints listed, {found['probes']} probed, {grades}")
    print(f"bought the report of {report['resource']}: {report['grade']} {report['score']}")
    print(f"paid {int(payment['amount']) / 10**6:.6f} USDC in {payment['transaction']}")
    if stays:
        _print_places(found["links"])
    sys.stdout.flush()


def _print_places(links: dict[str, str]) -> None:
    """Where to go, what to try, and how to end it."""
    door = links["faults"].removesuffix("/faults").rpartition(":")[2]
    where = "" if int(door) == PORT + 1 else f" --port {door}"
    rows = [(words, links[key]) for key, words in _PLACES]
    rows.append(("break a seller", f"tollgauge demo fault weather down on{where}"))
    print()
    for words, place in rows:
        print(f"  {words:30}{place}")
    print("\nCtrl-C ends it.")
