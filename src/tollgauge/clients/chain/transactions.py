"""Transactions: asks the nodes of a network for one transaction, and has it decoded.

What is true here:
- a node on another chain than its configuration says is not believed; neither is one whose parts
  disagree (another hash, a receipt of an abandoned block): the next node is asked;
- "unknown" is believed only where every node of the network answered so;
- a transaction without a receipt, or with one of a block that its node does not hold yet, is
  pending; finality comes from the node's `safe` and `finalized` blocks;
- the call trace is asked for only where it is needed, as few nodes offer it; without it the
  payments come from the logs, unless the caller named it;
- a malformed reply is RpcUnavailable and never anything else.

What the parts mean is core/chain/trace's work; what a caller sees of an error, the web's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic.dataclasses import dataclass as pydantic_dataclass

from tollgauge.clients.chain.authorization import transaction_of
from tollgauge.clients.chain.rpc import (
    Node,
    RpcCall,
    RpcError,
    RpcRefused,
    RpcSettings,
    RpcUnavailable,
    quantity,
)
from tollgauge.clients.peer import WebUrl
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import eip3009_assets, evm_chain_id
from tollgauge.core.chain.trace.calldata import (
    DECIMALS_CALL,
    SYMBOL_CALL,
    read_decimals,
    read_symbol,
)
from tollgauge.core.chain.trace.decode import decode, not_found
from tollgauge.core.chain.trace.result import NETWORKS, Model, Token, TraceResult
from tollgauge.core.chain.trace.transaction import (
    Block,
    Receipt,
    TraceInputError,
    Transaction,
    read_receipt,
    read_transaction,
)
from tollgauge.core.chain.trace.transfers import CallTrace, read_call_trace

REPLY_MAX: Final = 16 << 20
TOKENS_MAX: Final = 8
"""How many unknown tokens of one transaction are asked for their names."""
_TRACER: Final = {"tracer": "callTracer", "timeout": "8s"}


class NetworkNotConfiguredError(TollgaugeError):
    """The operator named no node of this network."""


class DecoderUnavailable(TollgaugeError):  # noqa: N818 - it names a state, not a bug
    """No node of this network can do what the named decoder needs."""


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """The nodes by network (their URLs may carry keys: never shown), the preferred one first. A
    network without a node cannot be traced.
    """

    base_mainnet: tuple[WebUrl, ...] = field(default=(), repr=False)
    """Nodes of Base. Default: those of [rpc], if payments are received on Base."""
    ethereum_mainnet: tuple[WebUrl, ...] = field(default=(), repr=False)
    """Nodes of Ethereum."""
    arbitrum_mainnet: tuple[WebUrl, ...] = field(default=(), repr=False)
    """Nodes of Arbitrum One."""
    optimism_mainnet: tuple[WebUrl, ...] = field(default=(), repr=False)
    """Nodes of OP Mainnet."""
    polygon_mainnet: tuple[WebUrl, ...] = field(default=(), repr=False)
    """Nodes of Polygon."""

    def nodes(self, rpc: RpcSettings, *, sold_on: str) -> dict[str, tuple[Node, ...]]:
        """A pool to every node, by CAIP-2 id; those of `rpc` stand in for a network that names
        none, where it is the one that is `sold_on`.
        """
        nodes = {}
        for name, network in NETWORKS.items():
            stand_in = rpc.url if network == sold_on else ()
            if urls := getattr(self, name.replace("-", "_")) or stand_in:
                nodes[network] = tuple(
                    Node(url, timeout_s=rpc.timeout_s, reply_max=REPLY_MAX) for url in urls
                )
        return nodes


_WithReceipt = tuple[Transaction, Receipt | None]
"""A transaction as one node has it; without a receipt it is pending."""


class Transactions:
    """The nodes of every configured network, by CAIP-2 id."""

    def __init__(self, nodes: Mapping[str, Sequence[Node]] | None = None) -> None:
        configured = (nodes or {}).items()
        self._nodes: Final = {network: tuple(pools) for network, pools in configured if pools}

    async def close(self) -> None:
        """Close the pools."""
        await asyncio.gather(*(node.close() for pools in self._nodes.values() for node in pools))

    def configured(self, network: str) -> bool:
        """Whether a network (CAIP-2) has a node."""
        return network in self._nodes

    async def trace(self, network: str, tx_hash: str, model: Model | None = None) -> TraceResult:
        """The payments of a transaction; status `not-found` where no node knows it.

        Raises NetworkNotConfiguredError, DecoderUnavailable where no node offers what `model`
        needs, and RpcError where the nodes cannot tell.
        """
        failures: list[TollgaugeError] = []
        for node in self._of(network):
            try:
                result = await _trace(node, network, tx_hash.lower(), model)
            except (RpcError, DecoderUnavailable) as error:
                failures.append(error)
                continue
            if result is not None:
                return result
        if failures:
            raise failures[0]
        return not_found(tx_hash.lower(), network=network)

    async def transaction_of(self, network: str, payer: str, nonce: str) -> str | None:
        """The hash of the transaction that used or cancelled a nonce of a payer (hex in lower case)
        for any dollar token that we know of the network; None while none did, as every node says.

        Raises NetworkNotConfiguredError, and RpcError where the nodes cannot tell.
        """
        failure: RpcError | None = None
        for node in self._of(network):
            try:
                for asset in eip3009_assets(network):
                    key = _Nonce(asset=asset.address, payer=payer, nonce=nonce)
                    if tx_hash := await transaction_of(node, key):
                        return tx_hash
            except RpcError as error:
                failure = error
        if failure is not None:
            raise failure
        return None

    def _of(self, network: str) -> tuple[Node, ...]:
        """The nodes of a network. Raises NetworkNotConfiguredError."""
        if network not in self._nodes:
            raise NetworkNotConfiguredError(
                "This network has no configured RPC node.", hint="The operator can name one."
            )
        return self._nodes[network]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nonce:
    """One authorization, as the chain is asked about it."""

    asset: str
    payer: str
    nonce: str


async def _trace(node: Node, network: str, tx_hash: str, model: Model | None) -> TraceResult | None:
    """What one node knows of a transaction; None when it does not know it."""
    try:
        fetched = await _fetch(node, network, tx_hash)
        if fetched is None:
            return None
        tx, receipt = fetched
        without_calls = None if model is Model.CALL_TRACE else model
        result = decode(tx, receipt, network=network, model=without_calls)
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
        raise RpcUnavailable(f"{node.name} answered with another transaction.")
    if receipt is None:
        if not tx.pending:
            raise RpcUnavailable(f"{node.name} has no receipt of a mined transaction yet.")
        return tx, None
    return await _placed(node, tx, receipt, safe=safe, final=final)


async def _placed(
    node: Node, tx: Transaction, receipt: Receipt, *, safe: object, final: object
) -> _WithReceipt:
    """The transaction in its block, with the block's time and finality."""
    block = receipt.block
    whole = receipt.hash == tx.hash and receipt.logs is not None
    if not whole or block is None or block.hash is None:
        raise RpcUnavailable(f"A receipt of {node.name} is not whole.")
    block_reply = await node.call("eth_getBlockByNumber", hex(block.number), False)  # noqa: FBT003 - wire
    if block_reply is None:
        return replace(tx, pending=True, block=None), None
    if not isinstance(block_reply, dict) or str(block_reply.get("hash")).lower() != block.hash:
        raise RpcUnavailable(f"{node.name} has the receipt of an abandoned block.")
    at = quantity(block_reply.get("timestamp"))
    finality = "latest"
    for name, tip in (("safe", safe), ("finalized", final)):
        with suppress(RpcUnavailable):  # a malformed number leaves the finality as it is
            if isinstance(tip, dict) and block.number <= quantity(tip.get("number")):
                finality = name
    placed = Block(number=block.number, hash=block.hash, at=at * 1_000, finality=finality)
    return tx, replace(receipt, block=placed)


async def _call_trace(node: Node, tx_hash: str, *, named: bool) -> CallTrace | None:
    """The node's call trace. None where it has none, unless the caller named the decoder."""
    try:
        return read_call_trace(await node.call("debug_traceTransaction", tx_hash, _TRACER))
    except RpcRefused as error:
        if not named:
            return None
        raise DecoderUnavailable(
            "No node of this network offers call traces.",
            hint="Leave out the model, or take calldata or receipt-logs.",
        ) from error
    except (RpcError, TraceInputError):
        if named:
            raise
        return None


async def _with_tokens(node: Node, trace: TraceResult) -> TraceResult:
    """A trace with the symbols and decimals that the contracts of unknown tokens return."""
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
