"""Months of a real prober and generated series in the real loops: the number of alerts per change
at several sensitivities, by polling and at a receiver.

Each result of a series is one check, five minutes after the last, recorded as the probe loop
records it; then the alert loop runs once. The clock is simulated.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import random
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

from tests.support import http_service
from tests.support.alert_process import KEY
from tests.support.receivers import ALERTS, Receivers, receivers
from tests.support.recorded import FOLDER, needs_recorded_inputs
from tests.support.statements import execute

from tollgauge import app as root
from tollgauge.clients import webhooks
from tollgauge.clients.webhooks import WatchSettings, destination_context, watch_context
from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.watch.watch_rules import DestinationKind, WatchRequest, WatchState
from tollgauge.db import schema
from tollgauge.monitor import discovery, recording
from tollgauge.monitor.probing import Observation
from tollgauge.store.endpoints import endpoints
from tollgauge.store.watches import watch_payments, watches
from tollgauge.store.watches.watches import Destination, Watch
from tollgauge.web.watches.poll import read_events

NOW = http_service.NOW
STEP = 5 * MINUTE_MS
STEADY = 6
"""Equal results in a row after which a state is steady, as docs/watching.md states."""
SENSITIVITIES = (1, 2, 3, 5, 10)
SERIES = FOLDER / "uptime-series"
DOWN, UP, TURNS = "liveness_down", "liveness_recovered", "liveness_flapping"
Told = dict[tuple[str, int], list[tuple[int, str]]]
"""The events of a watch of (URL, sensitivity): (index of the check, type)."""


@contextlib.asynccontextmanager
async def open_world(folder: Path, empty: Path) -> AsyncIterator[tuple[root.Opened, Receivers]]:
    database = shutil.copy(empty, folder / "service.db")
    async with receivers(folder) as world:
        config = replace(
            http_service.configuration(store_url=f"sqlite:///{database}"),
            egress=world.egress(),
            watch=WatchSettings(key=KEY),
        )
        clock = http_service.Clock()
        async with root.open_resources(config, clock=clock) as service:
            yield service, world


async def watch_all(service: root.Opened, urls: list[str]) -> dict[tuple[str, int], str]:
    """Buy a watch for each URL and sensitivity, each with one destination; return their IDs."""
    ids: dict[tuple[str, int], str] = {}
    sealer = service.config.watch.sealer
    for number, (url, n) in enumerate(itertools.product(urls, SENSITIVITIES)):
        resource = parse_resource(url, upgrade_http=True)
        await service.store.writing(discovery.adopt, resource, source="request", now=NOW)
        id_, target = f"wat_{number:024x}", f"dst_{number}"
        watch = Watch(
            id=id_,
            secret_hash=webhooks.secret_hash(id_),
            endpoint_id=resource.id,
            created_at=NOW,
            expires_at=NOW + 30 * DAY_MS,
            watch_request=WatchRequest(sensitivity=n),
            sealed_key=sealer.seal(bytes(32), context=watch_context(id_)),
        )
        place = f"https://{ALERTS}/{id_}".encode()
        kept = Destination(
            id=target,
            watch_id=id_,
            kind=DestinationKind.JSON,
            sealed_url=sealer.seal(place, context=destination_context(target)),
            masked="",
            created_at=NOW,
        )
        await service.store.writing(watch_payments.create, watch, [kept], payment_id=id_)
        ids[url, n] = id_
    await execute(service.store, watches.watch.update().values(state=WatchState.ACTIVE.value))
    await execute(service.store, watch_payments.watch_payment.update().values(applied=True))
    await execute(service.store, schema.endpoint.update().values(watched_until=NOW + 30 * DAY_MS))
    return ids


async def replay(
    service: root.Opened, world: Receivers, lines: Mapping[str, str]
) -> tuple[Told, Told]:
    """Play every series; return the polled and the received events."""
    ids = await watch_all(service, list(lines))
    clock = service.clock
    assert isinstance(clock, http_service.Clock)
    known = {url: parse_resource(url, upgrade_http=True).id for url in lines}
    for check in range(max(map(len, lines.values()))):
        clock.now = NOW + (check + 1) * STEP
        stored = await service.store.reading(endpoints.get_many, known.values())
        seen = [
            observe(stored[known[url]], line[check], at=clock.now)
            for url, line in lines.items()
            if check < len(line)
        ]
        await service.store.writing(
            recording.record, seen, cadence=Cadence(), owner="", now=clock.now
        )
        await service.round("alert")
    dependencies = service.server()
    polled: Told = {}
    for key, id_ in ids.items():
        answer = await read_events(dependencies, id_, id_, since="0", watch_since="0")
        polled[key] = [(nth(event.observed_at), event.type) for event in answer.events]
    got: Told = {key: [] for key in ids}
    places = {id_: key for key, id_ in ids.items()}
    for event in world.events():
        got[places[event["watch_id"]]].append((nth(event["observed_at"]), event["type"]))
    return polled, {key: sorted(flips) for key, flips in got.items()}


def observe(endpoint: Endpoint, char: str, *, at: int) -> Observation:
    up = char == "1"
    result = ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED if up else Outcome.SERVER_ERROR,
        attribution=Attribution.LOCAL if char == "x" else Attribution.TARGET,
        up=up,
        status=402 if up else 503,
        timings=Timings(total=100),
        payable=up,
    )
    return Observation(endpoint=endpoint, result=result, learned=None)


def nth(observed_at: int) -> int:
    return (observed_at * 1000 - NOW) // STEP - 1


def check_told(line: str, n: int, told: list[tuple[int, str]]) -> None:
    """Compare with a manual reading of a series; `x`, a local fault, is left out."""
    scored = [at for at, char in enumerate(line) if char != "x"]
    text = "".join(line[at] for at in scored)
    place = {at: number for number, at in enumerate(scored)}
    kinds = [kind for _, kind in told]
    assert all(a != b for a, b in itertools.pairwise(kinds)), (line, n, told)
    for at, kind in told:
        seen = text[: place[at] + 1]  # a local fault causes no event: this would be a KeyError
        if kind == DOWN:
            assert seen.endswith("0" * n), (line, n, told)
        elif kind == UP:
            assert seen.endswith("11"), (line, n, told)
        else:
            assert len(set(seen[-12:])) == 2, (line, n, told)
    if len(set(text)) == 1:
        assert not told, (line, n, told)
    outages = len([run for run in runs(text) if run[0] == "0"])
    assert sum(kind != UP for kind in kinds) <= outages, (line, n, told)
    for start, end in spans(text):
        long = end - start >= max(n, STEADY)
        if long and "1" in text[:start]:
            last = [kind for at, kind in told if place[at] < end]
            assert last[-1] in (DOWN, TURNS), (line, n, told)
    last_run = runs(text)[-1]
    if len(last_run) >= max(STEADY, n) and "0" in text and "1" in text and kinds:
        assert kinds[-1] == (UP if last_run[0] == "1" else DOWN), (line, n, told)


def runs(text: str) -> list[str]:
    return ["".join(group) for _, group in itertools.groupby(text)]


def spans(text: str) -> list[tuple[int, int]]:
    """Return the runs of failures."""
    spans, at = [], 0
    for run in runs(text):
        if run[0] == "0":
            spans.append((at, at + len(run)))
        at += len(run)
    return spans


MADE = {
    "steady": "1" * 30,
    "never-up": "0" * 30,
    "one-miss": "1" * 10 + "0" + "1" * 15,
    "outage": "1" * 10 + "0" * 7 + "1" * 10,
    "outage-to-the-end": "1" * 10 + "0" * 15,
    "two-outages": "1" * 8 + "0" * 4 + "1" * 10 + "0" * 4 + "1" * 10,
    "in-turns": "1" * 8 + "01" * 8 + "1" * 10,
    "in-turns-then-down": "1" * 8 + "01" * 6 + "0" * 14,
    "down-again-soon": "1" * 8 + "000" + "11" + "000" + "1" * 12,
    "ours": "1" * 8 + "x" * 12 + "1" * 8,
    "ours-inside-an-outage": "1" * 8 + "0x0x0x0" + "x11x" + "1" * 10,
    "late": "0" * 12 + "1" * 12,
}


async def test_generated_series_are_reported_correctly(tmp_path: Path, empty_sqlite: Path) -> None:
    lines = {f"https://{name}.example.com/v1/x": line for name, line in MADE.items()}
    dice = random.Random(8402)
    for number in range(4):
        line = "".join(dice.choice("1111110x") for _ in range(40))
        lines[f"https://dice{number}.example.com/v1/x"] = line
    async with open_world(tmp_path, empty_sqlite) as (service, world):
        polled, got = await replay(service, world, lines)
    for (url, n), events in polled.items():
        check_told(lines[url], n, events)
    assert got == polled
    counts = {
        name: {n: len(polled[f"https://{name}.example.com/v1/x", n]) for n in SENSITIVITIES}
        for name in MADE
    }
    assert counts["one-miss"] == {1: 2, 2: 0, 3: 0, 5: 0, 10: 0}
    assert counts["outage"] == {1: 2, 2: 2, 3: 2, 5: 2, 10: 0}
    assert counts["outage-to-the-end"] == dict.fromkeys(SENSITIVITIES, 1)
    assert counts["two-outages"] == {1: 4, 2: 4, 3: 4, 5: 0, 10: 0}
    assert counts["in-turns"][2] == counts["in-turns"][3] == 2
    assert counts["ours-inside-an-outage"] == {1: 2, 2: 2, 3: 2, 5: 0, 10: 0}
    assert counts["late"] == dict.fromkeys(SENSITIVITIES[:-1], 1) | {10: 1}


def real_series(*, at_least: int) -> dict[str, str]:
    """Return real series with at least this many changes, and some without changes."""
    lines: dict[str, str] = {}
    for path in sorted(SERIES.glob("*.json.gz")):
        for resource in json.loads(gzip.decompress(path.read_bytes()))["resources"]:
            alive = bool(resource.get("health", {}).get("isAlive"))
            lines[resource["url"]] = lines.get(resource["url"], "") + ("1" if alive else "0")
    changed = {url: line for url, line in lines.items() if len(runs(line)) > at_least}
    quiet = sorted(
        (url for url in lines if len(set(lines[url])) == 1), key=lambda u: -len(lines[u])
    )
    return changed | {url: lines[url] for url in quiet[:2]}


@needs_recorded_inputs
async def test_real_series_are_reported_correctly(tmp_path: Path, empty_sqlite: Path) -> None:
    lines = {url: line[:40] for url, line in real_series(at_least=3).items()}
    assert len(lines) >= 5
    async with open_world(tmp_path, empty_sqlite) as (service, world):
        polled, got = await replay(service, world, lines)
    for (url, n), events in polled.items():
        check_told(lines[url], n, events)
    assert got == polled
    assert sum(map(len, polled.values())) > 10
