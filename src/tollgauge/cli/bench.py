"""`tollgauge bench`: the commands of `bench/` in a checkout, which measure the service itself.

The installed package does not have them.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import tollgauge
from tollgauge.core.base.errors import TollgaugeError


class BenchMissing(TollgaugeError):  # noqa: N818 - names the missing part
    """The package does not run from a checkout."""


@cache
def _load_commands() -> Any:
    """Return the group of bench/commands. Raises BenchMissing if the package is not in a checkout.

    Loaded on demand: measurements need libraries and data that no other command needs.
    """
    checkout = Path(tollgauge.__file__).resolve().parents[2]
    if not (checkout / "bench" / "__init__.py").is_file():
        raise BenchMissing(
            "The measurements are not part of the installed package.",
            hint="Run `tollgauge bench` from a checkout of the repository (`make setup`).",
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return get_command(import_module("bench.commands").bench_app)


class _BenchGroup(TyperGroup):
    """Treats every name that is not a command as the name of a measurement."""

    @property
    def commands(self) -> MutableMapping[str, Any]:
        """The commands by name."""
        loaded: MutableMapping[str, Any] = _load_commands().commands
        return loaded

    @commands.setter
    def commands(self, _own: MutableMapping[str, Any]) -> None:
        """Ignore the commands of the Typer app, which has none."""

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
