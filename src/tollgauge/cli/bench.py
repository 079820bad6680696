"""`tollgauge bench`: measure the service itself, and replay series through its scorer.

The measurements are the folder `bench/` of a checkout and not part of the installed package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tollgauge
from tollgauge.cli.terminal import BAD, GOOD, Json, errors, progress_bar, show
from tollgauge.core.base.errors import TollgaugeError


class BenchMissing(TollgaugeError):  # noqa: N818 - says what is missing
    """The running package was not started from a checkout."""


class _BenchGroup(TyperGroup):
    """A group in which every name that is not a command is the name of a measurement."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if known else ["measure", *args])


bench_app = typer.Typer(cls=_BenchGroup, subcommand_metavar="NAME [ARGS]...", no_args_is_help=True)


@bench_app.callback()
def bench() -> None:
    """Measure the service: discover, index, paid, probe and others; a wrong name lists them all.
    Exit 1 when a goal is not met.

    Works in a checkout of the repository only; `make bench` runs every measurement there and writes
    docs/benchmarks.md.
    """


@bench_app.command()
def measure(
    name: Annotated[str, typer.Argument(help="What to measure.")], as_json: Json = False
) -> None:
    """Run one measurement: `tollgauge bench NAME`."""
    _add_checkout_to_path()
    # Loaded on demand: measurements need libraries and data that no other command needs.
    import bench as measurements
    from tollgauge.observe import configure_logs

    configure_logs(json_lines=False, level="error")
    if errors.is_terminal:  # no progress bar: drawing it would cost processor time
        errors.print(f"Measuring {name}; this takes minutes.", markup=False)
    report = measurements.run(name)
    document = {"bench": name, **report.document()}
    show(document, measurements.lines(document), as_json=as_json)
    sys.exit(GOOD if report.met else BAD)


@bench_app.command()
def replay(
    files: Annotated[list[str], typer.Argument(help="Series: JSON lines, .gz too, or -.")],
    every: Annotated[
        int, typer.Option(min=0, help="Forecast from one of so many lines; 0 chooses.")
    ] = 0,
    confirm: Annotated[
        bool,
        typer.Option(help="A failure counts as confirmed at once; else at the next line."),
    ] = True,
    fill: Annotated[
        bool,
        typer.Option(help="Repeat each line every half hour until the next: for daily series."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Replay series of up and down through the real scorer, and print what its forecasts are worth.

    Each line is {"site": "a.example", "instant": "2026-01-31T12:00:00Z", "up": true}, in any order;
    the instant may be milliseconds UTC. A line that is not up may name the "status" it answered
    with; without one it was a time-out.
    """
    _add_checkout_to_path()
    from bench.replay_report import replay_files, report_lines

    with progress_bar() as progress:
        report = replay_files(files, progress, every=every, confirm=confirm, fill=fill)
    show(report.model_dump(by_alias=True), report_lines(report), as_json=as_json)


def _add_checkout_to_path() -> None:
    """Make `import bench` find the folder beside `src/`. Raises BenchMissing if there is none."""
    checkout = Path(tollgauge.__file__).resolve().parents[2]
    if not (checkout / "bench" / "__init__.py").is_file():
        raise BenchMissing(
            "The measurements are not part of the installed package.",
            hint="Run `tollgauge bench` from a checkout of the repository (`make setup`).",
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
