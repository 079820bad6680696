"""The payment trace for real transactions on a real chain."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.trace_world import NETWORK, Signed, World, encode_call

from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.clients.chain.rpc import Node, RpcUnavailable
from tollgauge.clients.chain.transactions import (
    NetworkNotConfiguredError,
    Transactions,
)
from tollgauge.core.chain.trace.decode import trace_files
from tollgauge.core.chain.trace.result import Model, TracedPayment, TraceStatus
from tollgauge.demo.chain import run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.web.wire.traces import trace_json

pytestmark = pytest.mark.asyncio(loop_scope="module")
_SAYS_YES = "0x631626ba7e60e01b60005260206000f3"
"""A wallet whose isValidSignature returns the EIP-1271 magic value for everything."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world() -> AsyncIterator[World]:
    async with run_chain() as chain:
        world = World(chain)
        await world.open()
        yield world


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def asks(world: World) -> AsyncIterator[Transactions]:
    transactions = Transactions({NETWORK: (Node(world.chain.rpc_url),)})
    yield transactions
    await transactions.close()


def says(payment: TracedPayment) -> tuple[object, ...]:
    """Return the fields of a payment that describe its authorization."""
    return (
        payment.method,
        payment.payer,
        payment.payee,
        payment.amount,
        payment.token.address,
        payment.nonce,
        payment.valid_after,
        payment.valid_before,
    )


def expected_fields(method: str, signed: Signed) -> tuple[object, ...]:
    return (
        f"{method}WithAuthorization",
        signed.payer.lower(),
        signed.payee.lower(),
        signed.value,
        USDC.lower(),
        "0x" + signed.nonce.hex(),
        signed.after,
        signed.before,
    )


async def transfer_index(world: World, tx_hash: str, nth: int) -> int:
    logs = [log for log in (await world.receipt(tx_hash))["logs"] if len(log["topics"]) == 3]
    transfers = [log for log in logs if log["data"] != "0x"]
    return int(transfers[nth]["logIndex"], 16)


@pytest.mark.parametrize("form", ["vrs", "bytes"])
@pytest.mark.parametrize("method", ["transfer", "receive"])
async def test_direct_call_is_decoded_from_its_call_data(
    world: World, asks: Transactions, method: str, form: str
) -> None:
    signed = world.sign(method.title(), world.sender(2), 700, after=5)
    tx_hash = await world.send(USDC, signed.call(method, form))
    trace = await asks.trace(NETWORK, tx_hash.upper().replace("0X", "0x"))
    assert [says(payment) for payment in trace.payments] == [expected_fields(method, signed)]
    assert (trace.status, trace.decoder, trace.reason) == (
        TraceStatus.SUCCESS,
        Model.CALLDATA,
        None,
    )
    assert trace.payments[0].log_index == await transfer_index(world, tx_hash, 0)
    assert trace.submitter == world.sender(2).lower()
    tx, receipt, calls = await world.capture(tx_hash)
    assert trace.block is not None
    assert trace.block.hash == receipt["blockHash"]
    # The saved objects give the same result, with or without the parts that a direct call does not
    # need.
    for parts in ((receipt, None), (None, None), (None, calls), (receipt, calls)):
        saved = trace_files(tx, parts[0], calls=parts[1])
        assert [says(payment) for payment in saved.payments] == [expected_fields(method, signed)]
        assert trace_json(saved)["token"] == {
            "address": USDC.lower(),
            "symbol": "USDC",
            "decimals": 6,
        }


async def test_data_suffix_changes_nothing(world: World, asks: Transactions) -> None:
    suffix = "a161776a6364705f666163696c31000e0280218021802180218021802180218021"
    for form in ("vrs", "bytes"):
        signed = world.sign("Transfer", world.sender(3), 9)
        tx_hash = await world.send(USDC, signed.call("transfer", form) + suffix)
        trace = await asks.trace(NETWORK, tx_hash)
        assert [says(payment) for payment in trace.payments] == [
            expected_fields("transfer", signed)
        ]
        assert trace.payments[0].suffix.hex() == suffix


async def test_batch_lists_every_executed_payment_in_order(
    world: World, asks: Transactions
) -> None:
    payee = world.sender(3)
    first = world.sign("Transfer", payee, 11)
    second = world.sign("Transfer", payee, 12)
    poor = world.sign("Transfer", payee, 10**12)
    calls = [
        (USDC, first.call("transfer", "vrs")),
        (USDC, poor.call("transfer", "bytes")),
        (USDC, first.call("transfer", "bytes")),
        (USDC, second.call("transfer", "bytes")),
    ]
    tx_hash = await world.send(world.places["Batcher"], world.batch(calls))
    trace = await asks.trace(NETWORK, tx_hash)
    assert [says(payment) for payment in trace.payments] == [
        expected_fields("transfer", first),
        expected_fields("transfer", second),
    ]
    assert trace.decoder is Model.CALLDATA
    assert trace.payments[1].log_index == await transfer_index(world, tx_hash, 1)


async def test_bundle_of_user_operations_is_decoded(world: World, asks: Transactions) -> None:
    payee = world.sender(3)
    mine = world.sign("Transfer", payee, 21)
    account = world.places["Account"]
    collected = world.sign("Receive", account, 22)
    data = world.bundle(
        [(USDC, mine.call("transfer", "bytes")), (USDC, collected.call("receive", "vrs"))]
    )
    trace = await asks.trace(NETWORK, await world.send(world.places["EntryPoint"], data))
    assert [says(payment) for payment in trace.payments] == [
        expected_fields("transfer", mine),
        expected_fields("receive", collected),
    ]
    assert trace.decoder is Model.CALLDATA


@pytest.mark.parametrize("form", ["vrs", "bytes"])
async def test_contract_that_hides_the_call_needs_the_call_trace(
    world: World, asks: Transactions, form: str
) -> None:
    collector = world.places["Collector"]
    signed = world.sign("Receive", collector, 31)
    terms = [signed.value, signed.after, signed.before]
    if form == "bytes":
        data = encode_call(
            "collect(address,uint256[3],bytes32,bytes)",
            signed.payer,
            terms,
            signed.nonce,
            signed.signature,
        )
    else:
        data = encode_call(
            "collectVrs(address,uint256[3],bytes32,uint8,bytes32,bytes32)",
            signed.payer,
            terms,
            signed.nonce,
            *signed.vrs,
        )
    tx_hash = await world.send(collector, data)
    trace = await asks.trace(NETWORK, tx_hash)
    assert [says(payment) for payment in trace.payments] == [expected_fields("receive", signed)]
    assert trace.decoder is Model.CALL_TRACE
    logs_only = await asks.trace(NETWORK, tx_hash, Model.RECEIPT_LOGS)
    assert logs_only.payments[0].method is None
    assert logs_only.payments[0].amount == 31
    assert logs_only.reason
    # The saved call trace gives the same result; without it, the logs still show the payments.
    tx, receipt, calls = await world.capture(tx_hash)
    traced = trace_files(tx, receipt, calls=calls)
    assert [says(payment) for payment in traced.payments] == [expected_fields("receive", signed)]
    assert trace_files(tx, receipt).payments[0].payer == signed.payer.lower()
    assert trace_files(tx, receipt).decoder is Model.RECEIPT_LOGS


async def test_proxy_with_the_interface_of_the_token_is_traced_through(
    world: World, asks: Transactions
) -> None:
    signed = world.sign("Transfer", world.sender(3), 41)
    tx_hash = await world.send(world.places["Forwarder"], signed.call("transfer", "bytes"))
    trace = await asks.trace(NETWORK, tx_hash)
    assert [says(payment) for payment in trace.payments] == [expected_fields("transfer", signed)]
    # With only the call data, the token follows from the signature.
    tx, _, _ = await world.capture(tx_hash)
    assert [says(payment) for payment in trace_files(tx).payments] == [
        expected_fields("transfer", signed)
    ]


async def test_signature_of_a_contract_wallet_is_decoded(world: World, asks: Transactions) -> None:
    wallet = "0x" + "a1" * 20
    await world.chain.rpc("anvil_setCode", wallet, _SAYS_YES)
    await world.chain.mint(wallet, 700)
    signed = Signed(wallet, world.sender(3), 51, b"\7" * 32, b"anything at all, at any length" * 7)
    trace = await asks.trace(NETWORK, await world.send(USDC, signed.call("transfer", "bytes")))
    assert [says(payment) for payment in trace.payments] == [expected_fields("transfer", signed)]


async def test_reverted_transaction_has_no_payments(world: World, asks: Transactions) -> None:
    signed = world.sign("Transfer", world.sender(3), 10**15)
    tx_hash = await world.send(USDC, signed.call("transfer", "vrs"))
    trace = await asks.trace(NETWORK, tx_hash)
    assert (trace.status, trace.payments) == (TraceStatus.REVERTED, ())
    assert trace.reason is not None
    assert str(10**15) in trace.reason
    tx, receipt, calls = await world.capture(tx_hash)
    assert trace_files(tx, receipt).status is TraceStatus.REVERTED
    assert trace_files(tx, None, calls=calls).status is TraceStatus.REVERTED


async def test_plain_transfer_is_not_a_payment_by_authorization(
    world: World, asks: Transactions
) -> None:
    data = encode_call("transfer(address,uint256)", world.sender(3), 0)
    trace = await asks.trace(NETWORK, await world.send(USDC, data))
    assert (trace.status, trace.payments) == (TraceStatus.SUCCESS, ())
    assert "plain ERC-20 transfer" in str(trace.reason)


async def test_calls_that_failed_inside_are_not_payments(world: World, asks: Transactions) -> None:
    poor = world.sign("Transfer", world.sender(3), 10**12)
    data = world.batch([(USDC, poor.call("transfer", "vrs"))])
    tx_hash = await world.send(world.places["Batcher"], data)
    for model in {None, *Model} - {Model.BALANCE_CHANGES}:
        trace = await asks.trace(NETWORK, tx_hash, model)
        assert (trace.status, trace.payments) == (TraceStatus.SUCCESS, ())


async def test_unknown_token_is_not_a_dollar_whatever_it_emits(
    world: World, asks: Transactions
) -> None:
    impostor = world.places["Impostor"]
    data = encode_call(
        "pretend(address,address,uint256,bytes32)",
        world.sender(1),
        world.sender(3),
        10**9,
        b"\1" * 32,
    )
    trace = await asks.trace(NETWORK, await world.send(impostor, data))
    shown = trace_json(trace)["payments"][0]
    assert shown["token"] == {"address": impostor, "symbol": "FAKE", "decimals": 4}
    assert shown["amountUsd"] is None
    assert shown["method"] is None


async def test_every_model_returns_the_same_payments(world: World, asks: Transactions) -> None:
    signed = world.sign("Transfer", world.sender(3), 61)
    tx_hash = await world.send(
        world.places["Batcher"], world.batch([(USDC, signed.call("transfer", "vrs"))])
    )
    for model in set(Model) - {Model.BALANCE_CHANGES}:
        trace = await asks.trace(NETWORK, tx_hash, model)
        assert trace.decoder is model
        [paid] = trace.payments
        assert (paid.payer, paid.payee, paid.amount) == expected_fields("transfer", signed)[1:4]
        assert paid.nonce == "0x" + signed.nonce.hex()


async def test_unknown_hash_is_not_found(asks: Transactions) -> None:
    trace = await asks.trace(NETWORK, "0x" + "ab" * 32)
    assert (trace.status, trace.payments, trace.submitter) == (TraceStatus.NOT_FOUND, (), None)


async def test_transaction_in_the_pool_is_pending_without_payments(
    world: World, asks: Transactions
) -> None:
    signed = world.sign("Transfer", world.sender(3), 71)
    call = {"from": world.sender(2), "to": USDC, "data": signed.call("transfer", "vrs")}
    await world.chain.rpc("evm_setAutomine", False)
    try:
        tx_hash = str(await world.chain.rpc("eth_sendTransaction", call | {"gas": "0x30d40"}))
        for model in {None, *Model} - {Model.BALANCE_CHANGES}:
            trace = await asks.trace(NETWORK, tx_hash, model)
            assert trace.status is TraceStatus.PENDING
            assert trace.block is None
            assert "no money had moved" in str(trace.reason)
    finally:
        await world.chain.rpc("evm_setAutomine", True)
        await world.chain.rpc("evm_mine")
    assert (await asks.trace(NETWORK, tx_hash)).status is TraceStatus.SUCCESS


async def test_finality_increases_with_the_chain(world: World, asks: Transactions) -> None:
    signed = world.sign("Transfer", world.sender(3), 81)
    tx_hash = await world.send(USDC, signed.call("transfer", "vrs"))

    async def finality() -> str | None:
        block = (await asks.trace(NETWORK, tx_hash)).block
        assert block is not None
        assert block.at is not None
        return block.finality

    seen = [await finality()]
    for _ in range(2):
        await world.chain.rpc("anvil_mine", hex(40))
        seen.append(await finality())
    assert seen == ["latest", "safe", "finalized"]


async def test_network_without_a_node_is_a_separate_error(asks: Transactions) -> None:
    assert not asks.has_node("eip155:1")
    with pytest.raises(NetworkNotConfiguredError):
        await asks.trace("eip155:1", "0x" + "ab" * 32)


async def test_node_of_another_chain_is_not_believed(world: World) -> None:
    asks = Transactions({"eip155:1": (Node(world.chain.rpc_url),)})
    with pytest.raises(RpcUnavailable, match="another chain"):
        await asks.trace("eip155:1", "0x" + "ab" * 32)
    await asks.close()


async def test_next_node_is_queried_if_the_first_is_down(world: World) -> None:
    signed = world.sign("Transfer", world.sender(3), 91)
    tx_hash = await world.send(USDC, signed.call("transfer", "vrs"))
    nodes = ("http://127.0.0.1:9", world.chain.rpc_url)
    settings = ChainSettings(network=NETWORK, nodes=nodes, timeout_s=2)
    asks = Transactions.open([settings])
    assert len((await asks.trace(NETWORK, tx_hash)).payments) == 1
    # A node that is down may have the transaction that the other one lacks.
    with pytest.raises(RpcUnavailable):
        await asks.trace(NETWORK, "0x" + "ab" * 32)
    await asks.close()
    assert "127.0.0.1" not in repr(settings)
