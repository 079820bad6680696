"""Egress measures its own delays. The tests block its loops while real sockets are in use."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.hostile_server import World, hostile_world

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.curl_loop import TICK_S, CurlLoop, Lateness
from tollgauge.clients.egress.request import EgressSettings, Request
from tollgauge.clients.egress.transfer import CurlTransfer, Plan
from tollgauge.core.endpoint.identity import Perimeter, parse_resource
from tollgauge.core.probe.exchange import Exchange, Fault, Lint
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.probe.probe import LATE_HERE, LATE_MS, ProbeResult, judge

HOST = "good.sellers.example"
DEADLINE_MS = 900
HELD_UP_S = 0.6
TRIES = 20


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with hostile_world(tmp_path) as world:
        yield world


@pytest.fixture
async def egress(world: World) -> AsyncIterator[Egress]:
    client = Egress(
        EgressSettings(
            deadline_ms=DEADLINE_MS,
            connect_deadline_ms=300,
            mapped=world.mapped,
            ca_file=world.ca_file,
        )
    )
    client.start()
    yield client
    await client.close()


def judge_exchange(exchange: Exchange) -> ProbeResult:
    return judge(exchange, Lint(payable=False, compliant=False, version=None))


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(f"https://{HOST}/hold", id="no answer"),
        pytest.param("https://silent.sellers.example/", id="no handshake"),
        pytest.param("https://full.sellers.example/", id="no connection"),
    ],
)
async def test_timeout_while_this_process_was_punctual_is_caused_by_the_target(
    egress: Egress, url: str
) -> None:
    """On a busy machine, this process may be late more than once, but not each time."""
    for _ in range(TRIES):
        result = judge_exchange(await egress.fetch(Request(url=url)))
        if not result.late_here:
            break
    assert result.timings.delay <= LATE_MS
    assert result.attribution is Attribution.TARGET
    assert result.reason in ("timeout", "connect-timeout")


async def test_timeout_while_the_event_loop_was_blocked_is_local(
    egress: Egress, world: World
) -> None:
    asked = asyncio.create_task(egress.fetch(Request(url=f"https://{HOST}/hold")))
    await world.wait_for_requests(1)
    time.sleep(HELD_UP_S)  # noqa: ASYNC251 - the event loop is to be held up
    result = judge_exchange(await asked)
    assert result.timings.delay >= (HELD_UP_S - TICK_S) * 1_000
    assert (result.attribution, result.reason) == (Attribution.LOCAL, LATE_HERE)


async def test_delay_of_the_event_loop_before_the_transfer_counts(egress: Egress) -> None:
    asked = asyncio.create_task(egress.fetch(Request(url=f"https://{HOST}/always-200")))
    await asyncio.sleep(0)
    time.sleep(HELD_UP_S)  # noqa: ASYNC251 - the event loop is to be held up
    assert (await asked).timings.delay >= (HELD_UP_S - TICK_S) * 1_000


async def test_delay_before_or_after_an_attempt_does_not_count(egress: Egress) -> None:
    for _ in range(TRIES):
        await egress.fetch(Request(url=f"https://{HOST}/always-200"))
        time.sleep(HELD_UP_S)  # noqa: ASYNC251 - no transfer is in flight
        exchange = await egress.fetch(Request(url=f"https://{HOST}/always-200"))
        if exchange.timings.delay <= LATE_MS:
            break
    assert exchange.timings.delay <= LATE_MS


async def test_timeout_while_the_transfer_thread_was_blocked_is_local(
    world: World,
) -> None:
    """The end of one transfer blocks the thread while another transfer waits for its response."""
    ends: list[Exchange] = []
    ended = threading.Event()
    loop = CurlLoop()
    loop.start()

    def hold_up(_: Exchange) -> None:
        time.sleep(HELD_UP_S)

    def keep(exchange: Exchange) -> None:
        ends.append(exchange)
        ended.set()

    loop.submit(_transfer(world, "/hold"), keep)
    await world.wait_for_requests(1)
    loop.submit(_transfer(world, "/always-200"), hold_up)
    await asyncio.to_thread(ended.wait, 20)
    await asyncio.to_thread(loop.stop, 1)
    (exchange,) = ends
    assert isinstance(exchange.result, Fault)
    assert exchange.timings.delay >= (HELD_UP_S - TICK_S) * 1_000
    assert judge_exchange(exchange).reason == LATE_HERE


async def test_setup_of_other_transfers_counts_after_the_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two transfers reach an idle thread together, and the second blocks it before the first
    begins.
    """
    ends: list[Exchange] = []
    submitted, ended = threading.Event(), threading.Event()
    first, second = _transfer(world, "/always-200"), _transfer(world, "/always-200")
    open_first, open_second = first.open, second.open

    def open_when_both_are_there() -> object:
        submitted.wait(20)
        return open_first()

    def open_slowly() -> object:
        time.sleep(HELD_UP_S)
        return open_second()

    def keep(exchange: Exchange) -> None:
        ends.append(exchange)
        if len(ends) == 2:
            ended.set()

    monkeypatch.setattr(first, "open", open_when_both_are_there)
    monkeypatch.setattr(second, "open", open_slowly)
    loop = CurlLoop()
    loop.start()
    loop.submit(first, keep)
    loop.submit(second, keep)
    submitted.set()
    await asyncio.to_thread(ended.wait, 20)
    await asyncio.to_thread(loop.stop, 1)
    assert min(exchange.timings.delay for exchange in ends) >= (HELD_UP_S - TICK_S) * 1_000


def _transfer(world: World, path: str) -> CurlTransfer:
    address, port = world.mapped[HOST]
    return CurlTransfer(
        Plan(
            request=Request(url=f"https://{HOST}{path}"),
            resource=parse_resource(f"https://{HOST}{path}", Perimeter(mapped=frozenset({HOST}))),
            addresses=(address,),
            dial_port=port,
            timeout_ms=DEADLINE_MS,
            settings=EgressSettings(connect_deadline_ms=DEADLINE_MS),
            ca_file=world.ca_file,
        )
    )


async def test_idle_thread_is_never_late(world: World, egress: Egress) -> None:
    """It sleeps without a timeout while no transfer is in flight."""
    for _ in range(TRIES):
        await asyncio.sleep(5 * TICK_S)
        exchange = await egress.fetch(Request(url=f"https://{HOST}/always-200"))
        if exchange.timings.delay <= LATE_MS:
            break
    assert exchange.timings.delay <= LATE_MS
    assert world.requests


# The arithmetic, without a clock


def test_delay_is_the_largest_during_the_transfer() -> None:
    lateness = Lateness()
    now = 10.0
    woken = []
    for delay in (0.0, 0.9, 0.0, 0.5, 0.0):
        lateness.beat(now)
        now += TICK_S + delay
        woken.append(now)
    lateness.beat(now)
    _, first, _, second, end = woken
    assert lateness.largest(10.0, end) == pytest.approx(0.9)
    assert lateness.largest(first, end) == pytest.approx(0.5)
    inside = second - 0.2
    assert lateness.largest(inside, end) == pytest.approx(0.2), "at most the time in flight"
    assert lateness.largest(second + TICK_S / 2, end) == 0


def test_ongoing_delay_counts() -> None:
    lateness = Lateness()
    lateness.beat(10.0)
    assert lateness.largest(10.0, 10.0 + TICK_S) == 0
    assert lateness.largest(10.0, 13.0) == pytest.approx(3 - TICK_S)
    lateness.rest()
    assert lateness.largest(10.0, 13.0) == 0


def test_only_delays_that_can_become_the_largest_are_kept() -> None:
    lateness = Lateness()
    for number in range(10_000):
        lateness.note(float(number), 0.02 + number % 100 / 1_000)
    assert lateness.largest(0.0, 10_000.0) == pytest.approx(0.119)
    assert len(lateness._noted) < 200
