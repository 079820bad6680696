"""The payments in a transaction, from its receipt and its calls.

Rules (EIP-3009):
- if there are logs, only they show the payments; calls only add the method and the validity period
  (for the decoder of logs only the method, which logs lack). A call matches a log pair if payer and
  nonce agree and it names the same token or moves the same amount to the same payee (a proxy in
  front of the token);
- a reverted transaction has no payments;
- without logs, the payments are those that the call data requests, and the reason states that it is
  unknown whether money moved;
- only the receipt proves `success` (or its logs, because a reverted transaction has none): a call
  trace may be of a transaction that was never mined. A failed one moved nothing in any case;
- bytes that only look like a call (`transfers_anywhere`) count if a log pair or the payer's
  signature proves them, and only if there is no better source;
- contradicting calls prove nothing, unless the payer's signature matches one of them.

No bytes raise here; TraceInputError is raised for parts of different transactions, and for a model
without its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tollgauge.core.base.units import known_asset
from tollgauge.core.chain.trace import reason
from tollgauge.core.chain.trace.calldata import AuthorizedTransfer
from tollgauge.core.chain.trace.nesting import transfers_anywhere, transfers_in
from tollgauge.core.chain.trace.result import (
    DEFAULT_NETWORK,
    Model,
    Token,
    TracedPayment,
    TraceResult,
    TraceStatus,
    named_model,
    named_network,
)
from tollgauge.core.chain.trace.transaction import (
    Receipt,
    TraceInputError,
    Transaction,
    merge_receipts,
    own_receipt,
    read_receipt,
    read_transaction,
    unwrap_response,
)
from tollgauge.core.chain.trace.transfers import (
    CallTrace,
    asset_signed_for,
    logged_transfers,
    read_call_trace,
)
from tollgauge.core.endpoint.terms import EIP3009

ASKED_MAX: Final = 1_024
"""Maximum number of calls without logs that are read: more than fit into a block."""


def decode(
    tx: Transaction,
    receipt: Receipt | None,
    trace: CallTrace | None = None,
    *,
    network: str,
    model: Model | None = None,
    message: str = "",
) -> TraceResult:
    """Return the payments of a transaction on a network (CAIP-2).

    `message` is the one with which a reverted transaction reverts when it is called again.

    Without `model`, the cheapest decoder with its input is used. Raises TraceInputError if a named
    model lacks its input, or if the receipt belongs to another transaction.
    """
    _check(tx, receipt, trace, model)
    result = TraceResult(
        tx_hash=tx.hash or (receipt.hash if receipt else None),
        network=network,
        status=_find_status(tx, receipt, trace),
        block=(receipt.block if receipt else None) or tx.block,
        submitter=tx.sender or (receipt.sender if receipt else None),
    )
    if result.status is TraceStatus.REVERTED:
        result = _explain_revert(result, tx, trace, message)
    elif receipt and receipt.logs is not None and _is_conclusive(receipt, network):
        result = _read_logs(result, tx, receipt, trace, model=model)
    else:
        result = _read_calls(result, tx, receipt, trace, model=model)
    return result if model is None else replace(result, decoder=model)


def not_found(tx_hash: str | None, *, network: str) -> TraceResult:
    """Return the result for a transaction that the chain does not contain."""
    return TraceResult(
        tx_hash=tx_hash, network=network, status=TraceStatus.NOT_FOUND, reason=reason.NOT_FOUND
    )


def _is_conclusive(receipt: Receipt, network: str) -> bool:
    """Return whether logs decide: complete ones always, others if they contain a payment."""
    return receipt.whole or bool(logged_transfers(receipt.logs or (), network=network))


def _explain_revert(
    result: TraceResult, tx: Transaction, trace: CallTrace | None, message: str
) -> TraceResult:
    calls = _list_calls(tx, trace)
    at = None if result.block is None else result.block.at
    fault, cause = reason.find_cause(calls, message, at=at)
    texts = filter(None, (reason.explain_revert(tx, calls), cause))
    return replace(result, reason=" ".join(texts), fault=fault)


def _check(
    tx: Transaction, receipt: Receipt | None, trace: CallTrace | None, model: Model | None
) -> None:
    """Raise TraceInputError as described at `decode`."""
    if receipt and tx.hash and receipt.hash and tx.hash != receipt.hash:
        raise TraceInputError("The receipt belongs to another transaction.")
    logs = receipt.logs or () if receipt else ()
    hashes = {log.tx_hash for log in logs} | {tx.hash, receipt.hash if receipt else None}
    if len(hashes - {None}) > 1:
        raise TraceInputError("A log belongs to another transaction.")
    if model is Model.BALANCE_CHANGES:
        raise TraceInputError("The decoder balance-changes only reads transactions of Solana.")
    if tx.pending:
        return
    if model is Model.RECEIPT_LOGS and (receipt is None or receipt.logs is None):
        raise TraceInputError("The decoder receipt-logs needs a receipt with its logs.")
    if model is Model.CALL_TRACE and trace is None:
        raise TraceInputError("The decoder call-trace needs a call trace.")


def _find_status(tx: Transaction, receipt: Receipt | None, trace: CallTrace | None) -> TraceStatus:
    if receipt is not None and receipt.ok is not None:
        return TraceStatus.SUCCESS if receipt.ok else TraceStatus.REVERTED
    if trace is not None and not trace.ok:
        return TraceStatus.REVERTED
    if receipt is not None and receipt.logs:
        # Before EIP-658 receipts had no status, but a reverted transaction has no logs.
        return TraceStatus.SUCCESS
    return TraceStatus.PENDING if tx.pending and receipt is None else TraceStatus.UNKNOWN


def _list_calls(tx: Transaction, trace: CallTrace | None) -> tuple[AuthorizedTransfer, ...]:
    """Return the calls that are read without guessing: the node's, otherwise those of the call
    data.
    """
    if trace is not None:
        return trace.calls
    return transfers_in(tx.data, tx.to) if tx.data is not None else ()


def _read_logs(
    result: TraceResult,
    tx: Transaction,
    receipt: Receipt,
    trace: CallTrace | None,
    *,
    model: Model | None,
) -> TraceResult:
    """Return the payments that logs prove, with details from the calls."""
    logs = receipt.logs or ()
    transfers = logged_transfers(logs, tx.data or b"", network=result.network)
    if not transfers:
        calls = () if model is Model.RECEIPT_LOGS else _list_calls(tx, trace)
        return replace(result, reason=reason.explain_no_payment(tx, logs, calls))
    matches = _match_calls(transfers, _list_sources(tx, None, transfers), result.network)
    used = Model.CALLDATA if any(matches) else Model.RECEIPT_LOGS
    if trace is not None and (model is Model.CALL_TRACE or not all(matches)):
        matches = _match_calls(transfers, _list_sources(tx, trace, transfers), result.network)
        used = Model.CALL_TRACE
    payments = tuple(
        transfer if call is None else replace(transfer, nonce=call.nonce, **_list_details(call))
        for transfer, call in zip(transfers, matches, strict=True)
    )
    if model is Model.RECEIPT_LOGS:
        payments = tuple(
            replace(payment, valid_after=None, valid_before=None) for payment in payments
        )
    why = _explain_limits(tx, receipt, methods_known=all(matches))
    return replace(result, decoder=used, payments=payments, reason=why, proven=True)


def _explain_limits(tx: Transaction, receipt: Receipt, *, methods_known: bool) -> str | None:
    """Return the limits of payments from logs; None if there are none."""
    reasons = [] if methods_known else [reason.LOGS_ONLY]
    if not methods_known and reason.is_cut(tx):
        reasons.append(reason.INCOMPLETE)
    if not receipt.whole:
        reasons.append(reason.MORE_LOGS)
    return " ".join(reasons) or None


def _list_sources(
    tx: Transaction, trace: CallTrace | None, transfers: Sequence[TracedPayment]
) -> Iterator[Sequence[AuthorizedTransfer]]:
    """Yield the calls of each source, the best source first."""
    if trace is not None:
        yield trace.calls
    if tx.data is not None:
        calls = transfers_in(tx.data, tx.to)
        yield calls
        authorized = {(one.payer, one.nonce) for one in transfers if one.form == EIP3009}
        if not authorized <= {call.key for call in calls}:
            yield transfers_anywhere(tx.data)


def _match_calls(
    transfers: Sequence[TracedPayment],
    sources: Iterable[Sequence[AuthorizedTransfer]],
    network: str,
) -> list[AuthorizedTransfer | None]:
    """Return the call behind each transfer, or None."""
    matches: list[AuthorizedTransfer | None] = [None] * len(transfers)
    for source in sources:
        by_key: dict[tuple[str, str | None], list[AuthorizedTransfer]] = {}
        for call in source:
            # A proxy's event does not contain the nonce: its calls are matched by their terms.
            key = call.key if call.form == EIP3009 else (call.payer, None)
            by_key.setdefault(key, []).append(call)
        for index, transfer in enumerate(transfers):
            calls = by_key.get((transfer.payer, transfer.nonce), ())
            makers = [call for call in calls if _makes(call, transfer)]
            matches[index] = matches[index] or _select_call(makers, transfer, network)
    return matches


def _makes(call: AuthorizedTransfer, transfer: TracedPayment) -> bool:
    """Return whether a call with a transfer's payer and nonce may have made the transfer."""
    same_payment = (call.payee, call.value) == (transfer.payee, transfer.amount)
    same_token = call.target == transfer.token.address
    if call.form == EIP3009:
        return same_payment or same_token
    return same_payment and same_token and call.form == transfer.form


def _select_call(
    calls: Sequence[AuthorizedTransfer], transfer: TracedPayment, network: str
) -> AuthorizedTransfer | None:
    """Return the call if all calls agree on its terms, or if the payer signed it; None
    otherwise.
    """
    if len({_list_terms(call) for call in calls}) > 1:
        asset = known_asset(network, transfer.token.address)
        calls = [call for call in calls if asset and asset_signed_for(call, network) == asset]
    return calls[0] if len({_list_terms(call) for call in calls}) == 1 else None


def _list_terms(call: AuthorizedTransfer) -> tuple[object, ...]:
    return call.method, call.payee, call.value, call.valid_after, call.valid_before, call.nonce


def _list_details(call: AuthorizedTransfer) -> dict[str, Any]:
    """Return the fields of a payment that only its call shows."""
    names = ("method", "valid_after", "valid_before", "suffix")
    return {name: getattr(call, name) for name in names}


def _read_calls(
    result: TraceResult,
    tx: Transaction,
    receipt: Receipt | None,
    trace: CallTrace | None,
    *,
    model: Model | None,
) -> TraceResult:
    """Return the payments that the calls request, without logs to prove them."""
    used = Model.CALLDATA if trace is None or model is Model.CALLDATA else Model.CALL_TRACE
    calls = _list_calls(tx, trace if used is Model.CALL_TRACE else None)
    payments = tuple(
        _requested_payment(call, token, result.network)
        for call in calls[:ASKED_MAX]
        if (token := _find_token(call, result.network)) is not None
    )
    if not payments and tx.data is not None and trace is None:
        payments = tuple(_guess_payments(tx.data, result.network))
    pending = result.status is TraceStatus.PENDING
    reasons = [reason.PENDING if pending else reason.explain_missing_logs(receipt)]
    if not payments:
        reasons.insert(0, reason.explain_request(tx, calls))
    else:
        reasons += [reason.ASKED, *([reason.INCOMPLETE] if reason.is_cut(tx) else [])]
    return replace(result, decoder=used, payments=payments, reason=" ".join(reasons))


def _find_token(call: AuthorizedTransfer, network: str) -> str | None:
    """Return the token that a call moves: a known asset that it calls or that its payer signed for,
    otherwise the called contract.
    """
    if call.target is not None and known_asset(network, call.target) is not None:
        return call.target
    asset = asset_signed_for(call, network)
    return asset.address if asset is not None else call.target


def _guess_payments(data: bytes, network: str) -> Iterator[TracedPayment]:
    """Yield payments from bytes that only look like calls, if the payer signed exactly that."""
    keys = set()
    for call in transfers_anywhere(data)[:ASKED_MAX]:
        asset = asset_signed_for(call, network)
        if asset is not None and call.key not in keys:
            keys.add(call.key)
            yield _requested_payment(call, asset.address, network)


def _requested_payment(call: AuthorizedTransfer, token: str, network: str) -> TracedPayment:
    return TracedPayment(
        payer=call.payer,
        payee=call.payee,
        amount=call.value,
        token=Token.on(network, token),
        nonce=call.nonce,
        form=call.form,
        **_list_details(call),
    )


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
        _read_receipts(tx, receipt),
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


def _read_receipts(tx: object, receipt: object | None) -> Receipt | None:
    """Return the outcome from the receipt and from the transaction's own fields, which some
    explorers add.
    """
    own = own_receipt(tx)
    if receipt is None:
        return own
    given = read_receipt(receipt)
    return given if own is None else merge_receipts(given, own)
