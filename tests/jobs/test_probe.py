"""The probe loop in the demo market: real TLS, a real store and a simulated clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import pytest_asyncio
from tests.support.ledger_world import held_claim
from tests.support.probe_loop import START, Clock, Loop, endpoint

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint, Listing, Perimeter, parse_resource
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store
from tollgauge.demo.behaviours import play
from tollgauge.demo.market import DemoMarket, run_market
from tollgauge.demo.seller import DemoRequest, Seller
from tollgauge.demo.sellers import SELLERS
from tollgauge.jobs.loop_settings import ProbeSettings
from tollgauge.monitor.probing import Prober
from tollgauge.monitor.reports import snapshots
from tollgauge.store.endpoints import endpoints
from tollgauge.store.schedule import hosts
from tollgauge.web.paid.admission import Waiting
from tollgauge.web.paid.live_probe import LiveProbe

Mapped = dict[str, tuple[str, int]]
DIRECTORY = "https://directory.example/discovery/resources"


def seller(kind: str) -> Seller:
    return next(seller for seller in SELLERS if seller.kind == kind)


def of(*kinds: str) -> list[Endpoint]:
    sellers = [seller(kind) for kind in kinds]
    return [
        endpoint(seller.url, method=seller.method, body=seller.body or None) for seller in sellers
    ]


@dataclass
class MarketWorld:
    """The market with its clock, and a worker with its own store for each test."""

    market: DemoMarket
    egress: Egress
    clock: Clock


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def market_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MarketWorld]:
    clock = Clock()
    folder = tmp_path_factory.mktemp("market")
    async with run_market(clock, folder, latency=lambda *_: 0) as market:
        egress = Egress(EgressSettings(mapped=market.mapped, ca_file=str(market.ca_file)))
        egress.start()
        yield MarketWorld(market, egress, clock)
        await egress.close()


@pytest_asyncio.fixture(loop_scope="module")
async def memory() -> AsyncIterator[Store]:
    store = Store.open("sqlite://")
    await store.migrate()
    yield store
    await store.close()


@pytest_asyncio.fixture(loop_scope="module")
async def loop(market_world: MarketWorld, memory: Store) -> Loop:
    market_world.clock.now = START
    return Loop(
        memory, market_world.egress, market_world.clock, ProbeSettings(references=(DIRECTORY,))
    )


in_the_market = pytest.mark.asyncio(loop_scope="module")


@in_the_market
async def test_endpoints_are_probed_and_recorded_every_half_hour(loop: Loop) -> None:
    kinds = ("perfect-v2", "perfect-v1", "needs-post", "flapping", "not-found", "dead")
    added = of(*kinds)
    await loop.add(*added)
    counted: Counter[str] = Counter()
    clock = loop.clock
    assert isinstance(clock, Clock)
    while clock.now < START + DAY_MS // 2:
        tally = await loop.probe()
        counted["probed"] += int(str(tally.get("probed", 0)))
        clock.now = max(clock.now + 1, await loop.next_due([target.id for target in added]))
    await loop.score()
    recorded = 0
    for target in added:
        history = await loop.history(target.id)
        recorded += len(history)
        regular = [result for result in history if not result.confirms]
        assert 22 <= len(regular) <= 26, target.resource
        gaps = [after.at - before.at for before, after in pairwise(regular)]
        assert all(28 * MINUTE_MS <= gap <= 32 * MINUTE_MS for gap in gaps)
        assert all(result.attribution is Attribution.TARGET for result in history)
    assert recorded == counted["probed"]
    good, v1, post, flapping, lost, dead = [await loop.history(target.id) for target in added]
    assert all(r.compliant and r.outcome is Outcome.PAYMENT_REQUIRED for r in good + v1 + post)
    assert {r.outcome for r in flapping} == {Outcome.PAYMENT_REQUIRED, Outcome.SERVER_ERROR}
    assert {r.outcome for r in lost} == {Outcome.NOT_FOUND}
    assert {r.outcome for r in dead} == {Outcome.CONNECT}
    assert (await loop.get(added[2].id)).learned == "POST"
    grades = {kind: (await loop.score_of(e.id)).grade for kind, e in zip(kinds, added, strict=True)}
    assert grades["perfect-v2"] in ("A", "B")
    assert (grades["not-found"], grades["dead"]) == ("F", "F")


@in_the_market
async def test_throttling_is_a_failure_and_its_retry_after_is_respected(
    loop: Loop,
) -> None:
    busy = seller("throttled")
    clock = loop.clock
    assert isinstance(clock, Clock)
    clock.now = next(
        at
        for at in range(START, START + DAY_MS, 30 * MINUTE_MS)
        if play(busy, DemoRequest(method=busy.method, path=busy.path), at).answer.status == 429
    )
    quick = replace(loop.settings, cadence=Cadence(every_ms=MINUTE_MS))
    loop.settings = quick
    began = clock.now
    first, other = of("throttled")[0], endpoint(f"https://{busy.host}/v1/other", next_due=began + 1)
    await loop.add(first, other)
    await loop.probe()
    (seen,) = await loop.history(first.id)
    assert (seen.outcome, seen.attribution) == (Outcome.THROTTLED, Attribution.TARGET)
    for minutes in range(1, 10):
        clock.now = began + minutes * MINUTE_MS
        assert await loop.probe() == {}, "the host is paused for 10 of the 15 minutes"
    clock.now = began + 10 * MINUTE_MS
    assert (await loop.probe())["probed"] == 1
    assert len(await loop.history(other.id)) == 1, "the host that asked for a pause is still paused"
    assert (await loop.get(first.id)).next_due == began + 900 * SECOND_MS


@in_the_market
async def test_watched_endpoint_is_probed_every_five_minutes_until_the_watch_ends(
    loop: Loop,
) -> None:
    (watched,) = of("perfect-v2")
    await loop.add(watched)
    await loop.probe()
    clock = loop.clock
    assert isinstance(clock, Clock)
    clock.now += MINUTE_MS
    until = clock.now + HOUR_MS
    known = await loop.get(watched.id)
    await loop.store.writing(
        endpoints.update, replace(known, watched_until=until, next_due=clock.now)
    )
    while clock.now < until + 2 * HOUR_MS:
        await loop.probe()
        clock.now = max(clock.now + 1, await loop.next_due([watched.id]))
    history = await loop.history(watched.id)
    gaps = [after.at - before.at for before, after in pairwise(history) if before.at >= START + 1]
    during = [gap for gap, result in zip(gaps, history[1:], strict=False) if result.at < until]
    after = gaps[len(during) :]
    assert len(during) >= 11
    assert all(4.5 * MINUTE_MS <= gap <= 5.5 * MINUTE_MS for gap in during)
    assert after
    assert all(28 * MINUTE_MS <= gap <= 32 * MINUTE_MS for gap in after)


@in_the_market
async def test_wildcard_host_is_detected_and_tested_once_per_day(
    loop: Loop,
) -> None:
    everywhere, honest, lost = of("wildcard-402", "perfect-v2", "not-found")
    await loop.add(everywhere, honest, lost)
    clock = loop.clock
    assert isinstance(clock, Clock)
    asked = []
    for hours in (0, 1, 11, 37):
        clock.now = START + hours * HOUR_MS
        await loop.probe()
        states = [
            await loop.store.reading(hosts.get, target.host)
            for target in (everywhere, honest, lost)
        ]
        assert [state.wildcard for state in states] == [True, False, None]
        asked.append(states[0].wildcard_at)
    assert asked == [START, START, START, START + 37 * HOUR_MS]
    await loop.score()
    flags = [
        {flag.code for flag in (await loop.score_of(target.id)).flags}
        for target in (everywhere, honest)
    ]
    assert ["wildcard-402" in codes for codes in flags] == [True, False]


@in_the_market
async def test_bought_report_publishes_only_paths_that_sell(loop: Loop) -> None:
    honest, wild = seller("perfect-v2"), seller("wildcard-402")
    prober = Prober(
        store=loop.store, egress=loop.egress, clock=loop.clock, cadence=Cadence(host_gap_ms=0)
    )
    live = LiveProbe(prober=prober, waiting=Waiting(64))
    market = Perimeter(mapped=frozenset({honest.host, wild.host}))
    shown: dict[str, bool] = {}
    for url in (
        f"https://{honest.host}/this-seller-steals",
        honest.url,
        f"https://{wild.host}/this-seller-steals",
    ):
        resource = parse_resource(url, market)
        claim = await held_claim(loop.store, now=loop.clock())
        endpoint, _ = await live.fresh_result(resource, claim)
        assert endpoint.status is Listing.UNLISTED
        snapshot = await loop.store.reading(snapshots.snapshot, resource.id, now=loop.clock())
        shown[url] = snapshot is not None
    assert list(shown.values()) == [False, True, False]
    provider = await loop.store.reading(snapshots.provider, honest.host)
    assert provider is not None
    assert [row.resource for row in provider.rows] == [honest.url]
    assert await loop.store.reading(snapshots.provider, wild.host) is None
    states = await loop.store.reading(hosts.get_many, [honest.host, wild.host])
    assert [states[target.host].wildcard for target in (honest, wild)] == [False, True]


@in_the_market
async def test_invalid_stored_address_does_not_stop_other_probes(loop: Loop) -> None:
    """The address may have been stored by a version that accepted longer ones."""
    (good,) = of("perfect-v2")
    long = endpoint("https://fx.example/v2/rates/" + "a" * 3_000)
    await loop.add(replace(long, next_due=START - DAY_MS), good)
    tally = await loop.probe()
    assert tally["probed"] == 2
    (result,) = await loop.history(long.id)
    assert (result.outcome, result.attribution) == (Outcome.LOCAL, Attribution.LOCAL)
    assert (await loop.history(good.id))[0].up
    assert (await loop.get(long.id)).next_due > START + 28 * MINUTE_MS


@in_the_market
async def test_restart_during_a_wave_loses_nothing(
    market_world: MarketWorld, memory: Store
) -> None:
    market_world.clock.now = START
    added = of("perfect-v2", "slow", "perfect-v1", "dual")
    first = Loop(
        memory, market_world.egress, market_world.clock, ProbeSettings(references=(DIRECTORY,))
    )
    await first.add(*added)
    wave = asyncio.create_task(first.probe())
    quick = [target for target in added if target.id != added[1].id]
    # A database does not notify about new rows, so the test polls.
    while not all([await first.history(target.id) for target in quick]):  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.02)
    assert not wave.done(), "fast results are stored while the slow seller is still pending"
    wave.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await wave
    second = replace(first, owner="two")
    market_world.clock.now += 30 * SECOND_MS
    assert await second.probe() == {}, "the lease of the dead worker has not expired"
    market_world.clock.now += 31 * SECOND_MS
    assert (await second.probe())["probed"] == 4 - len(quick)
    assert [len(await second.history(target.id)) for target in added] == [1] * 4
