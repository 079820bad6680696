"""Measurements of the service itself, one file each: `tollgauge bench NAME`.

Each measurement is a module with `run()`, which returns a Report (bench/measurement): figures with
goals. A peer is measured in the same run, so that the ratio can be compared between machines.
`bench.document` runs all of them and writes docs/benchmarks.md.

This package is not part of the installed distribution. `tollgauge.cli.bench` finds its
commands (bench/commands) in a checkout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bench.measurement import Report
from tollgauge.core.base.errors import TollgaugeError

CHECKOUT: Final = Path(__file__).resolve().parent.parent
"""The folder in which `python -m bench.NAME` works. Measurements start their processes in it."""
BENCHES: Final[Mapping[str, str]] = {
    "bundle": "bench.bundle",
    "day": "bench.day",
    "discover": "bench.discover",
    "growth": "bench.growth",
    "guard": "bench.guard",
    "history": "bench.history",
    "index": "bench.index",
    "inflight": "bench.inflight",
    "oracle": "bench.oracle.referee",
    "paid": "bench.paid",
    "probe": "bench.probe",
    "reads": "bench.reads",
    "record": "bench.record",
    "schedule": "bench.schedule",
    "score": "bench.score",
    "serve": "bench.serve",
    "similar": "bench.similar",
    "watch": "bench.watch",
}
"""Names and modules. A module is loaded only if its measurement runs: some import large libraries.
"""


class UnknownBench(TollgaugeError):  # noqa: N818 - names the cause
    """There is no measurement of this name."""


def run(name: str) -> Report:
    """Run one measurement. Raises UnknownBench."""
    module = BENCHES.get(name)
    if module is None:
        raise UnknownBench(
            f"There is no measurement {name!r}.", hint=f"Choose one of {', '.join(BENCHES)}."
        )
    report: Report = import_module(module).run()
    return report


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a report (`Report.document`) as text, one line per figure."""
    for measured in document["measurements"]:
        compared = ""
        if measured["peer"] is not None:
            compared = f", {measured['ratio']} of {measured['peer']} ({measured['peerFigure']})"
        met = "met" if measured["met"] else "NOT met"
        figure = f"{measured['name']}: {measured['figure']} {measured['unit']}"
        yield f"{figure}{compared}; goal {measured['goal']}: {met}"
