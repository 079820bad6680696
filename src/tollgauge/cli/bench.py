"""`tollgauge bench`: measure the service itself."""

from __future__ import annotations

import sys
from typing import Any

from tollgauge.cli.terminal import BAD, GOOD, Json, errors, show


def bench(name: str, as_json: Json = False) -> None:
    """Measure the service: index, paid, probe, similar, watch. Exit 1 when a limit is not held."""
    # Measurements bring libraries and catalogues that no other command needs.
    from tollgauge import bench as benches
    from tollgauge.observe import configure_logs

    configure_logs(json_lines=False, level="error")
    if errors.is_terminal:  # nothing that moves: it would take a part of the processor
        errors.print(f"Measuring {name}; this takes minutes.", markup=False)
    found = benches.run(name)
    show(found, _lines(found), as_json=as_json)
    sys.exit(GOOD if all(found["held"].values()) else BAD)


def _lines(found: dict[str, Any]) -> list[str]:
    words = {True: "held", False: "NOT held"}
    return [
        f"{figure} {found['figures'][figure]} (limit {found['limits'][figure]}): {words[held]}"
        for figure, held in found["held"].items()
    ]
