"""The commands of `tollgauge bench`: run a measurement, replay availability series through the
scorer, and count double payments of clients.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from tollgauge.cli.terminal import BAD, GOOD, Json, note, progress_bar, show

bench_app = typer.Typer()


@bench_app.command()
def measure(
    name: Annotated[str, typer.Argument(help="Name of the measurement.")], as_json: Json = False
) -> None:
    """Run one measurement: `tollgauge bench NAME`."""
    # Loaded on demand: measurements need libraries and data that no other command needs.
    import bench as measurements
    from tollgauge.observe import configure_logs

    configure_logs(json_lines=False, level="error")
    if sys.stderr.isatty():  # no progress bar: drawing it would use processor time
        note(f"Measuring {name}. This takes minutes.")
    report = measurements.run(name)
    document = {"bench": name, **report.document()}
    show(document, measurements.lines(document), as_json=as_json)
    sys.exit(GOOD if report.met else BAD)


@bench_app.command()
def replay(
    files: Annotated[list[str], typer.Argument(help="JSON lines files (also .gz), or -.")],
    every: Annotated[
        int, typer.Option(min=0, help="Forecast from about one of N lines. 0: automatic.")
    ] = 0,
    confirm: Annotated[
        bool,
        typer.Option(help="Confirm a failure immediately instead of at the next line."),
    ] = True,
    fill: Annotated[
        bool,
        typer.Option(help="Repeat each line every 30 minutes until the next (for daily series)."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Replay availability series through the scorer and print the skill of its forecasts.

    Each line is `{"site": "a.example", "instant": "2026-01-31T12:00:00Z", "up": true}`. Lines may
    be in any order; `instant` may also be milliseconds UTC. A line with "up": false may contain the
    "status" of the response; without one it counts as a timeout.
    """
    from bench.replay_report import replay_files, report_lines

    with progress_bar() as progress:
        report = replay_files(files, progress, every=every, confirm=confirm, fill=fill)
    show(report.model_dump(by_alias=True), report_lines(report), as_json=as_json)


@bench_app.command(name="pay-twice")
def pay_twice(
    client: Annotated[str, typer.Option(metavar="COMMAND", help="Measure only this program.")] = "",
    seller: Annotated[
        list[str] | None, typer.Option(help="Only this seller: fastapi, flask, express or hono.")
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Write docs/pay-twice.md.")] = False,
    as_json: Json = False,
) -> None:
    """Count how often clients pay for one purchase when something fails once.

    Without --client, measures the official clients, the guards of this repository, and the guards
    of others that are installed (`bash scripts/setup.sh purchases`). Exit 1 if the client, or a
    guard of this repository, signed a second authorization.
    """
    from bench import pay_twice as measurement
    from bench.document import this_machine
    from bench.pay_twice_page import PAGE, write_page

    clients = [measurement.client_of(client)] if client else measurement.list_clients()
    if page and (client or seller):
        raise typer.BadParameter("--page needs all clients and sellers.", param_hint="--page")
    sellers = seller or measurement.SELLERS
    if unknown := set(sellers) - set(measurement.SELLERS):
        raise typer.BadParameter(f"No such seller: {', '.join(unknown)}.", param_hint="--seller")
    machine, results = this_machine(datetime.now(UTC)), measurement.measure(clients, sellers)
    if page:
        PAGE.write_text(write_page(results, clients, machine))
    show(results.document(), measurement.describe(results), as_json=as_json)
    judged = [one.name for one in clients if client or one.is_ours]
    is_safe = all(results.totals[name].signed_twice == 0 for name in judged)
    sys.exit(GOOD if is_safe else BAD)
