"""Decode: a transaction, its receipt and its calls become payments.

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
- bytes that only look like a call (core/trace/nesting.scanned) count where a log pair or the
  payer's signature proves them, and only where no better source was found;
- calls that contradict each other prove nothing, unless the payer's signature picks one.

Nothing here raises for any bytes; CaptureError is for objects that are no capture at all, and for
a model that lacks its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tollgauge.core.trace import reason
from tollgauge.core.trace.calldata import Authorized
from tollgauge.core.trace.calls import CallTrace
from tollgauge.core.trace.captured import CaptureError, Receipt, Transaction
from tollgauge.core.trace.catalogue import Model
from tollgauge.core.trace.logs import Moved, moved
from tollgauge.core.trace.nesting import authorized, scanned
from tollgauge.core.trace.result import Status, Token, TracedPayment, TraceResult
from tollgauge.core.trace.signed import asset_signed_for
from tollgauge.core.units import known_asset

ASKED_MAX: Final = 1_024
"""How many calls without logs are looked at: more than fit a block."""


def decode(
    tx: Transaction,
    receipt: Receipt | None,
    trace: CallTrace | None = None,
    *,
    network: str,
    model: Model | None = None,
) -> TraceResult:
    """The payments of a transaction on a network (CAIP-2).

    `model` None takes the cheapest decoder whose input is there. Raises CaptureError where a
    named model lacks its input, or the receipt belongs to another transaction.
    """
    _fit(tx, receipt, trace, model)
    status = _status(tx, receipt, trace)
    result = TraceResult(
        tx_hash=tx.hash or (receipt.hash if receipt else None),
        network=network,
        status=status,
        block=(receipt.block if receipt else None) or tx.block,
        submitter=tx.sender or (receipt.sender if receipt else None),
        decoder=model or Model.CALLDATA,
        payments=(),
    )
    calls = _calls(tx, trace)
    if status is Status.REVERTED:
        return replace(
            result, decoder=model or Model.RECEIPT_LOGS, reason=reason.reverted(tx, calls)
        )
    if receipt is None or not _shows_payments(receipt):
        return _from_calls(result, tx, receipt, trace, model=model)
    return _from_logs(result, tx, receipt, trace, model=model)


def _shows_payments(receipt: Receipt) -> bool:
    """Whether a receipt's logs show what moved: a whole list always does, a part of one only where
    it holds a payment.
    """
    if receipt.logs is None:
        return False
    return receipt.whole or bool(moved(receipt.logs))


def not_found(tx_hash: str | None, *, network: str) -> TraceResult:
    """The result for a transaction that the chain does not know."""
    return TraceResult(
        tx_hash=tx_hash,
        network=network,
        status=Status.NOT_FOUND,
        block=None,
        submitter=None,
        decoder=Model.RECEIPT_LOGS,
        payments=(),
        reason=reason.NOT_FOUND,
    )


def _fit(
    tx: Transaction, receipt: Receipt | None, trace: CallTrace | None, model: Model | None
) -> None:
    if receipt and tx.hash and receipt.hash and tx.hash != receipt.hash:
        raise CaptureError("The receipt is that of another transaction.")
    logs = receipt.logs or () if receipt else ()
    named = {log.tx_hash for log in logs} | {tx.hash, receipt.hash if receipt else None}
    if len(named - {None}) > 1:
        raise CaptureError("A log is that of another transaction.")
    if tx.pending:
        return
    if model is Model.RECEIPT_LOGS and (receipt is None or receipt.logs is None):
        raise CaptureError("The decoder receipt-logs needs a receipt with its logs.")
    if model is Model.CALL_TRACE and trace is None:
        raise CaptureError("The decoder call-trace needs a call trace.")


def _status(tx: Transaction, receipt: Receipt | None, trace: CallTrace | None) -> Status:
    ok = receipt.ok if receipt is not None else None
    if ok is None and trace is not None and not trace.ok:
        ok = False
    if ok is None and receipt is not None and receipt.logs:
        ok = True  # before status existed (EIP-658): a reverted transaction has no logs
    if ok is None:
        return Status.PENDING if tx.pending and receipt is None else Status.UNKNOWN
    return Status.SUCCESS if ok else Status.REVERTED


def _calls(tx: Transaction, trace: CallTrace | None) -> tuple[Authorized, ...]:
    """The calls that are read without guessing: the node's, else those of the call data."""
    if trace is not None:
        return trace.calls
    return authorized(tx.data, tx.to) if tx.data is not None else ()


def _from_logs(
    result: TraceResult,
    tx: Transaction,
    receipt: Receipt,
    trace: CallTrace | None,
    *,
    model: Model | None,
) -> TraceResult:
    pairs = moved(receipt.logs or ())
    if not pairs:
        calls = () if model is Model.RECEIPT_LOGS else _calls(tx, trace)
        why = reason.nothing_moved(tx, receipt.logs or (), calls)
        return replace(result, decoder=model or Model.RECEIPT_LOGS, reason=why)
    read = _matched(pairs, _sources(tx, None, pairs), result.network)
    used = Model.CALLDATA if any(read) else Model.RECEIPT_LOGS
    if trace is not None and (model is Model.CALL_TRACE or not all(read)):
        read = _matched(pairs, _sources(tx, trace, pairs), result.network)
        used = Model.CALL_TRACE
    payments = tuple(_proven(pair, call) for pair, call in zip(pairs, read, strict=True))
    if model is Model.RECEIPT_LOGS:
        payments = tuple(
            replace(payment, valid_after=None, valid_before=None) for payment in payments
        )
    return replace(
        result,
        decoder=model or used,
        payments=payments,
        reason=_rest(tx, receipt, known=all(read)),
        proven=True,
    )


def _rest(tx: Transaction, receipt: Receipt, *, known: bool) -> str | None:
    """What the payments of logs rest on, None where nothing is open."""
    reasons = [] if known else [reason.LOGS_ONLY]
    reasons += [reason.INCOMPLETE] if not known and reason.is_cut(tx) else []
    reasons += [] if receipt.whole else [reason.MORE_LOGS]
    return " ".join(reasons) or None


def _sources(
    tx: Transaction, trace: CallTrace | None, pairs: Sequence[Moved]
) -> tuple[tuple[Authorized, ...], ...]:
    """Where calls are looked for, the best source first."""
    data = tx.data
    if data is None:
        return () if trace is None else (trace.calls,)
    exact = authorized(data, tx.to)
    keys = {call.key for call in exact}
    guessed = () if all((pair.payer, pair.nonce) in keys for pair in pairs) else scanned(data)
    return (exact, guessed) if trace is None else (trace.calls, exact, guessed)


def _matched(
    pairs: Sequence[Moved], sources: Iterable[Sequence[Authorized]], network: str
) -> list[Authorized | None]:
    """The call behind each pair, None where none is known."""
    read: list[Authorized | None] = [None] * len(pairs)
    for source in sources:
        by_key: dict[tuple[str, str], list[Authorized]] = {}
        for call in source:
            by_key.setdefault(call.key, []).append(call)
        for place, pair in enumerate(pairs):
            if read[place] is None:
                near = by_key.get((pair.payer, pair.nonce), ())
                read[place] = _one([call for call in near if _makes(call, pair)], pair, network)
    return read


def _makes(call: Authorized, pair: Moved) -> bool:
    same = (call.payee, call.value) == (pair.payee, pair.amount)
    return same or call.target == pair.token


def _one(calls: Sequence[Authorized], pair: Moved, network: str) -> Authorized | None:
    """The one thing that all of the calls say, or that the payer signed."""
    if len({_terms(call) for call in calls}) > 1:
        asset = known_asset(network, pair.token)
        calls = [call for call in calls if asset and asset_signed_for(call, network) == asset]
    return calls[0] if len({_terms(call) for call in calls}) == 1 else None


def _terms(call: Authorized) -> tuple[object, ...]:
    return call.method, call.payee, call.value, call.valid_after, call.valid_before


def _proven(pair: Moved, call: Authorized | None) -> TracedPayment:
    return TracedPayment(
        method=call.method if call else None,
        payer=pair.payer,
        payee=pair.payee,
        amount=pair.amount,
        token=Token(address=pair.token),
        nonce=pair.nonce,
        valid_after=call.valid_after if call else None,
        valid_before=call.valid_before if call else None,
        log_index=pair.index,
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
    if trace is not None and model is not Model.CALLDATA:
        calls, used = trace.calls, Model.CALL_TRACE
    else:
        calls, used = _calls(tx, None), Model.CALLDATA
    payments = tuple(
        _asked(call, token)
        for call in calls[:ASKED_MAX]
        if (token := _token(call, result.network)) is not None
    )
    if not payments and tx.data is not None and trace is None:
        payments = tuple(_guessed(tx.data, result.network))
    pending = result.status is Status.PENDING
    reasons = [reason.PENDING if pending else reason.unproven(receipt)]
    if payments:
        reasons += [reason.ASKED, *([reason.INCOMPLETE] if reason.is_cut(tx) else [])]
    else:
        reasons.insert(0, reason.unshown(tx, calls))
    return replace(result, decoder=model or used, payments=payments, reason=" ".join(reasons))


def _token(call: Authorized, network: str) -> str | None:
    """The token that a call moves: a known asset that it calls or that its payer signed for,
    else the called contract.
    """
    if call.target is not None and known_asset(network, call.target) is not None:
        return call.target
    asset = asset_signed_for(call, network)
    return asset.address if asset is not None else call.target


def _guessed(data: bytes, network: str) -> Iterable[TracedPayment]:
    """What only looks like calls, where the payer signed exactly that."""
    keys = set()
    for call in scanned(data)[:ASKED_MAX]:
        asset = asset_signed_for(call, network)
        if asset is not None and call.key not in keys:
            keys.add(call.key)
            yield _asked(call, asset.address)


def _asked(call: Authorized, token: str) -> TracedPayment:
    return TracedPayment(
        method=call.method,
        payer=call.payer,
        payee=call.payee,
        amount=call.value,
        token=Token(address=token),
        nonce=call.nonce,
        valid_after=call.valid_after,
        valid_before=call.valid_before,
        log_index=None,
        suffix=call.suffix,
    )
