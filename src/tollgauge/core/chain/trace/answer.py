"""Traces as the JSON of the paid route, and traces of saved files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tollgauge.core.base.units import LAST_SECOND, SECOND_MS, iso_seconds
from tollgauge.core.chain.trace import reason
from tollgauge.core.chain.trace.decode import decode, not_found
from tollgauge.core.chain.trace.result import (
    DEFAULT_NETWORK,
    TracedPayment,
    TraceResult,
    named_model,
    named_network,
    network_name,
)
from tollgauge.core.chain.trace.transaction import (
    Block,
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


def trace_json(
    result: TraceResult,
    *,
    ledger: Mapping[str, Any] | None = None,
    hint: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a trace as the paid route's JSON object.

    `ledger` is null without a ledger; `hint` and `reason` are omitted if they are None.
    """
    payments = [_payment(payment, result.network) for payment in result.payments]
    first = payments[0] if payments else {}
    document = {
        "txHash": result.tx_hash,
        "network": network_name(result.network),
        "chainId": result.chain_id,
        "status": result.status,
        "block": None if result.block is None else _block(result.block),
        "submitter": result.submitter,
        "decoder": result.decoder,
        "payments": payments,
        "payer": first.get("payer"),
        "payee": first.get("payee"),
        "amount": first.get("amount"),
        "token": first.get("token"),
        "ledger": ledger,
    }
    optional = {"reason": result.reason, "hint": hint}
    return document | {key: value for key, value in optional.items() if value is not None}


def _block(block: Block) -> dict[str, Any]:
    return {
        "number": block.number,
        "hash": block.hash,
        "timestamp": _iso(block.at),
        "finality": block.finality,
    }


def _payment(payment: TracedPayment, network: str) -> dict[str, Any]:
    micro = payment.micro_usd(network)
    return {
        "form": payment.form,
        "method": payment.method,
        "payer": payment.payer,
        "payee": payment.payee,
        "amount": str(payment.amount),
        "amountUsd": None if micro is None else micro / 10**6,
        "token": asdict(payment.token),
        "authorization": payment.nonce
        and {
            "nonce": payment.nonce,
            "validAfter": _text(payment.valid_after),
            "validBefore": _text(payment.valid_before),
        },
        "logIndex": payment.log_index,
    }


def _text(number: int | None) -> str | None:
    """Return a uint256 as a decimal string, as in x402, because JSON numbers are too small."""
    return None if number is None else str(number)


def _iso(at: int | None) -> str | None:
    """Return a time (ms UTC) in whole seconds; None if ISO 8601 cannot express it."""
    return None if at is None or at // SECOND_MS > LAST_SECOND else iso_seconds(at)
