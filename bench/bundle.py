"""`tollgauge bench bundle`: build the bundle of 100,000 endpoints, and load it as a guard does.

Both run in separate processes, so that their memory is measured separately. Building is a round of
the loop `bundle` on an SQLite file. Figures, the minimum of ROUNDS: CPU of the process; the maximum
delay of the event loop, during which requests would have waited; additional memory; and the size of
the signed file. Loading (guard/python) verifies, decompresses and checks the file.

Every endpoint has a different address, price and score; one in 33 changed its address a few days
ago. Goals: 8 MB, one second and 60 MB for the guard; 1% of a core over an hour and 50 ms of delay
for the service.

`python -m bench.bundle fill FILE ENDPOINTS`, `build FILE BODY` and `load BODY SIGNATURE` are those
processes.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
import uvloop
from sqlalchemy import Connection

from bench import CHECKOUT
from bench.child import print_json, start_child
from bench.filled import fill
from bench.measurement import Measurement, Report, peak_mb
from bench.reads import NOW
from tollgauge.cli import GC_THRESHOLD
from tollgauge.core.base.units import BASE, DAY_MS, HOUR_MS
from tollgauge.core.endpoint.terms import KnownOffer
from tollgauge.core.guard.bundle import Variant
from tollgauge.core.sale.signature import SigningKey
from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.jobs.loop_settings import BundleSettings
from tollgauge.process import tune_interpreter
from tollgauge.store.scores import trust_records

ENDPOINTS: Final = 100_000
CHANGED: Final = 33
"""One endpoint in CHANGED has changed its payTo."""
TWO_NETWORKS: Final = 2  # one endpoint in this number offers a second network
ROUNDS: Final = 3
TICK_S: Final = 0.002
KEY: Final = SigningKey.of(
    '{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",'
    '"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}'
)
"""The key of RFC 8037, appendix A.1."""


def run(endpoints: int = ENDPOINTS) -> Report:
    """Measure the bundle of `endpoints` endpoints."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        built, loaded = runner.run(measure(endpoints))
    most = {
        "size": (built["mb"], "MB", 8),
        "building": (built["cpu_s"], "CPU s", 36),
        "building, memory": (built["mb_more"], "MB more", 150),
        "event loop late by": (built["late_ms"], "ms", 50),
        "loading": (loaded["seconds"], "s", 1),
        "loading, memory": (loaded["mb_more"], "MB more", 60),
    }
    return Report(
        measurements=tuple(
            Measurement(name=name, figure=figure, unit=unit, goal=goal)
            for name, (figure, unit, goal) in most.items()
        ),
        details={"endpoints": endpoints, "build": built, "load": loaded},
    )


async def measure(endpoints: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the reports of the process that builds and of the process that loads."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database, body = str(folder / "bench.db"), str(folder / "bundle.zst")
        await _answer_of(folder, "fill", database, str(endpoints))
        built = await _answer_of(folder, "build", database, body)
        return built, await _answer_of(folder, "load", body, built.pop("signature"))


async def _answer_of(folder: Path, *order: str) -> dict[str, Any]:
    """Return the JSON object that a process prints."""
    command = [sys.executable, "-m", "bench.bundle", *order]
    async with start_child(command, folder / order[0]) as process:
        return await process.document()


async def fill_all(path: str, endpoints: int) -> dict[str, Any]:
    """Fill a database."""
    store = Store.open(f"sqlite:///{path}")
    try:
        await store.migrate()
        await fill(store, endpoints=endpoints, now=NOW, probes_too=False)
        await store.writing(_vary)
    finally:
        await store.close()
    return {}


def _vary(tx: Connection) -> None:
    """Give each endpoint its own offers, score and age."""
    dice = random.Random(1)  # noqa: S311 - the same data every time
    known = tx.exec_driver_sql("SELECT id, quote_pay_to FROM endpoint").all()
    values = []
    for number, (id_, pay_to) in enumerate(known):
        price = dice.choice((1_000, 5_000, 10_000, dice.randrange(1_000_000)))
        offers = [KnownOffer(BASE, "exact", _address(pay_to), price)]
        if number % TWO_NETWORKS == 0:
            offers.append(KnownOffer("eip155:137", "exact", _address(pay_to), price))
        if number % CHANGED == 0:
            ended = NOW - dice.randrange(25 * DAY_MS)
            offers.append(KnownOffer(BASE, "exact", _address(id_), price, ended))
        figures = {
            "score_tenths_": dice.randrange(1_001),
            "scored_at_": NOW - dice.randrange(DAY_MS),
        }
        values.append(figures | {"id_": id_, "offers_": tuple(offers)})
    names = ("offers", "score_tenths", "scored_at")
    columns = schema.endpoint.c
    update = schema.endpoint.update().where(columns.id == sa.bindparam("id_"))
    changes = {name: sa.bindparam(f"{name}_", type_=columns[name].type) for name in names}
    tx.execute(update.values(changes), values)


def _address(text: str) -> str:
    return f"0x{hashlib.sha256(text.encode()).hexdigest()[:40]}"


async def build(path: str, body_path: str) -> dict[str, Any]:
    """Run rounds of the loop, an hour apart, and return the minimum of each figure."""
    tune_interpreter()
    store = Store.open(f"sqlite:///{path}")
    try:
        await store.reading(trust_records.newest_bundle)
        before_mb = peak_mb()
        rounds = [await _round(store, NOW + hour * HOUR_MS) for hour in range(ROUNDS)]
        took = {name: min(one[name] for one in rounds) for name in rounds[0]}
        whole = await store.reading(trust_records.load_bundle, Variant.ALL)
        avoided = await store.reading(trust_records.newest_bundle, Variant.AVOID)
    finally:
        await store.close()
    assert whole is not None  # noqa: S101 - it was built
    assert avoided is not None  # noqa: S101 - it was built
    stored, body = whole
    Path(body_path).write_bytes(body)  # noqa: ASYNC240 - no other task
    sizes = {"mb": stored.size / 1e6, "records": stored.records, "avoid_mb": avoided.size / 1e6}
    more = {"mb_more": round(peak_mb() - before_mb, 1), "late_ms_of_rounds": _late(rounds)}
    return took | sizes | more | {"avoided": avoided.records, "signature": stored.signature}


async def _round(store: Store, now: int) -> dict[str, float]:
    """Run one round of the loop and return its cost and the maximum delay of the event loop."""
    late_ms = 0.0

    async def watch() -> None:
        nonlocal late_ms
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            late_ms = max(late_ms, (time.perf_counter() - began - TICK_S) * 1_000)

    cpu, clock = time.process_time(), time.perf_counter()
    watching = asyncio.create_task(watch())
    await score.build_bundles(store, settings=BundleSettings(), key=KEY, clock=lambda: now)
    watching.cancel()
    return {
        "cpu_s": round(time.process_time() - cpu, 2),
        "seconds": round(time.perf_counter() - clock, 2),
        "late_ms": round(late_ms, 1),
    }


def _late(rounds: Sequence[Mapping[str, float]]) -> list[float]:
    return [one["late_ms"] for one in rounds]


def load(body_path: str, signature: str) -> dict[str, Any]:
    """Load a bundle as the guard does and return the cost."""
    sys.path.insert(0, str(CHECKOUT / "guard/python/src"))
    from tollgauge_guard.bundle import read_bundle
    from tollgauge_guard.signature import pin_keys

    body, key = Path(body_path).read_bytes(), pin_keys(KEY.public.jwk)
    before_mb, clock = peak_mb(), time.perf_counter()
    loaded = read_bundle(body, signature, key)
    seconds = time.perf_counter() - clock
    return {
        "records": loaded.count,
        "seconds": round(seconds, 3),
        "mb_more": round(peak_mb() - before_mb, 1),
    }


def main(order: str, first: str, second: str) -> None:
    """Run one of the processes."""
    if order == "load":
        answer = load(first, second)
    else:
        gc.set_threshold(GC_THRESHOLD)  # as the command line does
        work = fill_all(first, int(second)) if order == "fill" else build(first, second)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            answer = runner.run(work)
    print_json(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
