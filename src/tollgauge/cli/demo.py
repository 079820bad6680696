"""`tollgauge demo`: the whole business on this machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tollgauge.cli.terminal import Json, print_json, progress_bar
from tollgauge.observe import configure_logs


def demo(
    once: Annotated[bool, typer.Option("--once", help="One round, then stop.")] = False,
    history_days: Annotated[
        int, typer.Option(min=0, max=90, help="Days of simulated past to load first.")
    ] = 0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to serve.")] = 8402,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the database here instead of in memory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The whole business on this machine: sellers, a directory, a chain, the service, a sale."""
    # The demo's parts (a chain, an EVM library) are heavy: only this command loads them.
    from tollgauge.demo import command

    configure_logs(json_lines=False, level="error" if once else "warning")
    options = command.Options(once=once, history_days=history_days, port=port, folder=folder)
    with progress_bar() as progress:

        def show(found: dict[str, Any], base_url: str) -> None:
            progress("", 1, 1)
            if as_json:
                print_json(found)
            else:
                _print_demo(found, base_url, stays=not once)

        asyncio.run(command.play(options, progress=progress, show=show))


def _print_demo(found: dict[str, Any], base_url: str, *, stays: bool) -> None:
    report, payment = found["report"], found["payment"]
    grades = ", ".join(f"{letter} {count}" for letter, count in found["grades"].items())
    print(f"{found['endpoints']} endpoints listed, {found['probes']} probed, {grades}")
    print(f"bought the report of {report['resource']}: {report['grade']} {report['score']}")
    print(f"paid {int(payment['amount']) / 10**6:.6f} USDC in {payment['transaction']}")
    if stays:
        print(f"\nThe leaderboard is at {base_url}/ until you press Ctrl-C.")
    sys.stdout.flush()
