"""Payment traces of Solana signatures. The transactions ran in litesvm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from solders.keypair import Keypair
from tests.support.solana_node import SolanaNode

from tollgauge.clients.chain.rpc import Node, RpcError
from tollgauge.clients.chain.transactions import DecoderUnavailable, Transactions
from tollgauge.core.chain.trace.result import Model, TraceStatus
from tollgauge.demo.solana_ledger import DEVNET, SolanaLedger

FACILITATOR, PAYER, SELLER = (Keypair.from_seed(bytes([number]) * 32) for number in range(1, 4))


@pytest.fixture
def ledger() -> SolanaLedger:
    ledger = SolanaLedger()
    for owner in (PAYER, SELLER):
        ledger.fund(owner.pubkey(), 1_000_000)
    return ledger


@pytest.fixture
async def node(ledger: SolanaLedger) -> AsyncIterator[tuple[SolanaNode, Transactions]]:
    node = SolanaNode(chain=ledger)
    transactions = Transactions({DEVNET: [Node("http://node.example", transport=node)]})
    yield node, transactions
    await transactions.close()


def pay(ledger: SolanaLedger, amount: int) -> str:
    return ledger.pay(PAYER, SELLER.pubkey(), amount, fee_payer=FACILITATOR, memo=b"1")


async def test_payment_is_traced_with_its_fee_payer(
    ledger: SolanaLedger, node: tuple[SolanaNode, Transactions]
) -> None:
    signature = pay(ledger, 700)
    result = await node[1].trace(DEVNET, signature)
    (payment,) = result.payments
    assert (payment.payer, payment.payee, payment.amount) == (
        str(PAYER.pubkey()),
        str(SELLER.pubkey()),
        700,
    )
    assert payment.token.symbol is not None
    assert (result.tx_hash, result.status) == (signature, TraceStatus.SUCCESS)
    assert (result.submitter, result.chain_id) == (str(FACILITATOR.pubkey()), None)
    assert result.block is not None
    assert (result.block.number, result.block.finality) == (ledger.slot, "finalized")


async def test_failed_transaction_has_no_payment(
    ledger: SolanaLedger, node: tuple[SolanaNode, Transactions]
) -> None:
    result = await node[1].trace(DEVNET, pay(ledger, 2_000_000))
    assert (result.status, result.payments) == (TraceStatus.REVERTED, ())
    assert result.reason


async def test_unknown_signature_is_not_found(node: tuple[SolanaNode, Transactions]) -> None:
    assert (await node[1].trace(DEVNET, "5" * 88)).status is TraceStatus.NOT_FOUND


@pytest.mark.parametrize("method", ["getTransaction", "getGenesisHash"])
@pytest.mark.parametrize("value", [[], {}, 7, "x", {"meta": None}])
async def test_malformed_reply_of_a_node_is_an_error_of_the_node(
    ledger: SolanaLedger, node: tuple[SolanaNode, Transactions], method: str, value: Any
) -> None:
    node[0].change = lambda named, params, result: value if named == method else result
    with pytest.raises(RpcError):
        await node[1].trace(DEVNET, pay(ledger, 700))


async def test_transaction_with_another_signature_is_refused(
    ledger: SolanaLedger, node: tuple[SolanaNode, Transactions]
) -> None:
    other, signature = pay(ledger, 600), pay(ledger, 700)
    forged = ledger.by_signature[other]
    node[0].change = lambda named, params, result: forged if named == "getTransaction" else result
    with pytest.raises(RpcError):
        await node[1].trace(DEVNET, signature)


async def test_decoders_of_other_chains_are_refused(
    node: tuple[SolanaNode, Transactions],
) -> None:
    with pytest.raises(DecoderUnavailable):
        await node[1].trace(DEVNET, "5" * 88, Model.CALLDATA)
