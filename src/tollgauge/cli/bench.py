"""`tollgauge bench`: measure the service itself.

The measurements are the folder `bench/` of a checkout and not part of the installed package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import tollgauge
from tollgauge.cli.terminal import BAD, GOOD, Json, errors, show
from tollgauge.core.errors import TollgaugeError


class BenchMissing(TollgaugeError):  # noqa: N818 - says what is missing
    """The running package was not started from a checkout."""


def bench(
    name: Annotated[str, typer.Argument(help="What to measure.")], as_json: Json = False
) -> None:
    """Measure the service: discover, index, paid, probe and others; a wrong name lists them all.
    Exit 1 when a goal is not met.

    Works in a checkout of the repository only; `make bench` runs every measurement there and writes
    docs/benchmarks.md.
    """
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
