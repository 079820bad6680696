"""The journeys in CONTRIBUTING.md list the files that a probe and a sale enter at run time.

Each journey is run once with a profiler. Its table must list exactly the files of the package in
which a function was called.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from tests.support import lint_envelopes, paid_service
from tests.support.http_service import WEATHER
from tests.support.paid_service import PaidService
from tests.support.probe_loop import Clock, endpoint, run_counting_seller, worker

from tollgauge.core.base.units import HOUR_MS
from tollgauge.db.engine import Store

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = f"{ROOT / 'src' / 'tollgauge'}/"
DEMO: Final = f"{SOURCE}demo/"
MAX_FILES: Final = {"A probe": 30, "A bought history": 30}
"""Files that a journey may enter. Lower a number when the code allows it; never raise one."""
LAYERS: Final = (
    ("web", "jobs"),
    ("monitor",),
    ("store",),
    ("db", "clients", "observe.py"),
    ("core",),
)
LINT: Final = "core/lint/judge.py"  # runs every rule of core/lint and counts for all of its files
STORE: Final = "db/engine.py"
_PATH: Final = re.compile(r"`([\w/]+\.py)`")


@dataclass
class Trace:
    """Records which files of the package are entered, and from which file."""

    recording: bool = False
    entered: dict[str, None] = field(default_factory=dict)
    calls: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self.recording or event != "call":
            return
        file = frame.f_code.co_filename
        # The demo's server answers for the seller and wakes every second: it is not the service.
        if not file.startswith(SOURCE) or file.startswith(DEMO):
            return
        self.entered[file.removeprefix(SOURCE)] = None
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCE):
            caller = caller.f_back
        if caller is not None:
            calling = caller.f_code.co_filename
            self.calls.add((calling.removeprefix(SOURCE), file.removeprefix(SOURCE)))

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Record the calls of a block."""
        self.recording = True
        try:
            yield
        finally:
            self.recording = False


@contextlib.contextmanager
def trace_calls() -> Iterator[Trace]:
    """Install a trace in this thread and in those that start in the block."""
    trace = Trace()
    previous = sys.getprofile()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(previous)
        threading.setprofile(None)


async def trace_probe(folder: Path) -> Trace:
    """The second probe of an endpoint with a good 402: from its claim to its row."""
    header = base64.b64encode(json.dumps(lint_envelopes.V2).encode()).decode()
    headers = (("payment-required", header), ("content-type", "application/json"))
    with trace_calls() as trace:
        store = Store.open(f"sqlite:///{folder / 'probe.db'}")
        await store.migrate()
        async with run_counting_seller(folder, {"api.example.com"}) as seller:
            seller.headers = headers
            async with worker(store, seller.mapped, ca_file=seller.ca_file) as loop:
                loop.clock = clock = Clock()
                await loop.add(endpoint(lint_envelopes.URL))
                await loop.probe()
                clock.now += HOUR_MS
                with trace.record():
                    tally = await loop.probe()
        await store.close()
    assert tally["payment-required"] == 1
    return trace


async def trace_sale(database: str) -> Trace:
    """The second history that is bought from a running service: from its request to its answer."""
    with trace_calls() as trace:
        async with paid_service.open_paid_service(database, PaidService) as service:
            order = {"resource": WEATHER}
            await service.post("/v1/x402-history", order)
            with trace.record():
                response = await service.post("/v1/x402-history", order)
    assert response.status_code == 200
    return trace


def journey_tables() -> dict[str, list[list[str]]]:
    """Return the files of each row of the journeys in CONTRIBUTING.md, by heading."""
    tables: dict[str, list[list[str]]] = {}
    heading = ""
    for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif heading in MAX_FILES and line.startswith("|") and (files := _PATH.findall(line)):
            tables.setdefault(heading, []).append(files)
    return tables


def check(journey: str, trace: Trace) -> None:
    """Compare a trace with its table, with the maximum and with the direction of calls."""
    entered = list(
        dict.fromkeys(LINT if file.startswith("core/lint/") else file for file in trace.entered)
    )
    rows = journey_tables()[journey]
    listed = [file for row in rows for file in row]
    assert set(entered) - set(listed) == set(), "entered, but not in the table"
    assert set(listed) - set(entered) == set(), "in the table, but not entered"
    assert len(listed) == len(set(listed)), "listed twice"
    starts = [entered.index(row[0]) for row in rows]
    assert starts == sorted(starts), "the rows are not in the order of the calls"
    print(f"{journey}: {len(entered)} files")  # noqa: T201 - shown by pytest -s
    assert len(entered) <= MAX_FILES[journey]
    assert {call for call in trace.calls if goes_up(*call)} == set()


def goes_up(caller: str, called: str) -> bool:
    """Whether a file calls one of a higher layer. A store runs the function that it is given."""
    return caller != STORE and layer(caller) > layer(called)


def layer(file: str) -> int:
    top = file.split("/")[0]
    return next(depth for depth, names in enumerate(LAYERS) if top in names)


async def test_probe_enters_the_files_of_its_table(tmp_path: Path) -> None:
    check("A probe", await trace_probe(tmp_path))


async def test_sale_enters_the_files_of_its_table(
    tmp_path: Path, market_database: Callable[[Path], str]
) -> None:
    check("A bought history", await trace_sale(market_database(tmp_path / "sale.db")))
