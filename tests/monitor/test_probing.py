"""Attribution of failures in the probe loop and in live reports, in simulated worlds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from tests.support.probe_loop import START, Clock, endpoint

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings, Request
from tollgauge.core.base.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.attribution import SURPRISE_MS
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Lint, Timings
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.probe.probe import judge
from tollgauge.core.probe.schedule import Cadence
from tollgauge.db.engine import Store
from tollgauge.monitor.probing import Observation, Prober
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.store.probes.probes import NewProbe

LINT = Lint(payable=False, compliant=False, version=None)
TIME_OUT = Fault(kind=FaultKind.TIMEOUT)
PAID = Answer(status=402)
REFERENCES = ("https://reference.example/", "https://other.example/")


class Line(Egress):
    """The uplink of this machine. Only references are requested through it, and it can be cut."""

    def __init__(self) -> None:
        super().__init__(EgressSettings())
        self.cut = False
        self.asked = 0

    async def fetch(self, request: Request, *, at: int = 0) -> Exchange:
        """Return the response of a reference."""
        self.asked += 1
        result = TIME_OUT if self.cut else PAID
        return Exchange(url=request.url, method=request.method, at=at, result=result)


@dataclass
class World:
    """A store with endpoints, and results that arrive in waves."""

    store: Store
    line: Line
    references: tuple[str, ...] = ()
    clock: Clock = field(default_factory=Clock)

    async def add(self, added: Sequence[Endpoint], result: Answer | Fault, *, at: int) -> None:
        """Add endpoints with one observation of each at the given time."""
        await self.store.writing(endpoints.insert, *added)
        await self.record([observation(one, result, at=at) for one in added])

    async def record(self, wave: Sequence[Observation]) -> None:
        await self.store.writing(
            probes.record_each,
            [NewProbe(endpoint_id=seen.endpoint.id, result=seen.result) for seen in wave],
        )

    @property
    def prober(self) -> Prober:
        return Prober(
            store=self.store,
            egress=self.line,
            clock=self.clock,
            cadence=Cadence(),
            references=self.references,
        )

    async def attribute_failures(self, *wave: Observation) -> tuple[Observation, ...]:
        """Attribute a wave and record it at the clock's time."""
        after = await self.prober.attribute_failures(wave)
        await self.record(after)
        return after


@pytest.fixture
async def world() -> AsyncIterator[World]:
    store, line = Store.open("sqlite://"), Line()
    await store.migrate()
    yield World(store, line)
    await line.close()
    await store.close()


def observation(one: Endpoint, result: Answer | Fault, *, at: int, delay: int = 0) -> Observation:
    timings = Timings(total=90, delay=delay)
    exchange = Exchange(url=one.resource, method="GET", at=at, result=result, timings=timings)
    return Observation(endpoint=one, result=judge(exchange, LINT), learned=None)


def sellers(count: int, name: str = "seller") -> list[Endpoint]:
    return [endpoint(f"https://api.{name}-{number}.com/paid") for number in range(count)]


def whose(wave: Sequence[Observation]) -> list[Attribution]:
    return [seen.result.attribution for seen in wave]


# An outage of one hour: 1,250 endpoints of unrelated sites, two in five of them permanently down


COUNT = 1_250
WAVE = 28
EVERY_MS = 40 * SECOND_MS
DEADLINE_MS = 10 * SECOND_MS
ROUND_MS = -(-COUNT // WAVE) * EVERY_MS
"""Half an hour: each endpoint is probed once."""
BEGIN, END = START + 2 * EVERY_MS, START + 2 * EVERY_MS + HOUR_MS


def is_dead(number: int) -> bool:
    return number % 5 < 2


def is_cut(at: int, number: int, *, edges: bool) -> bool:
    """Return whether an attempt that began at a time meets the outage.

    With `edges`, half of the attempts that begin at the start of the outage meet it, and half of
    those that begin at its end.
    """
    if edges and at in (BEGIN, END):
        return number % 2 == 0
    return BEGIN <= at < END


@pytest.mark.parametrize("references", [REFERENCES, ()])
async def test_own_outage_of_an_hour_is_not_attributed_to_any_target(
    world: World, references: tuple[str, ...]
) -> None:
    """Only with references can the first moments be attributed, in which some targets still
    answered.
    """
    world.references = references
    everybody = sellers(COUNT)
    dead = [one for number, one in enumerate(everybody) if is_dead(number)]
    live = [one for number, one in enumerate(everybody) if not is_dead(number)]
    await world.add(dead, TIME_OUT, at=START - SURPRISE_MS)
    await world.add(live, PAID, at=START - 30 * MINUTE_MS)
    seen: dict[Attribution, set[int]] = {kind: set() for kind in Attribution}
    for at in range(START, END + 4 * EVERY_MS, EVERY_MS):
        first = (at - START) % ROUND_MS // EVERY_MS * WAVE
        numbers = range(first, min(first + WAVE, COUNT))
        fails = {n: is_dead(n) or is_cut(at, n, edges=bool(references)) for n in numbers}
        world.clock.now = at + DEADLINE_MS
        world.line.cut = BEGIN <= world.clock.now < END
        after = await world.attribute_failures(
            *(observation(everybody[n], TIME_OUT if fails[n] else PAID, at=at) for n in numbers)
        )
        for number, attribution in zip(numbers, whose(after), strict=True):
            if fails[number]:
                seen[attribution].add(number)
    assert all(is_dead(number) for number in seen[Attribution.TARGET])
    assert seen[Attribution.LOCAL] >= {n for n in range(COUNT) if not is_dead(n)}
    excused = {number for number in seen[Attribution.LOCAL] if is_dead(number)}
    assert bool(excused) == bool(references), "dead targets are excused only if references fail"
    assert not seen[Attribution.UNKNOWN]
    stands = await world.store.reading(probes.last_up_of, [one.id for one in everybody])
    assert {stands[one.id].down_since for one in live} == {None}
    assert {stands[one.id].down_since for one in dead} == {START - SURPRISE_MS}


# One minute


async def test_failures_are_judged_by_minute_not_by_wave(world: World) -> None:
    """Two fail in each wave of any worker; the fifth site makes them suspicious."""
    added = sellers(8)
    await world.add(added, PAID, at=START - HOUR_MS)
    results = []
    for first in range(0, 8, 2):
        at = START + first * SECOND_MS
        world.clock.now = at + SECOND_MS
        pair = [observation(one, TIME_OUT, at=at) for one in added[first : first + 2]]
        results += whose(await world.attribute_failures(*pair))
    assert results == [Attribution.TARGET] * 4 + [Attribution.LOCAL] * 4


async def test_failure_a_minute_later_is_attributed_to_the_target(world: World) -> None:
    world.references = REFERENCES
    added, (other,) = sellers(6), sellers(1, "other")
    await world.add([*added, other], PAID, at=START - HOUR_MS)
    await world.attribute_failures(*(observation(one, TIME_OUT, at=START) for one in added))
    for after, expected in ((59, Attribution.LOCAL), (60, Attribution.TARGET)):
        world.clock.now = START + after * SECOND_MS
        alone = observation(other, TIME_OUT, at=world.clock.now)
        assert whose(await world.attribute_failures(alone)) == [expected]


@pytest.mark.parametrize("references", [REFERENCES, ()])
@pytest.mark.parametrize("fault", [FaultKind.TIMEOUT, FaultKind.TLS_INVALID, FaultKind.EMPTY])
async def test_nine_of_seventeen_real_failures_are_attributed_to_the_targets(
    world: World, references: tuple[str, ...], fault: FaultKind
) -> None:
    world.references = references
    added = sellers(17)
    await world.add(added, PAID, at=START - 30 * MINUTE_MS)
    results = [Fault(kind=fault)] * 9 + [PAID] * 8
    wave = [observation(one, seen, at=START) for one, seen in zip(added, results, strict=True)]
    assert whose(await world.attribute_failures(*wave)) == [Attribution.TARGET] * 17
    assert world.line.asked == len(references), "many failed: the references are asked"


async def test_timeouts_of_own_overload_are_local_and_others_are_not(
    world: World,
) -> None:
    """19 of 128 in a second in which the event loop was blocked, and one real failure."""
    added = sellers(128)
    await world.add(added, PAID, at=START - 30 * MINUTE_MS)
    late = [observation(one, TIME_OUT, at=START, delay=SECOND_MS) for one in added[:19]]
    failed = observation(added[19], TIME_OUT, at=START)
    answered = [observation(one, PAID, at=START) for one in added[20:]]
    after = await world.attribute_failures(*late, failed, *answered)
    assert whose(after) == [Attribution.LOCAL] * 19 + [Attribution.TARGET] * 109


async def test_single_failure_among_successes_requests_no_reference(world: World) -> None:
    world.references = REFERENCES
    added = sellers(9)
    await world.add(added, PAID, at=START - HOUR_MS)
    failed, *answered = added
    await world.attribute_failures(
        observation(failed, TIME_OUT, at=START),
        *(observation(one, PAID, at=START) for one in answered),
    )
    assert world.line.asked == 0


async def test_live_report_on_a_dead_endpoint_during_an_outage_has_no_verdict(
    world: World,
) -> None:
    added, (dead,) = sellers(6), sellers(1, "dead")
    await world.add(added, PAID, at=START - HOUR_MS)
    await world.add([dead], TIME_OUT, at=START - SURPRISE_MS)
    await world.attribute_failures(*(observation(one, TIME_OUT, at=START) for one in added))
    failed = observation(dead, TIME_OUT, at=START)
    assert whose(await world.prober.attribute_failures((failed,))) == [Attribution.TARGET]
    assert whose(await world.prober.attribute_failures((failed,), even_dead=True)) == [
        Attribution.LOCAL
    ]
