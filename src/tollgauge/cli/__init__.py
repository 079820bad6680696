"""Command line: the list of commands, and the translation of errors to exit codes.

Exit codes: 0 success, 1 the examined object failed, 2 the command failed or was misused. Results go
to standard output, messages to standard error.
"""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Final

import typer

from tollgauge.cli.bench import bench_app
from tollgauge.cli.buy import buy
from tollgauge.cli.config import anchors_app, config_app, init
from tollgauge.cli.database import backup, migrate, restore
from tollgauge.cli.demo import demo_app
from tollgauge.cli.discover import discover
from tollgauge.cli.keys import keys_app
from tollgauge.cli.lint import lint, probe
from tollgauge.cli.payments import payments
from tollgauge.cli.serve import mcp, run, serve, work
from tollgauge.cli.status import doctor, status
from tollgauge.cli.terminal import FAILED, print_error
from tollgauge.cli.trace import trace
from tollgauge.cli.verify import score, verify
from tollgauge.cli.watch import watch_app
from tollgauge.core.base.errors import TollgaugeError

app = typer.Typer(
    name="tollgauge",
    help="Trust and reliability scores for pay-per-call (x402) endpoints.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"tollgauge {version('tollgauge')}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
]


@app.callback()
def options(version: Version = False) -> None:
    """Accept the options that belong to no command."""


for command in (
    *(init, run, serve, work, mcp, migrate, backup, restore, buy, probe, lint, score),
    *(verify, trace, discover, payments, doctor, status),
):
    app.command()(command)
app.add_typer(demo_app, name="demo")
app.add_typer(config_app, name="config")
app.add_typer(keys_app, name="keys")
app.add_typer(anchors_app, name="anchors")
app.add_typer(watch_app, name="watch")
app.add_typer(bench_app, name="bench")


# Python's default of 700 makes the import of the web routes take 8 % longer, because it scans the
# objects created by imports, all of which stay alive.
GC_THRESHOLD: Final = 10_000


def main() -> None:
    """Run the command line; print errors as messages and exit with a code."""
    gc.set_threshold(GC_THRESHOLD)
    try:
        app()
    except TollgaugeError as error:
        print_error(error)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
