"""`python -m bench.document [NAME…]`: run measurements and write docs/benchmarks.md.

The page states the machine, the versions and the date. Without names, all measurements run. Each
runs in a separate process, so that its memory is measured separately. Sections of measurements that
do not run stay unchanged.
"""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from bench import BENCHES, CHECKOUT, lines

FILE: Final = CHECKOUT / "docs" / "benchmarks.md"
_HEAD: Final = """\
# Benchmarks

Results of `make bench`, which writes this page. [speed.md](speed.md) describes each measurement. A
peer is measured in the same run as the service: compare the ratio between machines, not the
figures. "CPU" is the processor time of all threads of the measured process. This page is long
because it has a table for each bench.
"""
_SECTION: Final = re.compile(r"^## `(\w+)`\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def measure(name: str) -> dict[str, Any]:
    """Run one measurement in a separate process and return its JSON. Raises RuntimeError."""
    command = [sys.executable, "-c", "from tollgauge.cli import main; main()"]
    run = subprocess.run(  # noqa: S603 - our command
        [*command, "bench", name, "--json"], cwd=CHECKOUT, stdout=subprocess.PIPE, check=False
    )
    if not run.stdout:
        raise RuntimeError(f"The measurement {name} failed. Its messages are above.")
    document: dict[str, Any] = orjson.loads(run.stdout)
    return document


def write_sections(page: str, documents: Iterable[Mapping[str, Any]], *, machine: str) -> str:
    """Return the page with new sections in place of older ones, sorted by name."""
    sections = {match[1]: match[0] for match in _SECTION.finditer(page)}
    for document in documents:
        sections[document["bench"]] = _section(document, machine=machine)
    return _HEAD + "".join(f"\n{sections[name].rstrip()}\n" for name in sorted(sections))


def _section(document: Mapping[str, Any], *, machine: str) -> str:
    rows = [
        "| {name} | {figure:,} {unit} | {compared} | {goal} | {met} |".format(
            **measured,
            compared=f"{measured['ratio']} of {measured['peer']} ({measured['peerFigure']:,})"
            if measured["peer"] is not None
            else "",
        )
        .replace("| True |", "| met |")
        .replace("| False |", "| **not met** |")
        for measured in document["measurements"]
    ]
    table = "| figure | measured | compared with | goal | |\n|---|---|---|---|---|\n" + "\n".join(
        rows
    )
    return f"## `{document['bench']}`\n\n{machine}\n\n{table}\n"


def this_machine(now: datetime) -> str:
    """Return the date, the machine and the versions."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (model := re.search(r"^model name\s*: (.*)$", info.read_text(), re.M)):
        processor = model[1]
    parts = (
        f"{now:%Y-%m-%d %H:%M} UTC",
        f"{os.cpu_count()} × {processor}",
        f"load {os.getloadavg()[0]:.1f} at the start",
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
        " ".join(ssl.OPENSSL_VERSION.split()[:2]),
    )
    return ", ".join(parts) + "."


def main(names: Iterable[str]) -> None:
    """Run the measurements and write the page after each."""
    for name in names:
        sys.stderr.write(f"{name} …\n")
        machine = this_machine(datetime.now(UTC))
        document = measure(name)
        sys.stderr.write("".join(f"  {line}\n" for line in lines(document)))
        page = FILE.read_text() if FILE.exists() else ""
        FILE.write_text(write_sections(page, [document], machine=machine))


if __name__ == "__main__":
    main(sys.argv[1:] or BENCHES)
