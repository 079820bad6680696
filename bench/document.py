"""`python -m bench.document [NAME…]`: run measurements and write what they say into
docs/benchmarks.md, with the machine, the versions and the date. Without names all are run.

Each runs in a process of its own, so that none is measured with the memory of another. A section of
a bench that is not run stays as it was.
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

What `make bench` measured. It writes this page; [speed.md](speed.md) says what each bench does.
Where a peer is named, both were measured in the same run: the ratio is what to compare between
machines. "CPU" is processor time of the measured process, all threads.
"""
_SECTION: Final = re.compile(r"^## `(\w+)`\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def measure(name: str) -> dict[str, Any]:
    """The document of one bench, from a process of its own. Raises RuntimeError if it failed."""
    command = [sys.executable, "-c", "from tollgauge.cli import main; main()"]
    run = subprocess.run(  # noqa: S603 - a command of our own
        [*command, "bench", name, "--json"], cwd=CHECKOUT, stdout=subprocess.PIPE, check=False
    )
    if not run.stdout:
        raise RuntimeError(f"the bench {name} failed: see its messages above")
    document: dict[str, Any] = orjson.loads(run.stdout)
    return document


def written(page: str, documents: Iterable[Mapping[str, Any]], *, machine: str) -> str:
    """The page with the sections of some reports in place of older ones, in the order of names."""
    sections = {match[1]: match[0] for match in _SECTION.finditer(page)}
    for document in documents:
        sections[document["bench"]] = _section(document, machine=machine)
    return _HEAD + "".join(f"\n{sections[name].rstrip()}\n" for name in sorted(sections))


def _section(document: Mapping[str, Any], *, machine: str) -> str:
    rows = [
        "| {name} | {figure:,} {unit} | {beside} | {goal} | {met} |".format(
            **measured,
            beside=f"{measured['ratio']} of {measured['peer']} ({measured['peerFigure']:,})"
            if measured["peer"] is not None
            else "",
        )
        .replace("| True |", "| met |")
        .replace("| False |", "| **not met** |")
        for measured in document["measurements"]
    ]
    table = "| what | measured | beside | goal | |\n|---|---|---|---|---|\n" + "\n".join(rows)
    return f"## `{document['bench']}`\n\n{machine}\n\n{table}\n"


def this_machine(now: datetime) -> str:
    """The date, and what the measurements ran on."""
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
    """Run the benches named and write the page after each."""
    for name in names:
        sys.stderr.write(f"{name} …\n")
        machine = this_machine(datetime.now(UTC))
        document = measure(name)
        sys.stderr.write("".join(f"  {line}\n" for line in lines(document)))
        page = FILE.read_text() if FILE.exists() else ""
        FILE.write_text(written(page, [document], machine=machine))


if __name__ == "__main__":
    main(sys.argv[1:] or BENCHES)
