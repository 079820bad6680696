"""Workers at two vantage points, which the seller distinguishes by their source address."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support.databases import on_sqlite
from tests.support.lint_envelopes import GOOD_HEADERS, V2, change_envelope, encode_envelope
from tests.support.probe_loop import (
    START,
    Clock,
    Counting,
    Loop,
    endpoint,
    run_counting_seller,
    worker,
)

from tollgauge.app import open_resources
from tollgauge.config import Config
from tollgauge.core.base.units import HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.attribution import PARTLY_REACHABLE, VantageState
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store, StoreSettings
from tollgauge.jobs.loop_settings import ProbeSettings
from tollgauge.monitor.reports import snapshots
from tollgauge.store.probes import vantages

HERE, THERE = "127.0.0.2", "127.0.0.3"
PAID = endpoint("https://api.seller.example/paid")


@dataclass
class TwoPlaces:
    """A worker at the primary vantage, one at another, and the seller that both probe."""

    near: Loop
    far: Loop
    seller: Counting

    async def pass_time(self, milliseconds: int) -> None:
        """Let both workers probe the due endpoints every 5 minutes."""
        assert isinstance(self.near.clock, Clock)
        until = self.near.clock.now + milliseconds
        while self.near.clock.now < until:
            self.near.clock.now += 5 * MINUTE_MS
            await self.near.probe()
            await self.far.probe()

    async def history(self) -> list[ProbeResult]:
        return await self.near.history(PAID.id)

    async def states(self) -> dict[str, VantageState]:
        known = await self.near.store.reading(vantages.states, (PAID.id,))
        return {state.vantage: state for state in known.get(PAID.id, ())}

    async def is_partly_reachable(self) -> bool:
        snapshot = await self.near.store.reading(snapshots.snapshot, PAID.id, now=self.near.clock())
        assert snapshot is not None
        assert snapshot.partly_reachable is not None
        return snapshot.partly_reachable


def settings(own: str) -> ProbeSettings:
    names = ("near", "far")
    return ProbeSettings(cadence=Cadence(host_gap_ms=0), vantage=own, vantages=names)


@pytest.fixture
async def places(
    store: Store, open_store: Callable[[], Store], tmp_path: Path
) -> AsyncIterator[TwoPlaces]:
    async with (
        run_counting_seller(tmp_path, {PAID.host}) as seller,
        contextlib.AsyncExitStack() as stack,
    ):
        near, far = [
            await stack.enter_async_context(
                worker(one, seller.mapped, ca_file=seller.ca_file, source_address=address)
            )
            for one, address in ((store, HERE), (open_store(), THERE))
        ]
        clock = Clock(START)
        near.clock, far.clock, far.owner = clock, clock, "two"
        envelope = change_envelope(V2, "resource.url", PAID.resource)
        seller.headers = (("payment-required", encode_envelope(envelope)), *GOOD_HEADERS)
        near.settings, far.settings = settings("near"), settings("far")
        await near.add(replace(PAID, next_due=START))
        two = TwoPlaces(near, far, seller)
        await two.pass_time(HOUR_MS)
        yield two


async def test_each_vantage_is_listed_with_its_result(places: TwoPlaces) -> None:
    states = await places.states()
    assert list(states) == ["near", "far"]
    assert states["near"].primary
    assert not states["far"].primary
    assert all(state.up for state in states.values())
    assert not await places.is_partly_reachable()


@on_sqlite
async def test_probes_of_a_secondary_vantage_are_not_evidence(places: TwoPlaces) -> None:
    before = len(await places.history())
    assert before in (2, 3), "one hour of probes of the primary vantage only"


@on_sqlite
async def test_endpoint_unreachable_from_one_of_two_vantages_is_partly_reachable(
    places: TwoPlaces,
) -> None:
    places.seller.refused.add(HERE)
    await places.pass_time(HOUR_MS)
    assert await places.is_partly_reachable()
    failures = [result for result in await places.history() if not result.up]
    assert failures
    assert {result.reason for result in failures} == {PARTLY_REACHABLE}
    assert {result.attribution for result in failures} == {Attribution.UNKNOWN}
    endpoint_now: Endpoint = await places.near.get(PAID.id)
    assert endpoint_now.unconfirmed_at is None
    assert endpoint_now.payable


@on_sqlite
async def test_endpoint_unreachable_from_every_vantage_is_down(places: TwoPlaces) -> None:
    places.seller.refused |= {HERE, THERE}
    await places.pass_time(HOUR_MS)
    failures = [result for result in await places.history() if not result.up]
    assert [result.scored for result in failures[-2:]] == [True, True]
    assert not await places.is_partly_reachable()


async def test_vantage_without_network_has_no_result_for_the_endpoint(
    places: TwoPlaces, tmp_path: Path
) -> None:
    nowhere = {PAID.host: ("127.0.0.1", 1)}
    async with worker(places.far.store, nowhere, source_address=THERE) as cut_off:
        references = (f"https://{PAID.host}/",)
        cut_off.clock, cut_off.owner = places.near.clock, "two"
        cut_off.settings = replace(settings("far"), references=references)
        places.far = cut_off
        await places.pass_time(HOUR_MS)
    states = await places.states()
    assert states["far"].attribution is Attribution.LOCAL
    assert states["near"].up
    assert not await places.is_partly_reachable()
    assert all(result.up and result.scored for result in await places.history())


async def test_worker_at_a_secondary_vantage_only_probes() -> None:
    store = StoreSettings(url="sqlite://")
    async with open_resources(Config(store=store, probe=settings("far"))) as service:
        assert [job.name for job in service.jobs()] == ["probe"]
    async with open_resources(Config(store=store, probe=settings("near"))) as service:
        assert len(service.jobs()) > 1


async def test_primary_vantage_without_network_does_not_report_outages(places: TwoPlaces) -> None:
    """It has no reference, so only the result of the other vantage shows that its network
    failed.
    """
    async with worker(places.near.store, {PAID.host: ("127.0.0.1", 1)}) as cut_off:
        cut_off.clock, cut_off.settings = places.near.clock, settings("near")
        places.near = cut_off
        await places.pass_time(HOUR_MS)
    failures = [result for result in await places.history() if not result.up]
    assert failures
    assert not any(result.scored for result in failures)
    assert (await places.states())["far"].up
    assert await places.is_partly_reachable()
