"""Transfers by authorization (EIP-3009) in a receipt, a call trace or a signature.

Rules for receipts (core/chain/settlement and core/chain/forms match in the same way):
- a token that uses an authorization emits `AuthorizationUsed(authorizer, nonce)` and then the
  `Transfer` from that authorizer: the authorization belongs to its token's next transfer if that is
  from its authorizer, and to none otherwise;
- events of other forms belong to the plain `Transfer` at their distance (core/chain/forms);
- `Transfer` has three topics (EIP-20): with a fourth it is an EIP-721 token;
- a log counts whichever contract called the token.

Rules for call traces (debug_traceTransaction, `callTracer`):
- a DELEGATECALL frame is a proxy's implementation running the same call again and is not counted;
- a frame with an `error` changed nothing, and neither did any frame inside it;
- a frame without a type, or with parts of other types, raises TraceInputError;
- frames are read without recursion, so depth cannot exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from tollgauge.core.base.signature import (
    hash_domain,
    hash_struct,
    recover_signer,
    typed_digest,
)
from tollgauge.core.base.units import ASSETS, EVM_ADDRESS_PATTERN, Asset, evm_chain_id, known_asset
from tollgauge.core.chain.forms import (
    BATCH_ESCROW,
    CONTRACTS,
    FormReader,
    expect,
    read_claim,
    words,
)
from tollgauge.core.chain.settlement import AUTHORIZATION_USED, TRANSFER
from tollgauge.core.chain.trace.calldata import (
    PROXY_SELECTORS,
    SELECTORS,
    AuthorizedTransfer,
    Method,
    read_call,
)
from tollgauge.core.chain.trace.result import Token, TracedPayment
from tollgauge.core.chain.trace.transaction import Log, TraceInputError
from tollgauge.core.endpoint.terms import BATCH_SETTLEMENT, EIP3009
from tollgauge.core.sale.payment import Payment

_PADDING: Final = "0x" + "0" * 24


def logged_transfers(
    logs: Sequence[Log], data: bytes = b"", *, network: str
) -> tuple[TracedPayment, ...]:
    """Return the payments in a receipt's logs, in the order of their transfers: by authorization,
    and in the forms of core/chain/forms. The payer of a batch settlement is found in call `data`;
    if the payer of an escrow's payment is unknown, it is the escrow.
    """
    used: dict[str, tuple[str, str]] = {}  # payer and nonce, by token
    transfers: dict[int, TracedPayment] = {}  # by position; plain ones have no form
    claims = []
    for position, log in enumerate(logs):
        if log.topics[:1] == (AUTHORIZATION_USED,) and len(log.topics) == 3:
            used[log.address] = log.topics[1], log.topics[2]
        elif log.topics[:1] == (TRANSFER,) and len(log.topics) == 3 and len(log.data) == 66:
            payer, nonce = used.pop(log.address, ("", ""))
            if not _address(log.topics[1]) or not _address(log.topics[2]):
                continue
            by_authorization = payer == log.topics[1]
            transfers[position] = TracedPayment(
                payer=_address(log.topics[1]),
                payee=_address(log.topics[2]),
                amount=int(log.data, 16),
                token=Token.on(network, log.address),
                nonce=nonce if by_authorization else None,
                form=EIP3009 if by_authorization else "",
                log_index=log.index,
            )
        elif log.address == BATCH_ESCROW and (claim := read_claim(log.topics, _words(log))):
            claims.append(claim)
    for position, settled in _match_events(logs, transfers):
        if settled.form == BATCH_SETTLEMENT:
            reader = FormReader(settled.token.address, evm_chain_id(network))
            proven = reader.find_payer(settled.payee, settled.amount, claims, data)
            settled = replace(settled, payer=proven or settled.payer)
        transfers[position] = settled
    return tuple(transfers[position] for position in sorted(transfers) if transfers[position].form)


def _match_events(
    logs: Sequence[Log], transfers: Mapping[int, TracedPayment]
) -> Iterator[tuple[int, TracedPayment]]:
    """Yield the plain transfers that an event settles, with their form, by position."""
    positions = {log.index: position for position, log in enumerate(logs)}
    for position, log in enumerate(logs):
        after = logs[position + 1].topics if position + 1 < len(logs) else ()
        expected = expect(log.address, log.topics, _words(log), after)
        for distance in expected.distances if expected else ():
            at = position + distance
            if log.index is not None:
                at = positions.get(log.index + distance, -1)
            found = transfers.get(at)
            if (
                expected is not None
                and found is not None
                and not found.form
                and expected.fits(found.token.address, found.payee, found.amount)
            ):
                payer = expected.custodian or found.payer
                yield at, replace(found, form=expected.form, payer=payer)
                break


def _words(log: Log) -> tuple[int, ...]:
    try:
        return words(log.data) if log.address in CONTRACTS else ()
    except ValueError:
        return ()


def holds(logs: Iterable[Log], topic: str) -> bool:
    """Return whether an event is among the logs."""
    return any(log.topics[:1] == (topic,) for log in logs)


def _address(topic: str) -> str:
    """Return the address in a topic; empty if the topic contains more than that."""
    return "0x" + topic[-40:] if topic.startswith(_PADDING) else ""


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
        transfer = _transfer(frame)
        if transfer is not None:
            transfers.append(transfer)
        inner = frame.get("calls")
        if not isinstance(inner, list | None):
            raise TraceInputError("A frame's calls are not an array.")
        waiting += reversed(inner or [])
    return CallTrace(ok=value.get("error") is None, calls=tuple(transfers))


def _transfer(frame: dict[str, Any]) -> AuthorizedTransfer | None:
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
        if asset.network == network and _signer(call, asset) == call.payer:
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
    return asset is not None and _signer(call, asset) == payment.payer


def _signer(call: AuthorizedTransfer, asset: Asset) -> str | None:
    """Return the signer, assuming that the call is for this asset."""
    chain_id = evm_chain_id(asset.network)
    domain = hash_domain(asset.domain_name, asset.domain_version, chain_id, asset.address)
    payer, payee, nonce = (bytes.fromhex(one[2:]) for one in (call.payer, call.payee, call.nonce))
    terms = (call.value, call.valid_after, call.valid_before, nonce)
    message = hash_struct(_TYPES[call.method], payer, payee, *terms)
    return recover_signer(typed_digest(domain, message), call.signature)
