"""`tollgauge bench discover`: crawls of a large directory, from a file and page by page.

`tollgauge discover` crawls a directory into an empty SQLite file, and then a second copy in which
one entry in a hundred has a new price. The two kinds of crawl run in separate processes. Pages of
the default size are requested over TLS on loopback from a directory in another process. CPU
includes all threads of the crawling process; memory is its maximum growth during the crawl.

For comparison, the same run measures Python's json and sqlite3 modules reading the file and
inserting the rows of the first crawl.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import trustme

from bench import directory
from bench.child import print_json, start_child
from bench.database import open_store
from bench.measurement import Measurement, Report
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.jobs.discover import CrawlOptions, Tally
from tollgauge.jobs.discover import run as crawl
from tollgauge.jobs.discovery_files import load_files
from tollgauge.jobs.loop_settings import Source, SourceKind

ENTRIES: Final = 100_000
CHANGED_EVERY: Final = 100
CPU_S: Final = 30
GROWTH_MB: Final = 300
_NOW: Final = 1_767_225_600_000
_HOUR_MS: Final = 3_600_000
_TABLES: Final = ("host", "endpoint", "listing", "discovery_event")


def run(size: int = ENTRIES) -> Report:
    """Measure crawls of a directory with `size` entries."""
    with tempfile.TemporaryDirectory() as name:
        details = asyncio.run(_measure(Path(name), size))
    measurements: list[Measurement] = []
    for way in ("file", "paged"):
        for which in ("first", "second"):
            one = details[way][which]
            measurements += (
                Measurement(name=f"{which} {way}", figure=one["cpu_s"], unit="CPU s", goal=CPU_S),
                Measurement(
                    name=f"{which} {way}, memory",
                    figure=one["growth_mb"],
                    unit="MB more",
                    goal=GROWTH_MB,
                ),
            )
    return Report(measurements=tuple(measurements), details=details)


async def _measure(folder: Path, size: int) -> dict[str, Any]:
    first, second = directory.write(folder, size, changed_every=CHANGED_EVERY)
    details: dict[str, Any] = {"entries": size}
    words = _words("file", first.crawl, second.crawl)
    async with start_child(words, folder / "file.log") as child:
        details["file"] = await child.document()
    authority, keys = trustme.CA(), folder / "keys.pem"
    authority.issue_cert(directory.HOST).private_key_and_cert_chain_pem.write_to_path(str(keys))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    words = [sys.executable, "-m", "bench.directory", str(keys), str(first.lines)]
    async with start_child(words, folder / "directory.log") as serving:
        port = int(await serving.line())
        words = _words("paged", folder / "ca.pem", port)
        async with start_child(words, folder / "paged.log") as paged:
            details["paged"] = {"first": await paged.document()}
            await serving.obey(str(second.lines))
            details["paged"]["second"] = orjson.loads(await paged.obey("again"))
    return details


def _words(way: str, *more: object) -> list[str]:
    return [sys.executable, "-m", "bench.discover", way, *map(str, more)]


async def from_file(first: str, second: str) -> dict[str, Any]:
    """Crawl two files, one after the other, and read the first with only json and sqlite3."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with open_store(folder) as store:

            async def load(path: str, now: int) -> Tally:
                (tally,) = await load_files(store, [Path(path)], CrawlOptions(now=now), source=None)
                return tally

            figures = {
                "first": await measure_crawl(partial(load, first, _NOW)),
                "second": await measure_crawl(partial(load, second, _NOW + _HOUR_MS)),
            }
        began = time.process_time()
        _read_and_insert(Path(first), folder / "bench.db", folder / "copy.db")
        return {**figures, "json_and_sqlite3_cpu_s": round(time.process_time() - began, 2)}


async def from_pages(ca_file: str, port: str) -> None:
    """Crawl a directory twice. A line of standard input starts the second crawl."""
    with tempfile.TemporaryDirectory() as name:
        mapped = {directory.HOST: ("127.0.0.1", int(port))}
        egress = Egress(EgressSettings(mapped=mapped, ca_file=ca_file))
        egress.start()
        source = Source("bench", SourceKind.BAZAAR, f"https://{directory.HOST}", pause_ms=0)
        try:
            async with open_store(Path(name)) as store:
                print_json(
                    await measure_crawl(
                        partial(crawl, store, egress, source, CrawlOptions(now=_NOW))
                    )
                )
                await asyncio.to_thread(sys.stdin.readline)
                print_json(
                    await measure_crawl(
                        partial(crawl, store, egress, source, CrawlOptions(now=_NOW + _HOUR_MS))
                    )
                )
        finally:
            await egress.close()


async def measure_crawl(work: Callable[[], Awaitable[Tally]]) -> dict[str, Any]:
    """Return the CPU and elapsed seconds of a crawl, and the growth of the process in MB."""
    _forget_peak()
    memory, cpu, clock = _resident_mb("VmRSS"), time.process_time(), time.monotonic()
    tally = await work()
    return {
        "cpu_s": round(time.process_time() - cpu, 2),
        "clock_s": round(time.monotonic() - clock, 2),
        "growth_mb": round(_resident_mb("VmHWM") - memory, 1),
        "new": tally.new,
        "seen": tally.seen,
        "events": dict(tally.events),
        "complete": tally.complete,
    }


def _forget_peak() -> None:
    """Reset the peak of memory (VmHWM); see proc_pid_clear_refs(5)."""
    Path("/proc/self/clear_refs").write_text("5")


def _resident_mb(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


def _read_and_insert(file: Path, database: Path, copy: Path) -> None:
    """Read a crawl's file and insert the rows of its database into an empty database."""
    json.loads(file.read_bytes())
    source, target = sqlite3.connect(database), sqlite3.connect(copy)
    schema = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name = ?"
    with target:
        for table in _TABLES:
            for (sql,) in source.execute(schema, (table,)).fetchall():
                target.execute(sql)
            rows = source.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our names
            marks = ",".join("?" * len(rows[0]))
            target.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - our names
    source.close()
    target.close()


if __name__ == "__main__":
    if sys.argv[1] == "file":
        print_json(asyncio.run(from_file(*sys.argv[2:])))
    else:
        asyncio.run(from_pages(*sys.argv[2:]))
