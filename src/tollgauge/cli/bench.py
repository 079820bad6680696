"""`tollgauge bench`: measure the service itself, and replay availability series through its scorer.

The measurements are in the folder `bench/` of a checkout; the installed package does not have them.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tollgauge
from tollgauge.cli.terminal import BAD, GOOD, Json, errors, progress_bar, show
from tollgauge.core.base.errors import TollgaugeError


class BenchMissing(TollgaugeError):  # noqa: N818 - names the missing part
    """The package does not run from a checkout."""


class _BenchGroup(TyperGroup):
    """Treats every name that is not a command as the name of a measurement."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if known else ["measure", *args])


bench_app = typer.Typer(cls=_BenchGroup, subcommand_metavar="NAME [ARGS]...", no_args_is_help=True)


@bench_app.callback()
def bench() -> None:
    """Measure the service: discover, index, paid, probe and others. Exit 1 if a goal is not met.

    An unknown name prints the list of measurements.

    Works only in a checkout of the repository. There, `make bench` runs every measurement and
    writes docs/benchmarks.md.
    """


@bench_app.command()
def measure(
    name: Annotated[str, typer.Argument(help="Name of the measurement.")], as_json: Json = False
) -> None:
    """Run one measurement: `tollgauge bench NAME`."""
    _add_checkout_to_path()
    # Loaded on demand: measurements need libraries and data that no other command needs.
    import bench as measurements
    from tollgauge.observe import configure_logs

    configure_logs(json_lines=False, level="error")
    if errors.is_terminal:  # no progress bar: drawing it would use processor time
        errors.print(f"Measuring {name}. This takes minutes.", markup=False)
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
    _add_checkout_to_path()
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
    _add_checkout_to_path()
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


def _add_checkout_to_path() -> None:
    """Make `bench/` importable. Raises BenchMissing if the package is not in a checkout."""
    checkout = Path(tollgauge.__file__).resolve().parents[2]
    if not (checkout / "bench" / "__init__.py").is_file():
        raise BenchMissing(
            "The measurements are not part of the installed package.",
            hint="Run `tollgauge bench` from a checkout of the repository (`make setup`).",
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
