"""Several payments in one transaction, by a contract that calls others: payments of all forms by
Multicall3 (its real bytecode) and by a smart account (a stand-in for ERC-4337), and one with the
deployment of the payer's account (ERC-6492).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from eth_account import Account
from tests.support.escrows import BATCH, ESCROW_11, Escrows
from tests.support.indexed_world import Row, index_world
from tests.support.multicall import MULTICALL3, open_multicall, send_together
from tests.support.permit2 import exact_call, open_permit2, sign, upto_call
from tests.support.token_balance import at_snapshot, balance
from tests.support.trace_world import NETWORK, World, encode_call
from web3 import Web3
from x402.mechanisms.evm import constants

from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.chain.transactions import Transactions
from tollgauge.core.chain.trace.result import Model, TraceResult
from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]

OTHER_PAYER, PAYER, FACILITATOR, SELLER, SECOND = range(5)
EXACT_PROXY = constants.X402_EXACT_PERMIT2_PROXY_ADDRESS
UPTO_PROXY = constants.X402_UPTO_PERMIT2_PROXY_ADDRESS


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def opened_escrows() -> AsyncIterator[Escrows]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        await open_permit2(world)
        await open_multicall(world)
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


async def trace(world: World, tx: str, model: Model | None = None) -> TraceResult:
    transactions = Transactions({NETWORK: (Node(world.chain.rpc_url),)})
    try:
        return await transactions.trace(NETWORK, tx, model)
    finally:
        await transactions.close()


@pytest.mark.parametrize("wrapper", ["Multicall3", "ERC-4337"])
async def test_payments_of_all_forms_in_one_transaction_are_found_between_plain_transfers(
    escrows: Escrows, world: World, tmp_path: Path, empty_sqlite: Path, wrapper: str
) -> None:
    seller, payer = world.sender(SELLER), world.payer.address
    caller = MULTICALL3 if wrapper == "Multicall3" else world.places["Account"]
    allow = encode_call("approve(address,uint256)", caller, 2**255)
    await world.send(USDC, allow, sender=PAYER)
    # The escrows accept claims from a channel's authorizer, and captures from a payment's operator.
    channel = replace(escrows.channel(PAYER, seller), authorizer=caller)
    await escrows.batch(escrows.deposit_call(channel, 9_000))
    paid = escrows.payment(seller, 8_000, operator=caller)
    gift = encode_call("transferFrom(address,address,uint256)", payer, seller, 3_000)
    signed = [world.sign("Transfer", seller, value) for value in (1_100, 1_200)]
    exact = exact_call(sign(world, "exact", 2_000))
    upto = upto_call(sign(world, "upto", 9_000, facilitator=caller), 3_000)
    claims = escrows.multicall(escrows.claim_call((channel, 4_000)), escrows.settle_call(seller))
    calls = [
        (USDC, gift),
        (USDC, signed[0].call("transfer", "vrs")),
        (USDC, gift),
        (EXACT_PROXY, exact),
        (EXACT_PROXY, exact),  # fails: the nonce is used
        (UPTO_PROXY, upto),
        (USDC, gift),
        (ESCROW_11, escrows.authorize_call(paid)),
        (ESCROW_11, escrows.capture_call(paid, 5_000, 100)),
        (USDC, gift),
        (BATCH, escrows.deposit_call(escrows.channel(PAYER, seller), 3_000)),
        (USDC, gift),
        (BATCH, claims),
        (USDC, signed[1].call("transfer", "bytes")),
        (ESCROW_11, escrows.void_call(paid)),
        (USDC, gift),
    ]
    if wrapper == "Multicall3":
        sent = await world.send(MULTICALL3, world.batch(calls), gas=6_000_000)
    else:
        sent = await world.send(world.places["EntryPoint"], world.bundle(calls), gas=6_000_000)
    assert (await world.receipt(sent))["status"] == "0x1"
    payments = [
        ("eip3009", payer, 1_100, "transferWithAuthorization"),
        ("permit2", payer, 2_000, "settle"),
        ("upto", payer, 3_000, "settle"),
        ("auth-capture", ESCROW_11, 4_900, None),
        ("batch-settlement", payer, 4_000, None),
        ("eip3009", payer, 1_200, "transferWithAuthorization"),
    ]
    rows = await index_world(world, (seller,), empty_sqlite, tmp_path)
    assert rows == [
        Row(sent, seller.lower(), other.lower(), incoming=True, value=value)
        for _, other, value, _ in payments
    ]
    gifts = 6 * 3_000
    assert await balance(world.chain, seller) == gifts + sum(value for _, _, value, _ in payments)
    for model in (None, Model.CALL_TRACE, Model.RECEIPT_LOGS):
        result = await trace(world, sent, model)
        assert [
            (one.form, one.payer, one.amount, one.method if model is None else None)
            for one in result.payments
            if one.payee == seller.lower()
        ] == [
            (form, other.lower(), value, method if model is None else None)
            for form, other, value, method in payments
        ], model


async def test_first_payment_of_an_account_that_is_deployed_with_it(
    escrows: Escrows, world: World, tmp_path: Path, empty_sqlite: Path
) -> None:
    seller, factory = world.sender(SELLER), world.places["WalletFactory"]
    owner = Account.create()
    locate = {"to": factory, "data": encode_call("locate(address)", owner.address)}
    wallet = "0x" + (await world.chain.rpc("eth_call", locate, "latest"))[-40:]
    await world.chain.mint(wallet, 10_000)
    signed = world.sign(
        "Transfer", seller, 2_500, wallet=Web3.to_checksum_address(wallet), key=owner.key
    )
    calls = [
        (USDC, signed.call("transfer", "bytes")),  # fails: the account has no code yet
        (factory, encode_call("deploy(address)", owner.address)),
        (USDC, signed.call("transfer", "bytes")),
    ]
    sent = await send_together(world, calls)
    assert await world.chain.rpc("eth_getCode", wallet, "latest") != "0x"
    rows = await index_world(world, (seller,), empty_sqlite, tmp_path)
    assert rows == [Row(sent, seller.lower(), wallet.lower(), incoming=True, value=2_500)]
    (payment,) = (await trace(world, sent)).payments
    assert (payment.form, payment.payer, payment.amount) == ("eip3009", wallet.lower(), 2_500)
