"""Decode: the payments in a transaction, its receipt and its calls.

Rules (EIP-3009):
- where there are logs, they alone say what was paid; calls only add the method and the validity
  (to the logs' own decoder the method alone, as no log names it), and a call counts for a log
  pair when payer and nonce agree and it names the same token or moves the same amount to the same
  payee (a proxy in front of the token);
- a reverted transaction has no payments;
- without logs, the payments are what the call data asks for, and the reason says that it is not
  known whether anything moved;
- the receipt alone says `success` (or its logs, as a transaction that reverted has none): a call
  trace may be of a transaction that was never mined. One that failed moved nothing either way;
- bytes that only look like a call (`transfers_anywhere`) count where a log pair or the payer's
  signature proves them, and only where there is no better source;
- calls that contradict each other prove nothing, unless the payer's signature is of one of them.

No bytes raise here; TraceInputError is for parts of different transactions, and for a model that
lacks its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tollgauge.core.base.units import known_asset
from tollgauge.core.chain.trace import reason
from tollgauge.core.chain.trace.calldata import AuthorizedTransfer
from tollgauge.core.chain.trace.nesting import transfers_anywhere, transfers_in
from tollgauge.core.chain.trace.result import Model, Token, TracedPayment, TraceResult, TraceStatus
from tollgauge.core.chain.trace.transaction import Receipt, TraceInputError, Transaction
from tollgauge.core.chain.trace.transfers import (
    CallTrace,
    LoggedTransfer,
    asset_signed_for,
    logged_transfers,
)

ASKED_MAX: Final = 1_024
"""The most calls without logs that are read: more than fit a block."""


def decode(
    tx: Transaction,
    receipt: Receipt | None,
    trace: CallTrace | None = None,
    *,
    network: str,
    model: Model | None = None,
) -> TraceResult:
    """The payments of a transaction on a network (CAIP-2).

    `model` None takes the cheapest decoder whose input is there. Raises TraceInputError where a
    named model lacks its input, or the receipt belongs to another transaction.
    """
    _check(tx, receipt, trace, model)
    result = TraceResult(
        tx_hash=tx.hash or (receipt.hash if receipt else None),
        network=network,
        status=_status(tx, receipt, trace),
        block=(receipt.block if receipt else None) or tx.block,
        submitter=tx.sender or (receipt.sender if receipt else None),
    )
    if result.status is TraceStatus.REVERTED:
        result = replace(result, reason=reason.reverted(tx, _calls(tx, trace)))
    elif receipt and receipt.logs is not None and (receipt.whole or logged_transfers(receipt.logs)):
        # a whole list of logs shows what moved, a part of one only where it holds a payment
        result = _from_logs(result, tx, receipt, trace, model=model)
    else:
        result = _from_calls(result, tx, receipt, trace, model=model)
    return result if model is None else replace(result, decoder=model)


def not_found(tx_hash: str | None, *, network: str) -> TraceResult:
    """The result for a transaction that the chain does not know."""
    return TraceResult(
        tx_hash=tx_hash, network=network, status=TraceStatus.NOT_FOUND, reason=reason.NOT_FOUND
    )


def _check(
    tx: Transaction, receipt: Receipt | None, trace: CallTrace | None, model: Model | None
) -> None:
    """Raises TraceInputError as `decode` says."""
    if receipt and tx.hash and receipt.hash and tx.hash != receipt.hash:
        raise TraceInputError("The receipt is that of another transaction.")
    logs = receipt.logs or () if receipt else ()
    hashes = {log.tx_hash for log in logs} | {tx.hash, receipt.hash if receipt else None}
    if len(hashes - {None}) > 1:
        raise TraceInputError("A log is that of another transaction.")
    if tx.pending:
        return
    if model is Model.RECEIPT_LOGS and (receipt is None or receipt.logs is None):
        raise TraceInputError("The decoder receipt-logs needs a receipt with its logs.")
    if model is Model.CALL_TRACE and trace is None:
        raise TraceInputError("The decoder call-trace needs a call trace.")


def _status(tx: Transaction, receipt: Receipt | None, trace: CallTrace | None) -> TraceStatus:
    if receipt is not None and receipt.ok is not None:
        return TraceStatus.SUCCESS if receipt.ok else TraceStatus.REVERTED
    if trace is not None and not trace.ok:
        return TraceStatus.REVERTED
    if receipt is not None and receipt.logs:
        return TraceStatus.SUCCESS  # before status existed (EIP-658): a reverted one has no logs
    return TraceStatus.PENDING if tx.pending and receipt is None else TraceStatus.UNKNOWN


def _calls(tx: Transaction, trace: CallTrace | None) -> tuple[AuthorizedTransfer, ...]:
    """The calls that are read without guessing: the node's, else those of the call data."""
    if trace is not None:
        return trace.calls
    return transfers_in(tx.data, tx.to) if tx.data is not None else ()


def _from_logs(
    result: TraceResult,
    tx: Transaction,
    receipt: Receipt,
    trace: CallTrace | None,
    *,
    model: Model | None,
) -> TraceResult:
    """What the logs prove, and what the calls tell of it."""
    logs = receipt.logs or ()
    transfers = logged_transfers(logs)
    if not transfers:
        calls = () if model is Model.RECEIPT_LOGS else _calls(tx, trace)
        return replace(result, reason=reason.nothing_moved(tx, logs, calls))
    matches = _matches(transfers, _sources(tx, None, transfers), result.network)
    used = Model.CALLDATA if any(matches) else Model.RECEIPT_LOGS
    if trace is not None and (model is Model.CALL_TRACE or not all(matches)):
        matches = _matches(transfers, _sources(tx, trace, transfers), result.network)
        used = Model.CALL_TRACE
    payments = tuple(
        _proven(transfer, call, result.network)
        for transfer, call in zip(transfers, matches, strict=True)
    )
    if model is Model.RECEIPT_LOGS:
        payments = tuple(
            replace(payment, valid_after=None, valid_before=None) for payment in payments
        )
    why = _open_questions(tx, receipt, methods_known=all(matches))
    return replace(result, decoder=used, payments=payments, reason=why, proven=True)


def _open_questions(tx: Transaction, receipt: Receipt, *, methods_known: bool) -> str | None:
    """What the payments of logs rest on, None where nothing is open."""
    reasons = [] if methods_known else [reason.LOGS_ONLY]
    if not methods_known and reason.is_cut(tx):
        reasons.append(reason.INCOMPLETE)
    if not receipt.whole:
        reasons.append(reason.MORE_LOGS)
    return " ".join(reasons) or None


def _sources(
    tx: Transaction, trace: CallTrace | None, transfers: Sequence[LoggedTransfer]
) -> Iterator[Sequence[AuthorizedTransfer]]:
    """The calls of each source, the best source first."""
    if trace is not None:
        yield trace.calls
    if tx.data is not None:
        calls = transfers_in(tx.data, tx.to)
        yield calls
        if not {(transfer.payer, transfer.nonce) for transfer in transfers} <= {
            call.key for call in calls
        }:
            yield transfers_anywhere(tx.data)


def _matches(
    transfers: Sequence[LoggedTransfer],
    sources: Iterable[Sequence[AuthorizedTransfer]],
    network: str,
) -> list[AuthorizedTransfer | None]:
    """The call behind each transfer, None where none is known."""
    matches: list[AuthorizedTransfer | None] = [None] * len(transfers)
    for source in sources:
        by_key: dict[tuple[str, str], list[AuthorizedTransfer]] = {}
        for call in source:
            by_key.setdefault(call.key, []).append(call)
        for place, transfer in enumerate(transfers):
            calls = by_key.get((transfer.payer, transfer.nonce), ())
            makers = [call for call in calls if _makes(call, transfer)]
            matches[place] = matches[place] or _one(makers, transfer, network)
    return matches


def _makes(call: AuthorizedTransfer, transfer: LoggedTransfer) -> bool:
    """Whether a call with a transfer's payer and nonce may be what made the transfer."""
    same_payment = (call.payee, call.value) == (transfer.payee, transfer.amount)
    return same_payment or call.target == transfer.token


def _one(
    calls: Sequence[AuthorizedTransfer], transfer: LoggedTransfer, network: str
) -> AuthorizedTransfer | None:
    """The call on whose terms all of the calls agree, or which the payer signed; None without."""
    if len({_terms(call) for call in calls}) > 1:
        asset = known_asset(network, transfer.token)
        calls = [call for call in calls if asset and asset_signed_for(call, network) == asset]
    return calls[0] if len({_terms(call) for call in calls}) == 1 else None


def _terms(call: AuthorizedTransfer) -> tuple[object, ...]:
    return call.method, call.payee, call.value, call.valid_after, call.valid_before


def _proven(
    transfer: LoggedTransfer, call: AuthorizedTransfer | None, network: str
) -> TracedPayment:
    return TracedPayment(
        method=call.method if call else None,
        payer=transfer.payer,
        payee=transfer.payee,
        amount=transfer.amount,
        token=Token.on(network, transfer.token),
        nonce=transfer.nonce,
        valid_after=call.valid_after if call else None,
        valid_before=call.valid_before if call else None,
        log_index=transfer.index,
        suffix=call.suffix if call else b"",
    )


def _from_calls(
    result: TraceResult,
    tx: Transaction,
    receipt: Receipt | None,
    trace: CallTrace | None,
    *,
    model: Model | None,
) -> TraceResult:
    """What the calls ask for, where no logs are there to prove it."""
    used = Model.CALLDATA if trace is None or model is Model.CALLDATA else Model.CALL_TRACE
    calls = _calls(tx, trace if used is Model.CALL_TRACE else None)
    payments = tuple(
        _asked(call, token, result.network)
        for call in calls[:ASKED_MAX]
        if (token := _token(call, result.network)) is not None
    )
    if not payments and tx.data is not None and trace is None:
        payments = tuple(_guessed(tx.data, result.network))
    pending = result.status is TraceStatus.PENDING
    reasons = [reason.PENDING if pending else reason.unproven(receipt)]
    if not payments:
        reasons.insert(0, reason.unshown(tx, calls))
    else:
        reasons += [reason.ASKED, *([reason.INCOMPLETE] if reason.is_cut(tx) else [])]
    return replace(result, decoder=used, payments=payments, reason=" ".join(reasons))


def _token(call: AuthorizedTransfer, network: str) -> str | None:
    """The token that a call moves: a known asset that it calls or that its payer signed for,
    else the called contract.
    """
    if call.target is not None and known_asset(network, call.target) is not None:
        return call.target
    asset = asset_signed_for(call, network)
    return asset.address if asset is not None else call.target


def _guessed(data: bytes, network: str) -> Iterator[TracedPayment]:
    """What only looks like calls, where the payer signed exactly that."""
    keys = set()
    for call in transfers_anywhere(data)[:ASKED_MAX]:
        asset = asset_signed_for(call, network)
        if asset is not None and call.key not in keys:
            keys.add(call.key)
            yield _asked(call, asset.address, network)


def _asked(call: AuthorizedTransfer, token: str, network: str) -> TracedPayment:
    return TracedPayment(
        method=call.method,
        payer=call.payer,
        payee=call.payee,
        amount=call.value,
        token=Token.on(network, token),
        nonce=call.nonce,
        valid_after=call.valid_after,
        valid_before=call.valid_before,
        log_index=None,
        suffix=call.suffix,
    )
