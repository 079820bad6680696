"""Measurements of the service itself, one file each: `tollgauge bench NAME`.

A measurement is a module with `run()`, which answers a JSON object: all that was measured, the
`figures` that have `limits`, and whether each is `held`. Each compares itself with a peer in the
same run, so that its ratios mean the same on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from tollgauge.core.errors import TollgaugeError

BENCHES: Final[Mapping[str, str]] = {
    "index": "tollgauge.bench.index",
    "paid": "tollgauge.bench.paid",
    "probe": "tollgauge.bench.probe",
    "similar": "tollgauge.bench.similar",
    "watch": "tollgauge.bench.watch",
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
    found: dict[str, Any] = import_module(module).run()
    return found
