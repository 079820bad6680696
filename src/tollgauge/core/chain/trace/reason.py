"""Reason: in plain words, why a transaction holds no payment, or what its payments rest on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollgauge.core.chain.settlement import AUTHORIZATION_CANCELED, AUTHORIZATION_USED, TRANSFER
from tollgauge.core.chain.trace.calldata import AuthorizedTransfer
from tollgauge.core.chain.trace.nesting import incomplete
from tollgauge.core.chain.trace.transaction import Log, Receipt, Transaction
from tollgauge.core.chain.trace.transfers import holds

NONE: Final = "The transaction holds no transferWithAuthorization and no receiveWithAuthorization."
LOGS_ONLY: Final = (
    "Logs prove the payments; by which method, only the calls inside the transaction tell."
)
MORE_LOGS: Final = "The logs are incomplete: there may be more payments."
ASKED: Final = "This is only what the calls ask for."
PENDING: Final = (
    "The transaction was not mined when this was read: nothing had moved, and it may still fail or "
    "disappear."
)
INCOMPLETE: Final = "The call data is incomplete: it ends before its arguments do."
NO_CHAIN: Final = "Nothing says which chain it is of: it is taken for one of {name}."
UNUSED: Final = (
    "No transaction has used or cancelled this authorization: nothing was paid with it. Until it "
    "expires it still can be used."
)
NOT_FOUND: Final = "No node that was asked knows this transaction."
_UNREADABLE: Final = "The call data is missing or no hex."
_UNSHOWN: Final = (
    "The call data shows no transferWithAuthorization and no receiveWithAuthorization."
)
_SHOWN: Final = 3

_KINDS: Final = {
    "": "It is a plain transfer of the chain's own coin or an empty call.",
    "a9059cbb": "It is a plain ERC-20 transfer.",
    "23b872dd": "It is a plain ERC-20 transferFrom.",
    "095ea7b3": "It is an ERC-20 approval.",
    "d505accf": "It is an ERC-20 permit.",
    "5a049a70": "It cancels an authorization.",
    "b7b72899": "It cancels an authorization.",
    "13cd3b53": "It settles through Permit2 (x402 exact), not by EIP-3009.",
    "fa340378": "It settles through Permit2 (x402 exact), not by EIP-3009.",
    "ff11e7b4": "It settles through Permit2 (x402 upto), not by EIP-3009.",
    "016c1748": "It settles through Permit2 (x402 upto), not by EIP-3009.",
    "1fad948c": "It is an ERC-4337 bundle without such a call.",
    "765e827f": "It is an ERC-4337 bundle without such a call.",
}


def unproven(receipt: Receipt | None) -> str:
    """What is missing to know whether money moved."""
    if receipt is None:
        lacks = "No receipt was given"
    elif receipt.logs and not holds(receipt.logs, AUTHORIZATION_USED):
        lacks = "None of the given logs is AuthorizationUsed, and there may be more logs"
    else:
        lacks = "The receipt has no logs" if receipt.logs is None else "The logs are incomplete"
    return f"{lacks}, so it is not known whether it moved."


def is_cut(tx: Transaction) -> bool:
    """Whether the call data ends before it should."""
    return tx.cut if tx.data is None else incomplete(tx.data)


def unshown(tx: Transaction, calls: Sequence[AuthorizedTransfer]) -> str:
    """What a transaction asks for where neither logs nor readable calls tell of a payment."""
    if is_cut(tx):
        return INCOMPLETE
    if calls:
        return f"It asks for {_asked(calls)}, of a token that it does not name."
    if tx.data is None:
        return _UNREADABLE
    return " ".join(filter(None, (_UNSHOWN, _kind(tx.data))))


def nothing_moved(tx: Transaction, logs: Sequence[Log], calls: Sequence[AuthorizedTransfer]) -> str:
    """Why a transaction whose logs are all there, and did not revert, holds no payment."""
    if holds(logs, AUTHORIZATION_USED):
        return "An authorization was used, but its token made no transfer from the authorizer."
    if calls and holds(logs, TRANSFER):
        return (
            "A transfer is logged, but none of the given logs is AuthorizationUsed: whether the "
            f"transfer is what the call data asks for is not known. It asks for {_asked(calls)}."
        )
    if calls:
        return f"Nothing moved, although the call data asks for {_asked(calls)}."
    if holds(logs, AUTHORIZATION_CANCELED):
        return f"{NONE} It cancels an authorization."
    return " ".join(filter(None, (NONE, None if tx.data is None else _kind(tx.data))))


def reverted(tx: Transaction, calls: Sequence[AuthorizedTransfer]) -> str:
    """What a reverted transaction would have done."""
    asked = f"Its call data asks for {_asked(calls)}." if calls else None
    cut = INCOMPLETE if asked is None and is_cut(tx) else None
    return " ".join(filter(None, ("The transaction reverted: nothing moved.", asked, cut)))


def _kind(data: bytes) -> str | None:
    """What call data that holds no payment is for, where its function is well known."""
    return _KINDS.get(data[:4].hex())


def _asked(calls: Sequence[AuthorizedTransfer]) -> str:
    """What calls ask for, in words: the first few of them, and how many more there are."""
    shown = [
        f"{call.method.value} of {call.value} atomic units from {call.payer} to {call.payee}"
        for call in calls[:_SHOWN]
    ]
    more = len(calls) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
