"""Transfers by authorization (EIP-3009) in a receipt, a call trace or a signature.

core/chain/settlement pairs the logs of a receipt with authorizations, and core/chain/forms with the
events of other forms. `Transfer` has three topics (EIP-20): with a fourth it is an EIP-721 token. A
log counts whichever contract called the token.

Rules for call traces (debug_traceTransaction, `callTracer`):
- a DELEGATECALL frame is a proxy's implementation running the same call again and is not counted;
- a frame with an `error` changed nothing, and neither did any frame inside it;
- a frame without a type, or with parts of other types, raises TraceInputError;
- frames are read without recursion, so depth cannot exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from tollgauge.core.base.signature import (
    hash_domain,
    hash_struct,
    recover_signer,
    typed_digest,
)
from tollgauge.core.base.units import (
    ASSETS,
    EVM_ADDRESS_PATTERN,
    Asset,
    chain_of,
    evm_chain_id,
    hex_text,
    known_asset,
)
from tollgauge.core.chain.forms import CONTRACTS, FormEvent, FormReader, words
from tollgauge.core.chain.settlement import (
    AUTHORIZATION_USED,
    TRANSFER,
    Transfer,
    Used,
    pair_transfers,
)
from tollgauge.core.chain.trace.calldata import (
    PROXY_SELECTORS,
    SELECTORS,
    AuthorizedTransfer,
    Method,
    read_call,
)
from tollgauge.core.chain.trace.result import Token, TracedPayment
from tollgauge.core.chain.trace.transaction import Log, TraceInputError
from tollgauge.core.endpoint.terms import EIP3009
from tollgauge.core.sale.payment import Payment

_PADDING: Final = "0x" + "0" * 24
_TRANSACTION: Final = b""
"""The hash of the transaction in its events: all of them are of one transaction."""


def logged_transfers(
    logs: Sequence[Log], data: bytes = b"", *, network: str
) -> tuple[TracedPayment, ...]:
    """Return the payments in a receipt's logs, in the order of their transfers: by authorization,
    and in the forms of core/chain/forms. The payer of a batch settlement is found in call `data`;
    if the payer of an escrow's payment is unknown, it is the escrow.
    """
    numbers = _number_logs(logs)
    indices = dict(zip(numbers, (log.index for log in logs), strict=True))
    transfers, used, events = _read_events(logs, numbers)
    payments: list[tuple[int, TracedPayment]] = []
    for token, own in transfers.items():
        reader = FormReader(token, chain_of(network) or 0)
        matched = reader.match(pair_transfers(own, used.get(token, ())), events)
        for one in reader.add_payers(matched, events, {_TRANSACTION: data}):
            form = one.form if one.nonce is None else EIP3009
            if form is None or not one.sender or not one.receiver:
                continue
            payment = TracedPayment(
                payer=hex_text(one.counterparty or one.sender),
                payee=hex_text(one.receiver),
                amount=one.value,
                token=Token.on(network, token),
                nonce=None if one.nonce is None else hex_text(one.nonce),
                form=form,
                log_index=indices[one.log_index],
            )
            payments.append((one.log_index, payment))
    return tuple(payment for _, payment in sorted(payments, key=itemgetter(0)))


def _read_events(
    logs: Sequence[Log], numbers: Sequence[int]
) -> tuple[dict[str, list[Transfer]], dict[str, list[Used]], list[FormEvent]]:
    """Return the transfers and the used authorizations by token, and the events of forms."""
    transfers: dict[str, list[Transfer]] = {}
    used: dict[str, list[Used]] = {}
    events: list[FormEvent] = []
    for number, log in zip(numbers, logs, strict=True):
        place = (0, b"", number, _TRANSACTION)  # block number and hash are not needed
        kind, *topics = log.topics or ("",)
        if kind == AUTHORIZATION_USED and len(topics) == 2:
            nonce = bytes.fromhex(topics[1][2:])
            used.setdefault(log.address, []).append(Used(*place, _read_address(topics[0]), nonce))
        elif kind == TRANSFER and len(topics) == 2 and len(log.data) == 66:
            sender, receiver = map(_read_address, topics)
            transfer = Transfer(*place, sender, receiver, int(log.data, 16))
            transfers.setdefault(log.address, []).append(transfer)
        elif log.address in CONTRACTS:
            with suppress(ValueError):  # data that is not in words is not of these contracts
                events.append(FormEvent(*place, log.address, log.topics, words(log.data)))
    return transfers, used, events


def _number_logs(logs: Sequence[Log]) -> list[int]:
    """Return the indices of logs if all are known and distinct, otherwise their positions.

    Explorers may list the newest log first.
    """
    indices = [log.index for log in logs if log.index is not None]
    return indices if len(set(indices)) == len(logs) else list(range(len(logs)))


def holds(logs: Iterable[Log], topic: str) -> bool:
    """Return whether an event is among the logs."""
    return any(log.topics[:1] == (topic,) for log in logs)


def _read_address(topic: str) -> bytes:
    """Return the address in a topic; empty if the topic contains more than that."""
    return bytes.fromhex(topic[-40:]) if topic.startswith(_PADDING) else b""


_PREFIXES: Final = frozenset("0x" + one.hex() for one in (*SELECTORS, *PROXY_SELECTORS))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTrace:
    """The content of a trace: whether the outermost call succeeded, and the called transfers in
    order.
    """

    ok: bool
    calls: tuple[AuthorizedTransfer, ...]


def read_call_trace(value: object) -> CallTrace:
    """Parse the outermost frame of a call trace. Raises TraceInputError."""
    if not isinstance(value, dict):
        raise TraceInputError("The call trace is not a JSON object.")
    transfers = []
    waiting: list[Any] = [value]
    while waiting:
        frame = waiting.pop()
        if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
            raise TraceInputError("A frame of the call trace has no type.")
        if frame.get("error") is not None:
            continue
        transfer = _read_frame(frame)
        if transfer is not None:
            transfers.append(transfer)
        inner = frame.get("calls")
        if not isinstance(inner, list | None):
            raise TraceInputError("A frame's calls are not an array.")
        waiting += reversed(inner or [])
    return CallTrace(ok=value.get("error") is None, calls=tuple(transfers))


def _read_frame(frame: dict[str, Any]) -> AuthorizedTransfer | None:
    """Return the EIP-3009 transfer that a frame calls, if any."""
    data, target = frame.get("input"), frame.get("to")
    if frame["type"] != "CALL" or not isinstance(data, str):
        return None
    if data[:10].lower() not in _PREFIXES:
        return None
    if not isinstance(target, str) or not EVM_ADDRESS_PATTERN.fullmatch(target):
        raise TraceInputError("A frame's address is malformed.")
    try:
        return read_call(bytes.fromhex(data[2:]), target.lower())
    except ValueError as error:
        raise TraceInputError("A frame's input is not hex.") from error


_FIELDS: Final = (
    "(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)
_TYPES: Final = {
    Method.TRANSFER: "TransferWithAuthorization" + _FIELDS,
    Method.RECEIVE: "ReceiveWithAuthorization" + _FIELDS,
}


def asset_signed_for(call: AuthorizedTransfer, network: str) -> Asset | None:
    """Return the known asset on a network (CAIP-2) that a call's payer signed for, or None. Only
    signatures of EIP-3009 are verified.
    """
    if call.method not in _TYPES:
        return None
    for asset in ASSETS.values():
        if asset.network == network and _find_signer(call, asset) == call.payer:
            return asset
    return None


@lru_cache(maxsize=1024)  # admission checks every payment in progress again
def is_signed_by_payer(payment: Payment) -> bool:
    """Return whether a payment's signature is that of its payer's account.

    False proves nothing for a contract wallet (ERC-1271): only the chain can verify its signatures.
    """
    call = AuthorizedTransfer(
        method=Method.TRANSFER,
        payer=payment.payer,
        payee=payment.to,
        value=payment.value,
        valid_after=payment.valid_after,
        valid_before=payment.valid_before,
        nonce=payment.nonce,
        signature=bytes.fromhex(payment.signature[2:]),
    )
    asset = known_asset(payment.network, payment.asset)
    return asset is not None and _find_signer(call, asset) == payment.payer


def _find_signer(call: AuthorizedTransfer, asset: Asset) -> str | None:
    """Return the signer, assuming that the call is for this asset."""
    chain_id = evm_chain_id(asset.network)
    domain = hash_domain(asset.domain_name, asset.domain_version, chain_id, asset.address)
    payer, payee, nonce = (bytes.fromhex(one[2:]) for one in (call.payer, call.payee, call.nonce))
    terms = (call.value, call.valid_after, call.valid_before, nonce)
    message = hash_struct(_TYPES[call.method], payer, payee, *terms)
    return recover_signer(typed_digest(domain, message), call.signature)
