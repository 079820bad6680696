"""`tollgauge bench`: measure the service itself."""

from __future__ import annotations

import sys

from tollgauge.cli.terminal import BAD, GOOD, Json, errors, print_json


def bench(name: str, as_json: Json = False) -> None:
    """Measure the service: index, paid, probe, similar, watch. Exit 1 when a limit is not held."""
    # Measurements bring libraries and catalogues that no other command needs.
    from tollgauge import bench as benches
    from tollgauge.observe import configure_logs

    configure_logs(json_lines=False, level="error")
    found = benches.run(name)
    if as_json:
        print_json(found)
    else:
        for figure, held in found["held"].items():
            limit = found["limits"][figure]
            value = found["figures"][figure]
            errors.print(f"{figure} {value} (limit {limit}): {'held' if held else 'NOT held'}")
    sys.exit(GOOD if all(found["held"].values()) else BAD)
