"""The ledger under random sequences of faults.

A schedule is a list of steps: client requests with a faulty facilitator or a worker that dies,
concurrent copies of one payment, third parties, reorganisations, time, and rounds of the
reconciler. Afterwards, all faults end and time passes; then the guarantees of docs/payments.md must
hold. `make test` runs 80 schedules on two databases, `make test-all` 600, and
HYPOTHESIS_PROFILE=nightly 20,000.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, event, example, given, note, settings
from hypothesis import strategies as st
from tests.support.killable_worker import Crash, Worker
from tests.support.ledger_chain import Use, word
from tests.support.ledger_world import OTHER, VALID_S, Answer, LedgerWorld

from tollgauge.core.sale.payment_state import EXPIRY_GRACE_S, FINAL_MS, State
from tollgauge.db.engine import Store
from tollgauge.jobs import settle
from tollgauge.store.ledger import attempts, payer_limit, payments
from tollgauge.web.paid import gate as gate_module
from tollgauge.web.paid import settle as settlement

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
SCHEDULES = 10_000 if NIGHTLY else int(os.environ.get("TOLLGAUGE_SCHEDULES", "20"))
"""Schedules per database. `make test-all` sets 300."""

VERIFY = (
    "valid",
    "lies",
    "500",
    "silent",
    "spends it and refuses",
    "spends it at once and refuses",
    "spends it and fails",
)
SETTLE = (
    "settled",
    "did: no",
    "did not: no",
    "did: 500",
    "did not: 500",
    "did: nothing",
    "did not: nothing",
    "did: half",
    "did not: half",
    "did: settled elsewhere",
    "did not: settled elsewhere",
    "did not: settled",
    "did: other network",
    "later: pending",
    "later: nothing",
    "did not: pending",
    "front-run: no",
    "cancelled: no",
    "drained: no",
    "drained: settled",
)


@dataclass(frozen=True)
class Call:
    """The client sends its payment, `copies` of it concurrently; the worker dies at its n-th
    point.
    """

    verify: str = "valid"
    settle: str = "settled"
    dies_at: int | None = None
    copies: int = 1
    node_down: bool = False


@dataclass(frozen=True)
class Happens:
    """An external event: see `outside`."""

    what: str


@dataclass(frozen=True)
class Wait:
    seconds: int


Step = Call | Happens | Wait
CALLS = st.builds(
    Call,
    verify=st.one_of(st.just("valid"), st.sampled_from(VERIFY)),
    settle=st.sampled_from(SETTLE),
    dies_at=st.none() | st.integers(1, 24),
    copies=st.sampled_from((1, 1, 1, 2, 3)),
    node_down=st.sampled_from((False, False, False, True)),
)
OUTSIDE = (
    "reconcile",
    "reconcile, dying",
    "front-run",
    "cancel",
    "spend elsewhere",
    "drain",
    "mine what waits",
    "reorganise",
    "reorganise for good",
    "the node lags",
    "the node catches up",
)
STEPS = st.lists(
    st.one_of(
        CALLS,
        CALLS,
        st.builds(Happens, st.sampled_from(OUTSIDE)),
        st.builds(Wait, st.sampled_from((1, 20, 61, 100, 300, 450))),
    ),
    min_size=1,
    max_size=7,
)


@dataclass
class Play:
    """One running schedule."""

    store: Store
    with_node: bool = True
    world: LedgerWorld = field(default_factory=LedgerWorld)
    answers: list[Answer] = field(default_factory=list)
    claimed: bool = False
    unattributed: set[str] = field(default_factory=set)
    lost_for_good: bool = False
    doubtful: bool = False

    @property
    def paid(self) -> bool:
        """Whether the chain shows that this payment paid the service, and no earlier claim did."""
        use = self.world.chain.use(self.world.nonce)
        return self.world.paid and use is not None and use.transaction not in self.unattributed

    async def step(self, step: Step) -> None:
        match step:
            case Call():
                await self.call(step)
            case Wait(seconds):
                self.world.tick(seconds)
            case Happens(what):
                await self.outside(what)

    async def call(self, call: Call) -> None:
        world = self.world
        world.verify, world.settle, world.node_down = call.verify, call.settle, call.node_down
        self.doubtful = self.doubtful or call.verify == "lies"
        worker = Worker(dies_at=call.dies_at)
        gate = world.gate(self.store, worker, with_node=self.with_node)
        results = await asyncio.gather(
            *(self.record_sent(gate) for _ in range(call.copies)), return_exceptions=True
        )
        world.node_down = False
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Crash):
                raise result
        self.claimed = self.claimed or await self.row() is not None

    async def record_sent(self, gate: gate_module.Gate) -> None:
        answer = await self.world.send(gate)
        note(f"{answer.status} {answer.body.decode()[:60]}")
        self.check(answer)
        self.answers.append(answer)

    def check(self, answer: Answer) -> None:
        """Check a response when it is sent."""
        world = self.world
        assert answer.status in (200, 402, 503)
        if answer.status == 200:
            released = any(answer.status == 200 for answer in self.answers)
            # A reorganisation that removes a payment for good after it was proven is an accepted
            # loss of one call's price. The ledger then ends without it.
            proven = released or self.lost_for_good
            assert proven or self.world.paid, "released unpaid"
            assert proven or self.paid or self.doubtful, "a direct transfer released a response"
        if answer.status == 402 and not world.node_lag:
            assert not self.paid, "402 after it paid"
            assert not (world.chain.mempool and world.usable()), "402 while it may still pay"

    async def outside(self, what: str) -> None:  # noqa: C901 (a table)
        world, chain = self.world, self.world.chain
        match what:
            case "reconcile":
                await self.reconcile(Worker())
            case "reconcile, dying":
                await self.reconcile(Worker(dies_at=2))
            case "front-run":
                # Before the claim, it is a payment to another service with the same payTo.
                transaction = world.broadcast()
                if not self.claimed:
                    self.unattributed.add(transaction)
                world.tick(1)
            case "cancel":
                chain.cancel(world.nonce, at_s=world.now_s)
            case "spend elsewhere":
                if world.usable():
                    chain.mine(world.now_s, Use(world.nonce, OTHER, word(world.now)))
            case "drain":
                chain.drained = True
            case "mine what waits":
                world.mine_waiting()
            case "reorganise":
                chain.reorganise(world.nonce, remine=True, at_s=world.now_s)
                self.doubtful = self.doubtful or bool(self.unattributed)
            case "reorganise for good":
                gone = chain.reorganise(world.nonce, remine=False, at_s=world.now_s)
                self.lost_for_good = self.lost_for_good or gone
            case "the node lags":
                world.node_lag = 3
            case "the node catches up":
                world.node_lag = 0

    async def reconcile(self, worker: Worker) -> None:
        gate = self.world.gate(self.store, worker, with_node=self.with_node)
        assert gate.chain is not None
        try:
            await settle.run(gate.store, gate.chain, clock=self.world.clock)
        except Crash:
            return

    async def row(self) -> payments.LedgerRow | None:
        return await self.store.reading(payments.get, payment_id(self.world))

    async def end(self) -> payments.LedgerRow | None:
        """End all faults. The client retries in time and after the end of validity, and the
        reconciler runs until no work is left.
        """
        world = self.world
        world.node_lag, world.node_down = 0, False
        for seconds in (0, settlement.SETTLE_LEASE_MS // 1000, VALID_S + EXPIRY_GRACE_S):
            world.tick(seconds)
            world.mine_waiting()
            await self.call(Call())
        for _ in range(6):
            await self.reconcile(Worker())
            row = await self.row()
            if row is None or row.state not in OPEN or not row.lease_until:
                break
            world.tick(FINAL_MS // 1000)
        await self.call(Call())
        return await self.row()


OPEN = (State.SETTLING, State.UNKNOWN, State.SETTLED)


def payment_id(world: LedgerWorld) -> str:
    from tollgauge.core.sale.payment import decode

    return decode(world.header).id


async def play(store: Store, steps: list[Step]) -> None:
    played = Play(store)
    for step in steps:
        await played.step(step)
    row = await played.end()
    world, last = played.world, played.answers[-1]
    served = [answer.body for answer in played.answers if answer.status == 200]
    state = None if row is None else row.state
    event(f"ends {state}")
    tried = (await store.reading(attempts.of_payments, [payment_id(world)]))[payment_id(world)]

    # A transfer from before the claim belongs to another service, unless a facilitator vouched for
    # it or a reorganisation moved it behind the claim.
    vouched = world.paid and not played.paid and played.doubtful and state is State.SETTLED
    paid = played.paid or vouched
    assert (state is State.SETTLED) == paid, f"the ledger says {state}, the chain paid={paid}"
    if paid:
        assert last.status == 200, "paid and never delivered"
        assert row is not None
        use = world.chain.use(world.nonce)
        assert use is not None
        assert row.transaction == use.transaction, "the ledger names the transaction that paid"
        assert row.lease_until == 0, "a settled payment becomes final"
    else:
        assert last.status == 402, "an unpaid payment must be released"
        assert played.lost_for_good or not served, "delivered unpaid"
    assert len(set(served)) <= 1, "all responses of a payment are the same"
    assert world.computed <= world.calls["verify"], "the handler runs once per claim"
    assert world.most_in_flight <= 1, "one settlement at a time"
    assert (
        sum(a.kind == "settle" and a.outcome == "settled" for a in tried) <= world.calls["settle"]
    )


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the schedule's time, without real delays. One payer stands for many."""
    monkeypatch.setattr(payer_limit, "MAX_UNPAID", 1 << 30)
    monkeypatch.setattr(gate_module, "POLL_DELAYS_S", (0.0, 0.0))
    monkeypatch.setattr(settlement, "PROOF_POLL_DELAYS_S", (0.0,))


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def test_no_schedule_loses_or_gives_away_a_payment(
    database: str, runner: asyncio.Runner, impatient: None
) -> None:
    store = Store.open(database)
    played = 0

    @settings(
        max_examples=SCHEDULES,
        deadline=None,
        database=None,
        derandomize=not NIGHTLY,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    @given(STEPS)
    @example([Call(settle="did: nothing")])
    @example([Call(settle="did not: settled elsewhere")])
    @example([Call(dies_at=9), Wait(100)])
    @example([Call(verify="spends it and fails"), Wait(450)])
    def schedules(steps: list[Step]) -> None:
        nonlocal played
        played += 1
        runner.run(play(store, steps))

    try:
        schedules()
    finally:
        runner.run(store.close())
    assert played >= SCHEDULES
    print(f"{played} schedules")  # noqa: T201 (with -s)
