"""Sources of truth of the ledger: the chain before the facilitator, no conclusion before the chain
has enough blocks, and nothing for a client that knows only a nonce.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.killable_worker import Worker
from tests.support.ledger_world import VALID_S, LedgerWorld
from tests.support.reconciliation import forget_payment
from typer.testing import CliRunner

from tollgauge import cli
from tollgauge.core.base.units import DAY_MS
from tollgauge.core.sale.payment import decode
from tollgauge.core.sale.payment_state import EXPIRY_GRACE_S, FINAL_MS, State
from tollgauge.db.engine import Store
from tollgauge.jobs import settle
from tollgauge.observe import LEDGER_ALARMS
from tollgauge.store.ledger import payer_limit, payments
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import gate as gate_module
from tollgauge.web.paid import settle as settlement
from tollgauge.web.paid.gate import LEASE_MS
from tollgauge.web.paid.sale import HeldClaim, Sale

ENDED_S = VALID_S + EXPIRY_GRACE_S + 1


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "POLL_DELAYS_S", (0.0,))
    monkeypatch.setattr(settlement, "PROOF_POLL_DELAYS_S", (0.0, 0.0))


async def row(store: Store, world: LedgerWorld) -> payments.LedgerRow:
    stored = await store.reading(payments.get, decode(world.header).id)
    assert stored is not None
    return stored


async def reconcile(store: Store, world: LedgerWorld) -> dict[str, object]:
    chain = world.gate(store, Worker()).chain
    assert chain is not None
    return await settle.run(store, chain, clock=world.clock)


def alarms(kind: str) -> float:
    return float(LEDGER_ALARMS.labels(kind)._value.get())


async def test_success_with_an_unrelated_transaction_releases_nothing(store: Store) -> None:
    world, before = LedgerWorld(settle="did not: settled elsewhere"), alarms("unproven")
    assert (await world.send(world.gate(store, Worker()))).status == 503
    assert (await row(store, world)).state is State.UNKNOWN
    assert alarms("unproven") == before + 1
    world.tick(ENDED_S)
    assert await reconcile(store, world) == {"expired": 1}
    ended = await row(store, world)
    assert (ended.state, ended.transaction) == (State.EXPIRED, None)
    assert (await world.send(world.gate(store, Worker()))).status == 402


async def test_wrong_transaction_of_a_settled_payment_is_corrected(store: Store) -> None:
    world = LedgerWorld(settle="did: settled elsewhere")
    assert (await world.send(world.gate(store, Worker()))).status == 200
    use = world.chain.use(world.nonce)
    assert use is not None
    assert (await row(store, world)).transaction == use.transaction


@pytest.mark.parametrize("settles", ["settled", "did not: settled"])
async def test_facilitator_is_believed_only_until_there_is_a_node(
    store: Store, settles: str
) -> None:
    world, before = LedgerWorld(settle=settles), alarms("lost")
    gate = world.gate(store, Worker(), with_node=False)
    assert (await world.send(gate)).status == 200
    assert (await row(store, world)).reason == "facilitator"
    assert await reconcile(store, world) == {}
    world.tick(FINAL_MS // 1000 + 1)
    if world.paid:
        assert await reconcile(store, world) == {"final": 1}
        assert (await row(store, world)).lease_until == 0
        return
    assert await reconcile(store, world) == {"lost": 1}
    world.tick(60)
    assert await reconcile(store, world) == {"expired": 1}
    assert alarms("lost") == before + 1


async def test_node_behind_the_facilitator_is_awaited(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = LedgerWorld(node_lag=1)

    async def pause(_seconds: float) -> None:
        world.node_lag = 0

    gate = world.gate(store, Worker())
    monkeypatch.setattr(asyncio, "sleep", pause)
    assert (await world.send(gate)).status == 200


async def test_response_is_withheld_while_the_node_does_not_answer(store: Store) -> None:
    world = LedgerWorld(node_down=True)
    answer = await world.send(world.gate(store, Worker()))
    assert (answer.status, answer.body) == (503, b"payment-pending")
    world.node_down = False
    assert (await world.send(world.gate(store, Worker()))).status == 200
    assert world.calls["settle"] == 1
    assert world.computed == 1


async def test_lagging_node_expires_nothing(store: Store) -> None:
    world = LedgerWorld(settle="did: nothing", node_down=True)
    await world.send(world.gate(store, Worker()))
    world.node_down, world.node_lag = False, 2
    world.tick(ENDED_S + 3_000)
    assert await reconcile(store, world) == {"open": 1}
    assert (await world.send(world.gate(store, Worker()))).status == 503
    world.node_lag = 0
    assert (await world.send(world.gate(store, Worker()))).status == 200


@pytest.mark.parametrize("later_s", [0, VALID_S + 100], ids=["in time", "after its end"])
async def test_payment_sent_by_a_third_party_after_the_claim_is_served(
    store: Store, later_s: int
) -> None:
    world = LedgerWorld(verify="500")
    assert (await world.send(world.gate(store, Worker()))).status == 503
    world.tick(2)
    world.broadcast()
    world.verify = "valid"
    world.tick(later_s)
    assert (await world.send(world.gate(store, Worker()))).status == 200


async def test_payment_sent_before_the_claim_releases_nothing(store: Store) -> None:
    world = LedgerWorld()
    world.broadcast()
    world.tick(2)
    assert (await world.send(world.gate(store, Worker()))).status == 409
    assert (await row(store, world)).state is State.REJECTED
    assert world.computed == 0


async def test_knowing_only_the_nonce_is_not_enough(store: Store) -> None:
    """Nonces, payers and amounts are public on the chain, and so are the resources of responses."""
    world = LedgerWorld()
    gate = world.gate(store, Worker())
    mine = await world.send(gate)
    forged = await world.send(gate, header=world.sign("0x" + "2c" * 65))
    assert (mine.status, forged.status, forged.body) == (200, 409, b"payment-reused")


async def test_forged_signature_cannot_take_over_a_stored_response(store: Store) -> None:
    world = LedgerWorld()
    assert await dies(world, store, at="before settle")
    world.now += LEASE_MS + 1
    gate = world.gate(store, Worker())
    assert (await world.send(gate, header=world.sign("0x" + "2c" * 65))).status == 409
    assert (await row(store, world)).header == world.header
    world.now += 100_000
    assert (await world.send(gate)).status == 200


async def dies(world: LedgerWorld, store: Store, *, at: str) -> bool:
    """Send a payment to a worker that dies at the first point with this name; return whether it
    died.
    """
    from tests.support.killable_worker import Crash

    class DyingWorker(Worker):
        def point(self, name: str) -> None:
            self.dead = self.dead or name == at
            super().point(name)

    try:
        await world.send(world.gate(store, DyingWorker()))
    except Crash:
        return True
    return False


async def test_new_price_does_not_change_existing_claims(store: Store) -> None:
    world = LedgerWorld(settle="did not: 500")
    gate = world.gate(store, Worker())
    assert (await world.send(gate)).status == 503
    world.settle = "settled"
    dearer = dear(world.sale())
    assert (await world.send(gate, sale=dearer)).status == 200
    assert set(world.amounts) == {"5000"}


async def test_cheap_claim_cannot_be_used_for_an_expensive_product(store: Store) -> None:
    world = LedgerWorld(verify="500")
    gate = world.gate(store, Worker())
    await world.send(gate)
    world.verify = "lies"
    answer = await world.send(gate, sale=dear(world.sale()), path="/v1/b")
    assert answer.status == 402
    assert world.computed == 0


def dear(sale: Sale) -> Sale:
    return replace(sale, offer=replace(sale.offer, amount=sale.offer.amount * 4))


async def test_overtaken_worker_does_not_send_its_response(
    store: Store,
) -> None:
    world = LedgerWorld()
    gate = world.gate(store, Worker())
    fast = world.sale()

    async def slowly(order: object, claim: HeldClaim) -> bytes:
        world.now += LEASE_MS + 1
        other = await world.send(gate, path="/v1/b", sale=fast)
        assert other.status == 200
        return await fast.compute(order, claim)

    answer = await world.send(gate, sale=replace(fast, compute=slowly))
    assert (answer.status, answer.body) == (409, b"payment-reused")


async def test_overtaken_worker_does_not_claim_that_nothing_was_charged(
    store: Store,
) -> None:
    world = LedgerWorld()
    gate = world.gate(store, Worker())
    fast = world.sale()

    async def slowly(_order: object, _claim: HeldClaim) -> bytes:
        world.now += LEASE_MS + 1
        world.settle, world.node_down = "did: nothing", True
        assert (await world.send(gate, sale=fast)).status == 503
        raise Problem(503, "probe-failed-here", "ours")

    answer = await world.send(gate, sale=replace(fast, compute=slowly))
    assert (answer.status, answer.body) == (503, b"payment-pending")


async def test_disconnected_client_does_not_stop_the_sale(store: Store) -> None:
    world = LedgerWorld()
    gate = world.gate(store, Worker())
    begun = asyncio.Event()

    async def compute(_order: object, _claim: HeldClaim) -> bytes:
        begun.set()
        await asyncio.sleep(0.05)
        return b'{"run": 1}'

    task = asyncio.create_task(world.send(gate, sale=replace(world.sale(), compute=compute)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.gather(*gate._selling)
    assert (await row(store, world)).state is State.SETTLED
    assert (await world.send(gate)).status == 200


async def test_payment_settled_in_the_second_of_its_claim_is_paid(store: Store) -> None:
    """The chain counts whole seconds, and the claim is later in the same second."""
    world = LedgerWorld(verify="spends it at once and refuses")
    world.now += 300
    answer = await world.send(world.gate(store, Worker()))
    assert (answer.status, world.computed) == (200, 1)
    assert (await row(store, world)).state is State.SETTLED


async def sell_and_forget(store: Store, world: LedgerWorld) -> None:
    """Sell, then delete the rows, as the restore of an older backup does."""
    assert (await world.send(world.gate(store, Worker()))).status == 200
    await store.writing(forget_payment, decode(world.header).id)


async def test_payment_settled_before_a_restore_is_409_with_its_transaction(store: Store) -> None:
    world, before = LedgerWorld(), alarms("unknown-settlement")
    await sell_and_forget(store, world)
    world.tick(3)  # the restored service claims it in a later second
    gate = replace(world.gate(store, Worker()), contact="help@example.com")
    for _ in range(2):
        with pytest.raises(Problem) as refused:
            await gate.sell(world.sale(), decode(world.header), {"q": 1}, digest="d")
        assert (refused.value.status, refused.value.code) == (409, "payment-settled-unknown")
        assert "help@example.com" in str(refused.value)
        use = world.chain.use(world.nonce)
        assert use is not None
        assert refused.value.extra["transaction"] == use.transaction
    assert alarms("unknown-settlement") == before + 2
    assert (await row(store, world)).state is State.REJECTED
    assert world.computed == 1


@pytest.mark.parametrize("passed_s", [VALID_S, VALID_S + 3 * 86_400])
async def test_expired_payment_that_was_settled_is_409(store: Store, passed_s: int) -> None:
    world = LedgerWorld()
    await sell_and_forget(store, world)
    world.tick(passed_s)
    answer = await world.send(world.gate(store, Worker()))
    assert (answer.status, answer.body) == (409, b"payment-settled-unknown")


async def test_settled_payment_of_an_earlier_price_is_409(store: Store) -> None:
    world = LedgerWorld()
    await sell_and_forget(store, world)
    world.tick(3)
    sale = world.sale()
    dearer = replace(sale, offer=replace(sale.offer, amount=sale.offer.amount + 1))
    answer = await world.send(world.gate(store, Worker()), sale=dearer)
    assert (answer.status, answer.body) == (409, b"payment-settled-unknown")


@pytest.mark.parametrize("passed_s", [3, VALID_S])
async def test_refused_payment_is_503_while_the_node_is_down(store: Store, passed_s: int) -> None:
    world = LedgerWorld()
    await sell_and_forget(store, world)
    world.tick(passed_s)
    world.node_down = True
    answer = await world.send(world.gate(store, Worker()))
    assert (answer.status, answer.body) == (503, b"chain-unavailable")


@pytest.mark.parametrize("with_node", [True, False])
async def test_used_nonce_that_the_node_does_not_show_is_503(store: Store, with_node: bool) -> None:
    world = LedgerWorld(verify="spends it and refuses")
    world.node_lag = 2
    answer = await world.send(world.gate(store, Worker(), with_node=with_node))
    assert (answer.status, answer.body) == (503, b"chain-unavailable")


async def test_expired_payment_that_was_never_used_is_402(store: Store) -> None:
    world = LedgerWorld()
    world.tick(VALID_S)
    assert (await world.send(world.gate(store, Worker()))).status == 402
    assert world.calls == {}


async def test_undecidable_rows_do_not_block_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payer_limit, "MAX_UNPAID", 1_000)  # here, one payer stands for many
    monkeypatch.setattr(settle, "BATCH", 20)
    stuck = [LedgerWorld(settle="did not: no") for _ in range(settle.BATCH + 10)]
    for world in stuck:
        await world.send(world.gate(store, Worker()))
    late = LedgerWorld(settle="did: nothing", node_down=True)
    await late.send(late.gate(store, Worker()))
    late.node_down = False
    late.tick(60)
    tallies = [await reconcile(store, late) for _ in range(2)]
    assert {"settled"} <= set(tallies[0]) | set(tallies[1]), tallies
    assert (await row(store, late)).state is State.SETTLED


async def test_silent_node_ends_the_round_early(store: Store) -> None:
    worlds = [LedgerWorld(settle="did not: no") for _ in range(10)]
    for world in worlds:
        await world.send(world.gate(store, Worker()))
    last = worlds[-1]
    last.tick(60)
    last.node_down = True
    assert await reconcile(store, last) == {"unreachable": settle.SILENT_MAX}


async def test_stored_response_that_was_sent_is_closed(store: Store) -> None:
    world = LedgerWorld()
    assert await dies(world, store, at="before settle")
    # The intent is written before the call to the facilitator, and its lease ends first.
    world.tick(91)
    assert await reconcile(store, world) == {"open": 1}
    world.tick(ENDED_S)
    assert await reconcile(store, world) == {"expired": 1}


@pytest.mark.parametrize("ends", [State.SETTLED, State.UNKNOWN])
async def test_responses_are_kept_for_30_days_after_the_outcome(store: Store, ends: State) -> None:
    world = LedgerWorld(settle="settled" if ends is State.SETTLED else "did: nothing")
    world.node_down = ends is State.UNKNOWN
    gate = world.gate(store, Worker())
    await world.send(gate)
    world.node_down = False
    assert (await row(store, world)).state is ends
    for days, left in ((29, True), (2, ends is State.UNKNOWN)):
        world.tick(days * DAY_MS // 1000)
        await store.writing(payments.forget_answers, now=world.now, limit=9)
        assert ((await row(store, world)).answer is not None) == left
    answer = await world.send(gate)
    assert answer.status == (200 if ends is State.UNKNOWN else 410)


async def test_intent_is_written_before_the_facilitator_is_called(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, seen = LedgerWorld(), []
    gate = world.gate(store, Worker())
    ask = gate.facilitator._post

    async def look(*arguments: Any) -> Any:
        seen.append((await row(store, world)).state)
        return await ask(*arguments)

    monkeypatch.setattr(gate.facilitator, "_post", look)
    await world.send(gate)
    assert seen == [State.CLAIMED, State.SETTLING]


async def test_operator_sees_payments_and_attempts_without_signatures(
    database: str, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = LedgerWorld(settle="did: nothing", node_down=True)
    gate = world.gate(store, Worker())
    await world.send(gate)
    world.node_down = False
    await world.send(gate)
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.chdir(tmp_path)
    run = await asyncio.to_thread(CliRunner().invoke, cli.app, ["payments", "--json"])
    assert run.exit_code == 0, run.output
    (payment,) = orjson.loads(run.stdout)["payments"]
    assert payment["state"] == "settled"
    assert payment["paymentId"] == decode(world.header).id
    kinds = [tried["kind"] for tried in payment["attempts"]]
    assert kinds == ["verify", "intent", "settle", "chain"]
    plain = await asyncio.to_thread(CliRunner().invoke, cli.app, ["payments", "--limit", "1"])
    for text in (run.stdout, plain.stdout):
        assert payment["paymentId"] in text
        assert "1b1b" not in text
        assert world.header[:40] not in text
        assert '"run"' not in text
