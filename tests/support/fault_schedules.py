"""Random fault schedules: guarded clients buy from official sellers while everything fails.

`play(seed, folder)` runs one schedule and returns its violations; the rules are written here
independently of the guard's state table. A schedule mixes lost requests and responses, truncated
bodies, redirects after payment, processes that die, two processes, wrong clocks, pending and failed
settlements, reorganisations, and nodes that are silent, behind, of another chain or lying.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn
from unittest import mock

import httpx
from eth_account import Account
from guard.cases import sample_bundle as sample
from tests.support.simulated_chain import (
    NETWORK,
    Facilitator,
    Mood,
    Nodes,
    Settlement,
    SimulatedChain,
    seller_app,
)
from x402 import x402Client
from x402.mechanisms.evm.exact import ExactEvmScheme

from tollgauge_guard import (
    DOLLAR,
    GuardedClient,
    PayAgain,
    PaymentRefusedError,
    Policy,
    State,
    paying,
)
from tollgauge_guard.bundle import read_bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.guard import Guard
from tollgauge_guard.journal import Journal
from tollgauge_guard.nodes import NodeReader
from tollgauge_guard.signature import pin_keys

HOST: Final = "http://seller.example"
PATHS: Final = ("/a", "/b", "/c")
WALLET: Final = Account.from_key("0x" + "11" * 32)
OFF_BY: Final = (0, 0, 0, 3_600, -3_600)
STEPS: Final = 14


class Fault(StrEnum):
    """What happens to a request with a payment, or to its response."""

    NONE = "none"
    LOST_BEFORE = "the request is lost"
    LOST_AFTER = "the answer is lost"
    CUT = "the body is cut"
    PROXY_ERROR = "a proxy answers 502"
    REDIRECT = "a proxy redirects"
    CANCELLED = "the call is cancelled"
    DIED_BEFORE = "the process dies before the request leaves the machine"
    DIED_AFTER = "the process dies after the seller has answered"


class ProcessDied(BaseException):
    """Ends a simulated process: it records nothing after that."""


@dataclass
class Process:
    """One process with a client. `offset` is the error of its clock in seconds."""

    token: str
    http: GuardedClient
    offset: int
    is_alive: bool = True


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
PURCHASE: ContextVar[str] = ContextVar("purchase", default="")


@dataclass
class Signed:
    """An authorization that the wallet signed."""

    nonce: str
    purchase: str
    valid_before: int
    has_left: bool = False
    is_answered: bool = False


@dataclass
class World:
    """Everything that one schedule touches. `wrong` collects violations."""

    dice: random.Random
    path: Path
    chain: SimulatedChain
    signed: dict[str, Signed] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    fault: Fault = Fault.NONE
    answers: int = 0
    calls: int = 0

    def __post_init__(self) -> None:
        self.facilitator = Facilitator(self.chain, self.dice)
        self.nodes = Nodes(self.chain)
        self.app = seller_app(self.facilitator, sample.PAYEE)
        self.journal = Journal(self.path)
        self.named = self.dice.choice(((), ("one",), ("one",), ("one", "two")))

    def now(self) -> float:
        process = PROCESS.get()
        return float(self.chain.now + (process.offset if process else 0))

    def start(self) -> Process:
        """Start a process with the same wallet and journal."""
        client, scheme = x402Client(), ExactEvmScheme(WALLET)
        signer: Any = scheme._signer  # the signed payment is not public
        sign = signer.sign_typed_data

        def record(*arguments: Any) -> bytes:
            self._see_signature(arguments[3])
            return bytes(sign(*arguments))

        signer.sign_typed_data = record
        client.register(NETWORK, scheme)
        urls = {NETWORK: [f"http://{name}" for name in self.named]} if self.named else {}
        guard = Guard(
            bundles=FixedBundle(self._bundle()),
            policy=Policy(
                max_host_day=1_000 * DOLLAR,
                max_day=1_000 * DOLLAR,
                loss_budget=1_000 * DOLLAR,
                loss_count=1_000,
                max_validity=600,
                pay_again=self.dice.choice((PayAgain.NEVER, PayAgain.ASK, PayAgain.AUTO_UP_TO)),
                pay_again_max=5_000,
            ),
            journal=Journal(self.path),
            ask=self.dice.choice((None, lambda _question, _url: True)),
            nodes=NodeReader(urls, transport=self.nodes.transport),
            clock=self.now,
        )
        http = GuardedClient(guard, client, transport=Wire(self), follow_redirects=True)
        process = Process(f"process-{len(self.processes)}", http, self.dice.choice(OFF_BY))
        self.processes.append(process)
        return process

    def list_living(self) -> list[Process]:
        return [process for process in self.processes if process.is_alive]

    def _bundle(self) -> Any:
        offers = [[NETWORK, "exact", 0, "5000"]]
        record: sample.Row = ["proceed", "B", 84.0, offers, [], None, None]
        body = sample.body({f"{HOST}{path}": record for path in PATHS}, self.chain.now)
        keys = pin_keys(sample.public_key())
        return read_bundle(body, sample.signature(body), keys, now=self.chain.now)

    def _see_signature(self, message: Any) -> None:
        """Check that a newer payment of the same purchase has no open predecessor."""
        purchase = PURCHASE.get()
        for earlier in self.signed.values():
            if earlier.purchase != purchase or not earlier.has_left or earlier.is_answered:
                continue
            (row,) = self.journal.select("nonce = ?", earlier.nonce)
            if row.state in (State.LAPSED, State.WRITTEN_OFF):
                continue
            if row.state is not State.DEAD:
                self.wrong.append(f"second authorization while {earlier.nonce} is {row.state}")
            elif not self._is_dead(earlier):
                self.wrong.append(f"{earlier.nonce} is dead in the journal and not on the chain")
        nonce = message["nonce"]
        nonce = nonce if isinstance(nonce, str) else "0x" + bytes(nonce).hex()
        entry = Signed(nonce.lower(), purchase, int(message["validBefore"]))
        self.signed[entry.nonce] = entry

    def _is_dead(self, signed: Signed) -> bool:
        deep = self.chain.height - 12
        is_over = self.chain.time_of(deep) >= signed.valid_before
        return is_over and not self.chain.is_used(signed.nonce, self.chain.height)


class Wire(httpx.AsyncBaseTransport):
    """The transport to the seller, with the fault of the world for requests that carry a
    payment.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._seller = httpx.ASGITransport(world.app, raise_app_exceptions=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        header = request.headers.get("payment-signature")
        if header is None:
            return await self._seller.handle_async_request(request)
        world, process = self._world, PROCESS.get()
        nonce = json.loads(base64.b64decode(header))["payload"]["authorization"]["nonce"].lower()
        signed = world.signed[nonce]
        signed.has_left = True
        rows = world.journal.select("nonce = ?", nonce)
        if [row.state for row in rows] != [State.IN_FLIGHT]:
            world.wrong.append(f"{nonce} left without its row in flight")
        fault, world.fault = world.fault, Fault.NONE
        if fault in (Fault.LOST_BEFORE, Fault.DIED_BEFORE):
            self._end(fault, process, request)
        answer = await self._seller.handle_async_request(request)
        body = await answer.aread()
        if fault in (Fault.LOST_AFTER, Fault.DIED_AFTER, Fault.CANCELLED):
            self._end(fault, process, request)
        if fault is Fault.PROXY_ERROR:
            return httpx.Response(502, request=request)
        if fault is Fault.REDIRECT:
            return httpx.Response(307, headers={"location": "/c"}, request=request)
        if fault is Fault.CUT:
            return httpx.Response(answer.status_code, headers=answer.headers, stream=Cut(body))
        if answer.is_success:
            signed.is_answered = True
            world.answers += 1
        return httpx.Response(answer.status_code, headers=answer.headers, stream=Whole(body))

    def _end(self, fault: Fault, process: Process | None, request: httpx.Request) -> None:
        if fault is Fault.CANCELLED:
            raise asyncio.CancelledError
        if fault in (Fault.LOST_BEFORE, Fault.LOST_AFTER):
            raise httpx.ReadTimeout("lost", request=request)
        assert process is not None
        process.is_alive = False
        journal = process.http.guard.journal
        for name in ("reserve", "sign", "change"):
            setattr(journal, name, _record_nothing)
        raise ProcessDied


def _record_nothing(*_arguments: Any, **_options: Any) -> NoReturn:
    raise ProcessDied


class Whole(httpx.AsyncByteStream):
    """A body that arrives in one piece."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


class Cut(Whole):
    """A body whose connection breaks."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body[:1]
        raise httpx.ReadError("cut")


async def call(world: World, process: Process, path: str, key: str | None) -> None:
    """Make one call of a process; the caller handles its exceptions."""
    PROCESS.set(process)
    PURCHASE.set(key or path)
    world.calls += 1
    try:
        with paying(purchase=key):
            await process.http.get(f"{HOST}{path}")
    except (httpx.HTTPError, PaymentRefusedError, ProcessDied):
        pass
    except asyncio.CancelledError:
        pass


async def step(world: World) -> None:
    """Perform one random action."""
    dice, chain = world.dice, world.chain
    living = world.list_living() or [world.start()]
    path, key = dice.choice(PATHS), dice.choice((None, None, "order-1", "order-2"))
    # A given key names one purchase, so it is always used with the same URL.
    path = path if key is None else PATHS[int(key[-1]) - 1]
    world.facilitator.mode = dice.choice([*Settlement, *[Settlement.AT_ONCE] * 3])
    world.fault = dice.choice([*Fault, *[Fault.NONE] * 6])
    match dice.randrange(12):
        case 0:
            world.start()
        case 1:
            chain.advance(dice.choice((1, 10, 70, 700, 4_000)))
        case 2:
            chain.mine()
        case 3:
            chain.drop()
        case 4:
            chain.reorganise(dice.randrange(1, 9))
        case 5:
            world.facilitator.restart()
        case 6:
            world.nodes.moods = {"one": dice.choice([*set(Mood) - {Mood.LYING}])}
            if len(world.named) > 1:
                # One of two nodes may lie: both must show that a payment is dead.
                world.nodes.moods["two"] = dice.choice([*Mood])
        case 7:
            calls = [call(world, dice.choice(living), path, key) for _ in range(3)]
            await asyncio.gather(*(asyncio.create_task(one) for one in calls))
        case 8:
            await asyncio.create_task(resolve_one(world, dice.choice(living)))
        case _:
            await asyncio.create_task(call(world, dice.choice(living), path, key))


async def resolve_one(world: World, process: Process) -> None:
    """Resolve or write off a random payment, as its owner may."""
    PROCESS.set(process)
    guard = process.http.guard
    for payment in world.dice.sample(guard.unresolved(), min(1, len(guard.unresolved()))):
        if payment.state is not State.IN_FLIGHT or payment.owner not in {
            one.token for one in world.list_living()
        }:
            guard.resolve(payment.handle, write_off=world.dice.random() < 0.3)


def settle_all(world: World) -> None:
    """End all faults and time limits, and compare each payment with the chain."""
    for process in world.processes:
        process.is_alive = False
    world.named, world.nodes.moods = ("one",), {}
    world.chain.advance(8_000)
    world.chain.advance(400)
    last = world.start()
    last.offset = 0
    PROCESS.set(last)
    guard = last.http.guard
    for payment in guard.journal.find_unresolved():
        guard.resolve(payment.handle)
    for payment in guard.journal.payments():
        is_used = world.chain.is_used(str(payment.nonce), world.chain.height)
        ends = {State.DELIVERED, State.LAPSED, State.WRITTEN_OFF}
        ends.add(State.PAID_UNANSWERED if is_used else State.DEAD)
        if payment.state not in ends:
            world.wrong.append(f"{payment.nonce} ends as {payment.state}, used: {is_used}")
        if (payment.exposure == 0) != (payment.state is State.DEAD):
            world.wrong.append(f"{payment.nonce} is {payment.state} and counts {payment.exposure}")
        signed = world.signed[str(payment.nonce)]
        # The process may have died after the response, or the owner may have closed the payment
        # before.
        closed = (State.DELIVERED, State.PAID_UNANSWERED, State.LAPSED, State.WRITTEN_OFF)
        if signed.is_answered and payment.state not in closed:
            world.wrong.append(f"{payment.nonce} was answered and is {payment.state}")
    left = {signed.nonce for signed in world.signed.values() if signed.has_left}
    if missing := left - {payment.nonce for payment in guard.journal.payments()}:
        world.wrong.append(f"left without a row: {missing}")


@contextmanager
def simulate_world(world: World) -> Iterator[None]:
    """Replace clocks and processes by those of a world."""

    def this_process() -> str:
        process = PROCESS.get()
        return "none" if process is None else process.token

    def is_alive(owner: str) -> bool:
        return any(process.token == owner for process in world.list_living())

    clock = SimpleNamespace(time=world.now)
    changes: list[tuple[str, Callable[..., Any] | Any]] = [
        ("tollgauge_guard.journal_file.LocalProcesses.this_process", staticmethod(this_process)),
        ("tollgauge_guard.journal_file.LocalProcesses.is_alive", staticmethod(is_alive)),
        ("x402.mechanisms.evm.exact.client.time", clock),
    ]
    patches = [mock.patch(name, new) for name, new in changes]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


async def play(seed: int, folder: Path, chain: SimulatedChain | None = None) -> World:
    """Play one schedule. `wrong` of the result is empty if the guard kept its promise."""
    path = folder / f"{seed}.sqlite"
    world = World(random.Random(seed), path, chain or SimulatedChain())
    with simulate_world(world):
        for _ in range(world.dice.choice((1, 1, 2))):
            world.start()
        for _ in range(STEPS):
            await step(world)
        settle_all(world)
    for process in world.processes:
        process.http.guard.journal.close()
        await process.http.aclose()
    world.journal.close()
    return world
