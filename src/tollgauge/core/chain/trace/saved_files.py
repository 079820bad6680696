"""Trace the payments of saved JSON-RPC objects."""

from __future__ import annotations

from dataclasses import replace

from tollgauge.core.chain.trace import reason
from tollgauge.core.chain.trace.decode import decode, not_found
from tollgauge.core.chain.trace.result import (
    DEFAULT_NETWORK,
    TraceResult,
    named_model,
    named_network,
)
from tollgauge.core.chain.trace.transaction import (
    Receipt,
    TraceInputError,
    merge_receipts,
    own_receipt,
    read_receipt,
    read_transaction,
    unwrap_response,
)
from tollgauge.core.chain.trace.transfers import read_call_trace


def trace_files(
    tx: object,
    receipt: object | None = None,
    model: str | None = None,
    *,
    calls: object | None = None,
    network: str | None = None,
) -> TraceResult:
    """Return the payments of captured JSON-RPC objects, without a node.

    Args:
        tx: A transaction as a node, a client or an explorer wrote it, with or without the JSON-RPC
            envelope; null is an unknown transaction.
        receipt: Its receipt, in the same forms.
        model: Name of a decoder.
        calls: Its call trace, in the same forms.
        network: Name of a network in the catalogue. Default: the chain that the transaction names,
            otherwise the default network, which the reason then states.

    Raises:
        TraceInputError: An object is malformed, or the transaction is on another network.
    """
    tx, receipt, calls = unwrap_response(tx), unwrap_response(receipt), unwrap_response(calls)
    fallback = named_network(network or DEFAULT_NETWORK)
    if tx is None:
        return not_found(None, network=fallback)
    transaction = read_transaction(tx)
    result = decode(
        transaction,
        _receipt(tx, receipt),
        None if calls is None else read_call_trace(calls),
        network=fallback if transaction.chain_id is None else f"eip155:{transaction.chain_id}",
        model=None if model is None else named_model(model),
    )
    if network is not None and result.network != fallback:
        raise TraceInputError(f"The transaction is not on {network}: it names another chain.")
    if network is None and transaction.chain_id is None:
        reasons = (result.reason, reason.NO_CHAIN.format(name=DEFAULT_NETWORK))
        result = replace(result, reason=" ".join(filter(None, reasons)))
    return result


def _receipt(tx: object, receipt: object | None) -> Receipt | None:
    """Return the outcome from the receipt and from the transaction's own fields, which some
    explorers add.
    """
    own = own_receipt(tx)
    if receipt is None:
        return own
    given = read_receipt(receipt)
    return given if own is None else merge_receipts(given, own)
