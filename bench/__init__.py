"""Measurements of the service itself, one file each: `tollgauge bench NAME`.

A measurement is a module with `run()`, which returns a JSON object: all that was measured, the
`figures` that have `limits`, and whether each is `held`. Each compares itself with a peer in the
same run, so that its ratios mean the same on any machine.

This package is not part of the installed distribution. `tollgauge.cli.bench` finds it in a
checkout.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tollgauge.core.errors import TollgaugeError

CHECKOUT: Final = Path(__file__).resolve().parent.parent
"""The folder in which `python -m bench.NAME` works: processes of a measurement start there."""
BENCHES: Final[Mapping[str, str]] = {
    "index": "bench.index",
    "paid": "bench.paid",
    "probe": "bench.probe",
    "similar": "bench.similar",
    "watch": "bench.watch",
}
"""Names and modules; a module is loaded when it is asked for, as some want heavy libraries."""


class UnknownBench(TollgaugeError):  # noqa: N818 - what was asked for, not a fault
    """There is no measurement of this name."""


def run(name: str) -> dict[str, Any]:
    """The figures of one measurement. Raises UnknownBench."""
    module = BENCHES.get(name)
    if module is None:
        raise UnknownBench(
            f"There is no measurement {name!r}.", hint=f"Choose one of {', '.join(BENCHES)}."
        )
    report: dict[str, Any] = import_module(module).run()
    return report
