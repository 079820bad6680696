"""Payments through escrows on a local chain: batch-settlement and auth-capture, by the index and by
the trace.

The contracts are stand-ins with the interface in the official SDKs (tests/support/wrappers), at the
addresses of the real ones.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.escrows import BATCH, ESCROW_10, ESCROW_11, INFO, Escrows, Payment
from tests.support.indexed_world import Row, index_world, indexed_store
from tests.support.token_balance import at_snapshot, balance
from tests.support.trace_world import NETWORK, World, encode_call

from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.transactions import Transactions
from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.store.chain import volumes
from tollgauge.web.wire.traces import trace_json

pytestmark = [pytest.mark.usefixtures("anvil"), pytest.mark.asyncio(loop_scope="module")]

OTHER_PAYER, PAYER, FACILITATOR, SELLER, SECOND = range(5)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def opened_escrows() -> AsyncIterator[Escrows]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        for account in (OTHER_PAYER, FACILITATOR, SELLER):
            await chain.mint(world.sender(account), 1_000_000)
        escrows = Escrows(world)
        await escrows.open()
        yield escrows


@pytest_asyncio.fixture(loop_scope="module")
async def escrows(opened_escrows: Escrows) -> AsyncIterator[Escrows]:
    async with at_snapshot(opened_escrows.world.chain):
        yield opened_escrows


@pytest.fixture
def world(escrows: Escrows) -> World:
    return escrows.world


def low(world: World, account: int) -> str:
    return world.sender(account).lower()


async def test_claims_of_channels_are_payments_and_deposits_and_refunds_are_not(
    escrows: Escrows, world: World, tmp_path: Path, empty_sqlite: Path
) -> None:
    seller = world.sender(SELLER)
    mine, other = escrows.channel(PAYER, seller), escrows.channel(OTHER_PAYER, seller)
    # The seller at account 4 is also a buyer: its refund arrives at a payTo.
    bought = escrows.channel(SECOND, world.sender(OTHER_PAYER))
    await world.chain.mint(world.sender(SECOND), 50_000)
    for channel in (mine, other, bought):
        await escrows.batch(escrows.deposit_call(channel, 50_000))
    one_payer = await escrows.batch(escrows.claim_call((mine, 3_000)), escrows.settle_call(seller))
    await escrows.batch(escrows.claim_call((mine, 4_000), (other, 1_500)))
    apart = await escrows.batch(escrows.settle_call(seller))
    both = await escrows.batch(
        escrows.claim_call((mine, 4_700), (other, 2_000)), escrows.settle_call(seller)
    )
    await escrows.batch(escrows.settle_call(seller))
    await escrows.batch(escrows.refund_call(mine, 10_000))
    refund = await escrows.batch(escrows.refund_call(bought, 20_000))
    assert (await world.receipt(refund))["status"] == "0x1"
    gift = encode_call("transfer(address,uint256)", seller, 777)
    await world.send(USDC, gift, sender=PAYER)
    for final in (False, True):
        rows = await index_world(
            world, (seller, world.sender(SECOND)), empty_sqlite, tmp_path, final=final
        )
        payments = [row for row in rows if row.incoming]
        assert payments == [
            Row(one_payer, seller.lower(), low(world, PAYER), incoming=True, value=3_000),
            Row(apart, seller.lower(), BATCH.lower(), incoming=True, value=2_500),
            Row(both, seller.lower(), BATCH.lower(), incoming=True, value=1_200),
        ]
        # The deposit of the buying seller left its payTo; nothing else did.
        assert [(row.wallet, row.value) for row in rows if not row.incoming] == [
            (low(world, SECOND), 50_000)
        ]


@pytest.mark.parametrize("hidden", [False, True])
async def test_payer_of_a_channel_is_named_only_if_it_signed_the_voucher(
    escrows: Escrows, world: World, tmp_path: Path, empty_sqlite: Path, *, hidden: bool
) -> None:
    seller = world.sender(SELLER)
    allow = encode_call("approve(address,uint256)", world.places["GenerousCollector"], 2**255)
    await world.send(USDC, allow, sender=FACILITATOR)
    # The seller's friend funds a channel in the name of a payer who knows nothing about it.
    forged = escrows.channel(PAYER, seller)
    if hidden:
        # A no-op claim of a channel that the payer seems to have signed itself, next to a real one.
        real = escrows.channel(FACILITATOR, seller)
        await escrows.batch(escrows.gift_call(real, 5_000, source=FACILITATOR))
        calls = (escrows.claim_call((forged, 0), (real, 5_000)), escrows.settle_call(seller))
        expected = low(world, FACILITATOR)
    else:
        forged = replace(forged, payer_authorizer=world.sender(FACILITATOR))
        await escrows.batch(escrows.gift_call(forged, 5_000, source=FACILITATOR))
        claim = escrows.claim_call((forged, 5_000), signer=FACILITATOR)
        calls = (claim, escrows.settle_call(seller))
        expected = BATCH.lower()
    sent = await escrows.batch(*calls)
    rows = await index_world(world, (seller,), empty_sqlite, tmp_path)
    assert rows == [Row(sent, seller.lower(), expected, incoming=True, value=5_000)]


@pytest.mark.parametrize("escrow", [ESCROW_10, ESCROW_11])
async def test_captures_and_charges_are_payments_without_their_fees(
    escrows: Escrows, world: World, tmp_path: Path, empty_sqlite: Path, escrow: str
) -> None:
    seller, operator = world.sender(SELLER), world.sender(FACILITATOR)
    fee = 200 if escrow == ESCROW_10 else 100  # basis points, or an amount
    paid = escrows.payment(seller, 10_000, operator=operator, escrow=escrow)
    await world.send(escrow, escrows.authorize_call(paid))
    with_fee = await world.send(escrow, escrows.capture_call(paid, 5_000, fee))
    without = await world.send(escrow, escrows.capture_call(paid, 2_000))
    await world.send(escrow, escrows.void_call(paid))
    charged = escrows.payment(seller, 9_000, operator=operator, escrow=escrow)
    whole = await world.send(escrow, escrows.charge_call(charged, 5_000, fee))
    # A payment to a seller that is voided, and one that is captured too late.
    voided = escrows.payment(seller, 8_000, operator=operator, escrow=escrow)
    await world.send(escrow, escrows.authorize_call(voided))
    await world.send(escrow, escrows.void_call(voided))
    late = await world.send(escrow, escrows.capture_call(voided, 8_000))
    assert (await world.receipt(late))["status"] == "0x0"
    rows = await index_world(world, (seller,), empty_sqlite, tmp_path)
    named = (seller.lower(), escrow.lower())
    assert rows == [
        Row(with_fee, *named, incoming=True, value=4_900),
        Row(without, *named, incoming=True, value=2_000),
        Row(whole, *named, incoming=True, value=4_900),
    ]
    assert await balance(world.chain, seller) == 1_000_000 + 4_900 + 2_000 + 4_900


@pytest.mark.parametrize("who", ["seller", "facilitator", "contract"])
async def test_captures_minus_refunds_count_whoever_pays_the_refund(
    escrows: Escrows, world: World, tmp_path: Path, empty_sqlite: Path, who: str
) -> None:
    seller, sender = world.sender(SELLER), {"seller": SELLER}.get(who, FACILITATOR)
    operator = world.sender(sender)
    if who == "contract":
        operator = world.places["OperatorStandIn"]
        await world.chain.mint(operator, 100_000)
        collector = world.places["RefundCollectorStandIn"]
        await world.send(operator, encode_call("approve(address,address)", USDC, collector))
    else:
        await escrows.allow_refunds(sender)
    paid = escrows.payment(seller, 10_000, operator=operator, max_fee=0)
    if who == "contract":
        calls = _through_operator(escrows, paid)
        target = operator
    else:
        calls = (
            escrows.authorize_call(paid),
            escrows.capture_call(paid, 7_000),
            escrows.returned_call(paid, 2_500),
        )
        target = ESCROW_11
    sent = [await world.send(target, call, sender=sender) for call in calls]
    for tx in sent:
        assert (await world.receipt(tx))["status"] == "0x1", tx
    path = Path(shutil.copy(empty_sqlite, tmp_path / "index.db"))
    async with indexed_store(world, (seller,), path) as (store, now):
        demands = await store.reading(volumes.demands_of, 8453, [seller.lower()], as_of=now)
        ((payer, flow),) = await store.reading(volumes.payers, 8453, seller.lower(), as_of=now)
    assert (payer, flow.paid, flow.returned) == (ESCROW_11.lower(), 7_000, 2_500)
    demand = demands[seller.lower()]
    assert (demand.volume, demand.returned) == (7_000, 2_500)


def _through_operator(escrows: Escrows, paid: Payment) -> tuple[str, ...]:
    """Return the calls of an operator's contract, which hides those of the escrow."""
    places = escrows.world.places
    authorize = escrows.authorize_call(paid)
    signature = bytes.fromhex(authorize[-192:])[:65]
    return (
        encode_call(
            f"authorizeFor(address,{INFO},address,bytes)",
            ESCROW_11,
            paid.values,
            places["PaymentCollectorStandIn"],
            signature,
        ),
        encode_call(
            f"captureFor(address,{INFO},uint256,uint256)", ESCROW_11, paid.values, 7_000, 0
        ),
        encode_call(
            f"refundFor(address,{INFO},uint256,address)",
            ESCROW_11,
            paid.values,
            2_500,
            places["RefundCollectorStandIn"],
        ),
    )


async def test_refund_of_a_fee_does_not_reduce_the_captures_of_a_seller(
    escrows: Escrows, world: World, tmp_path: Path, empty_sqlite: Path
) -> None:
    seller, operator = world.sender(SELLER), world.sender(FACILITATOR)
    await escrows.allow_refunds(FACILITATOR)
    honest = escrows.payment(seller, 10_000, operator=operator, max_fee=0)
    await world.send(ESCROW_11, escrows.charge_call(honest, 10_000))
    # A competitor pays itself a fee of 100 % and refunds, which costs nothing but gas.
    attack = escrows.payment(
        seller, 9_000, operator=operator, max_fee=10_000, fee_receiver=operator
    )
    await world.send(ESCROW_11, escrows.charge_call(attack, 9_000, 9_000))
    refunded = await world.send(ESCROW_11, escrows.returned_call(attack, 9_000))
    assert (await world.receipt(refunded))["status"] == "0x1"
    rows = await index_world(world, (seller,), empty_sqlite, tmp_path)
    assert [(row.incoming, row.value) for row in rows] == [(True, 10_000)]


async def test_trace_shows_payments_from_escrows(escrows: Escrows, world: World) -> None:
    seller = world.sender(SELLER)
    channel = escrows.channel(PAYER, seller)
    await escrows.batch(escrows.deposit_call(channel, 50_000))
    claimed = await escrows.batch(escrows.claim_call((channel, 3_000)), escrows.settle_call(seller))
    await escrows.batch(escrows.claim_call((channel, 4_000)))
    settled = await escrows.batch(escrows.settle_call(seller))
    paid = escrows.payment(seller, 9_000, operator=world.sender(FACILITATOR))
    await world.send(ESCROW_11, escrows.authorize_call(paid))
    captured = await world.send(ESCROW_11, escrows.capture_call(paid, 5_000, 100))
    voided = await world.send(ESCROW_11, escrows.void_call(paid))
    transactions = Transactions({NETWORK: (Node(world.chain.rpc_url),)})
    try:
        shown = [
            trace_json(await transactions.trace(NETWORK, tx))
            for tx in (claimed, settled, captured, voided)
        ]
    finally:
        await transactions.close()
    assert [
        [(one["form"], one["payer"], one["payee"], one["amount"]) for one in trace["payments"]]
        for trace in shown
    ] == [
        [("batch-settlement", low(world, PAYER), seller.lower(), "3000")],
        [("batch-settlement", BATCH.lower(), seller.lower(), "1000")],
        [("auth-capture", ESCROW_11.lower(), seller.lower(), "4900")],
        [],
    ]
    assert shown[0]["payments"][0]["token"]["symbol"] == "USDC"
    assert shown[0]["payments"][0]["method"] is None
