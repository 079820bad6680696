"""Loads one transaction from the nodes of a network and decodes its payments.

The next node is queried if a node is on the wrong chain or contradicts itself (another hash, a
receipt of an abandoned block). A transaction is unknown only if every node reports so; without a
receipt, or with a receipt whose block the node does not have yet, it is pending. A malformed reply
raises RpcUnavailable and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from tollgauge.clients.chain.authorization import NonceKey, find_transaction
from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.clients.chain.rpc import (
    Node,
    RpcCall,
    RpcError,
    RpcRefused,
    RpcReverted,
    RpcUnavailable,
    quantity,
)
from tollgauge.clients.chain.solana import trace_signature
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import (
    chain_number,
    eip3009_assets,
    evm_chain_id,
    hex_text,
    known_asset,
)
from tollgauge.core.chain.trace.calldata import (
    DECIMALS_CALL,
    SYMBOL_CALL,
    AuthorizedTransfer,
    read_decimals,
    read_symbol,
)
from tollgauge.core.chain.trace.decode import decode, not_found
from tollgauge.core.chain.trace.nesting import transfers_in
from tollgauge.core.chain.trace.result import (
    Model,
    SettlementAttempt,
    Token,
    TraceResult,
    TraceStatus,
)
from tollgauge.core.chain.trace.transaction import (
    Block,
    Receipt,
    TraceInputError,
    Transaction,
    read_receipt,
    read_transaction,
)
from tollgauge.core.chain.trace.transfers import CallTrace, read_call_trace

TOKENS_MAX: Final = 8
"""Maximum unknown tokens per transaction whose symbols are queried."""
_TRACER: Final = {"tracer": "callTracer", "timeout": "8s"}


class NetworkNotConfiguredError(TollgaugeError):
    """No node of this network is configured."""


class DecoderUnavailable(TollgaugeError):  # noqa: N818 - it names a state, not a bug
    """No node of this network supports the requested decoder."""


_WithReceipt = tuple[Transaction, Receipt | None]
"""A transaction as one node sees it; without a receipt it is pending."""
_BACKDATED_S: Final = 600
"""Clients that sign a `validAfter` above 0 set it to this time before their clock."""
_DELAY_MAX_S: Final = 3_600
SAMPLED_MAX: Final = 500
"""Maximum settlements of a block that are sampled."""


class Transactions:
    """The nodes of every configured network, by CAIP-2 ID."""

    def __init__(self, nodes: Mapping[str, Sequence[Node]] | None = None) -> None:
        configured = (nodes or {}).items()
        self._nodes: Final = {network: tuple(pools) for network, pools in configured if pools}

    @classmethod
    def open(cls, chains: Iterable[ChainSettings]) -> Transactions:
        """Create pools for the nodes of chains."""
        return cls({chain.network: chain.open() for chain in chains})

    async def close(self) -> None:
        """Close the pools."""
        await asyncio.gather(*(node.close() for pools in self._nodes.values() for node in pools))

    def has_node(self, network: str) -> bool:
        """Whether a network (CAIP-2) has a node."""
        return network in self._nodes

    async def trace(self, network: str, tx_hash: str, model: Model | None = None) -> TraceResult:
        """Return the payments of a transaction; the status is `not-found` if no node has it.

        Raises:
            NetworkNotConfiguredError: The network has no node.
            DecoderUnavailable: No node supports `model`.
            RpcError: The nodes did not give an answer.
        """
        failures: list[TollgaugeError] = []
        is_solana = (chain_number(network) or 0) < 0
        if model is not None and is_solana != (model is Model.BALANCE_CHANGES):
            raise DecoderUnavailable(
                f"The decoder {model} does not read this network.", hint="Omit the model."
            )
        tx_hash = tx_hash if is_solana else tx_hash.lower()
        for node in self._of(network):
            try:
                if is_solana:
                    result = await trace_signature(node, network, tx_hash)
                else:
                    result = await _trace(node, network, tx_hash, model)
            except (RpcError, DecoderUnavailable) as error:
                failures.append(error)
                continue
            if result is not None:
                return result
        if failures:
            raise failures[0]
        return not_found(tx_hash, network=network)

    async def find_transaction(self, network: str, payer: str, nonce: str) -> str | None:
        """Return the hash of the transaction that used or cancelled a payer's nonce.

        All known dollar tokens of the network are checked. `nonce` and the result are lower-case
        hex; None means that every node reports the nonce as unused.

        Raises:
            NetworkNotConfiguredError: The network has no node.
            RpcError: The nodes did not give an answer.
        """
        failure: RpcError | None = None
        for node in self._of(network):
            try:
                for asset in eip3009_assets(network):
                    key = NonceKey(asset.address, payer, nonce)
                    if tx_hash := await find_transaction(node, key):
                        return tx_hash
            except RpcError as error:
                failure = error
        if failure is not None:
            raise failure
        return None

    def _of(self, network: str) -> tuple[Node, ...]:
        """Return the nodes of a network. Raises NetworkNotConfiguredError."""
        if network not in self._nodes:
            raise NetworkNotConfiguredError(
                "This network has no configured RPC node.", hint="The operator can add one."
            )
        return self._nodes[network]


async def _trace(node: Node, network: str, tx_hash: str, model: Model | None) -> TraceResult | None:
    """Trace a transaction at one node; None if the node does not have it."""
    try:
        fetched = await _fetch(node, network, tx_hash)
        if fetched is None:
            return None
        tx, receipt = fetched
        without_calls = None if model is Model.CALL_TRACE else model
        result = decode(tx, receipt, network=network, model=without_calls)
        if result.status is TraceStatus.REVERTED:
            message = await _replay(node, tx, receipt)
            result = decode(tx, receipt, network=network, model=without_calls, message=message)
        if receipt is not None and (
            model is Model.CALL_TRACE or (model is None and not result.complete)
        ):
            calls = await _call_trace(node, tx_hash, named=model is not None)
            if calls is not None:
                result = decode(tx, receipt, calls, network=network, model=model)
    except TraceInputError as error:
        raise RpcUnavailable(f"A reply of {node.name} is malformed.") from error
    if model is not None and result.decoder is not model:
        result = replace(result, decoder=model)
    return await _with_tokens(node, result)


async def _fetch(node: Node, network: str, tx_hash: str) -> _WithReceipt | None:
    chain, transaction, receipt_reply, safe, final = await node.batch(
        [
            RpcCall("eth_chainId"),
            RpcCall("eth_getTransactionByHash", (tx_hash,)),
            RpcCall("eth_getTransactionReceipt", (tx_hash,)),
            RpcCall("eth_getBlockByNumber", ("safe", False)),
            RpcCall("eth_getBlockByNumber", ("finalized", False)),
        ]
    )
    for reply in (chain, transaction, receipt_reply):
        if isinstance(reply, RpcError):
            raise reply
    if quantity(chain) != evm_chain_id(network):
        raise RpcUnavailable(f"{node.name} is a node of another chain.")
    if transaction is None:
        if receipt_reply is not None:
            raise RpcUnavailable(f"{node.name} has a receipt without its transaction.")
        return None
    tx = read_transaction(transaction)
    receipt = None if receipt_reply is None else read_receipt(receipt_reply)
    if tx.hash != tx_hash or tx.data is None or tx.sender is None:
        raise RpcUnavailable(f"{node.name} returned another transaction.")
    if receipt is None:
        if not tx.pending:
            raise RpcUnavailable(f"{node.name} has no receipt of a mined transaction yet.")
        return tx, None
    return await _add_block(node, tx, receipt, safe=safe, final=final)


async def _add_block(
    node: Node, tx: Transaction, receipt: Receipt, *, safe: object, final: object
) -> _WithReceipt:
    """Add the time and finality of the transaction's block."""
    block = receipt.block
    whole = receipt.hash == tx.hash and receipt.logs is not None
    if not whole or block is None or block.hash is None:
        raise RpcUnavailable(f"A receipt of {node.name} is incomplete.")
    block_reply = await node.call("eth_getBlockByNumber", hex(block.number), False)  # noqa: FBT003 - wire
    if block_reply is None:
        return replace(tx, pending=True, block=None), None
    if not isinstance(block_reply, dict) or str(block_reply.get("hash")).lower() != block.hash:
        raise RpcUnavailable(f"{node.name} has the receipt of an abandoned block.")
    at = quantity(block_reply.get("timestamp"))
    finality = "latest"
    for name, tip in (("safe", safe), ("finalized", final)):
        with suppress(RpcUnavailable):  # a malformed number leaves the finality unchanged
            if isinstance(tip, dict) and block.number <= quantity(tip.get("number")):
                finality = name
    placed = Block(number=block.number, hash=block.hash, at=at * 1_000, finality=finality)
    return tx, replace(receipt, block=placed)


async def _replay(node: Node, tx: Transaction, receipt: Receipt | None) -> str:
    """Return the message with which a transaction reverts if it is called again on the block before
    its own; empty if the node has no state of that block any more, or gives no message.
    """
    if tx.data is None or receipt is None or receipt.block is None:
        return ""
    call = {"from": tx.sender, "to": tx.to, "data": hex_text(tx.data)}
    if tx.gas is not None:
        call["gas"] = hex(tx.gas)
    try:
        await node.call("eth_call", call, hex(receipt.block.number - 1))
    except RpcReverted as error:
        return error.text
    except RpcError:
        pass
    return ""


async def sample_block(node: Node, network: str, number: int) -> list[SettlementAttempt]:
    """Return the transactions of a block that request payments in known dollar tokens, settled or
    not.

    Raises:
        RpcError: The node did not answer, or its answer is malformed.
    """
    block = await node.call("eth_getBlockByNumber", hex(number), True)  # noqa: FBT003 - wire
    try:
        at = quantity(block["timestamp"]) * 1_000
        sent = [tx for tx in map(read_transaction, block["transactions"]) if _requests(tx, network)]
        receipts = await node.results(
            [RpcCall("eth_getTransactionReceipt", (tx.hash,)) for tx in sent[:SAMPLED_MAX]]
        )
        return [
            await _attempt(node, network, tx, read_receipt(receipt), at=at)
            for tx, receipt in zip(sent, receipts, strict=False)
        ]
    except (KeyError, TypeError, TraceInputError) as error:
        raise RpcUnavailable(f"A block of {node.name} is malformed.") from error


def _requests(tx: Transaction, network: str) -> Sequence[AuthorizedTransfer]:
    """Return the payments in known dollar tokens that a transaction requests."""
    if tx.data is None or tx.sender is None:
        return ()
    calls = transfers_in(tx.data, tx.to)
    return [call for call in calls if call.target and known_asset(network, call.target)]


async def _attempt(
    node: Node, network: str, tx: Transaction, receipt: Receipt, *, at: int
) -> SettlementAttempt:
    if receipt.block is not None:
        receipt = replace(receipt, block=replace(receipt.block, at=at))
    result = decode(tx, receipt, network=network)
    if result.status is TraceStatus.REVERTED:
        message = await _replay(node, tx, receipt)
        result = decode(tx, receipt, network=network, message=message)
    call = _requests(tx, network)[0]
    delay = at // 1_000 - call.valid_after - _BACKDATED_S
    return SettlementAttempt(
        submitter=bytes.fromhex((tx.sender or "")[2:]),
        form=call.form,
        settled=bool(result.payments),
        fault=result.fault,
        delay_s=delay if call.valid_after and 0 <= delay <= _DELAY_MAX_S else None,
    )


async def _call_trace(node: Node, tx_hash: str, *, named: bool) -> CallTrace | None:
    """Return the node's call trace; None without one, unless the caller named the decoder."""
    try:
        return read_call_trace(await node.call("debug_traceTransaction", tx_hash, _TRACER))
    except RpcRefused as error:
        if not named:
            return None
        raise DecoderUnavailable(
            "No node of this network offers call traces.",
            hint="Omit the model, or use calldata or receipt-logs.",
        ) from error
    except (RpcError, TraceInputError):
        if named:
            raise
        return None


async def _with_tokens(node: Node, trace: TraceResult) -> TraceResult:
    """Add the symbols and decimals that the contracts of unknown tokens return."""
    unknown = list(
        dict.fromkeys(
            payment.token.address for payment in trace.payments if payment.token.decimals is None
        )
    )[:TOKENS_MAX]
    if not unknown:
        return trace
    calls = [
        RpcCall("eth_call", ({"to": address, "data": data}, "latest"))
        for address in unknown
        for data in (SYMBOL_CALL, DECIMALS_CALL)
    ]
    try:
        replies: list[Any] = await node.batch(calls)
    except RpcError:
        return trace
    tokens = {
        address: Token(
            address=address,
            symbol=read_symbol(replies[2 * index]),
            decimals=read_decimals(replies[2 * index + 1]),
        )
        for index, address in enumerate(unknown)
    }
    payments = tuple(
        replace(payment, token=tokens.get(payment.token.address, payment.token))
        for payment in trace.payments
    )
    return replace(trace, payments=payments)
