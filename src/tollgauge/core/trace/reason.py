"""Reason: in plain words, why a transaction holds no payment, or what its payments rest on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollgauge.core.settlement import AUTHORIZATION_CANCELED, AUTHORIZATION_USED
from tollgauge.core.trace.calldata import Authorized
from tollgauge.core.trace.captured import Receipt, Transaction
from tollgauge.core.trace.logs import holds

NONE: Final = "The transaction holds no transferWithAuthorization and no receiveWithAuthorization."
LOGS_ONLY: Final = (
    "Logs prove the payments; by which method, only the calls inside the transaction tell."
)
NO_RECEIPT: Final = (
    "No receipt was given: this is what the call data asks for, not proof that it happened."
)
PENDING: Final = (
    "The transaction is not mined yet: nothing has moved, and it may still fail or disappear."
)
UNREADABLE: Final = "The call data is missing or no hex, and no receipt was given: nothing to read."
NOT_FOUND: Final = "The chain does not know this transaction."
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


def without_payment(tx: Transaction, receipt: Receipt | None, calls: Sequence[Authorized]) -> str:
    """Why a transaction that did not revert holds no payment."""
    logs = receipt.logs if receipt is not None else None
    if logs is not None and holds(logs, AUTHORIZATION_USED):
        return "An authorization was used, but its token made no transfer from the authorizer."
    if calls:
        return f"Nothing moved, although the call data asks for {_asked(calls)}."
    if logs is not None and holds(logs, AUTHORIZATION_CANCELED):
        return f"{NONE} It cancels an authorization."
    if tx.data is None:
        return UNREADABLE if logs is None else NONE
    return " ".join(filter(None, (NONE, _KINDS.get(tx.data[:4].hex()))))


def reverted(calls: Sequence[Authorized]) -> str:
    """What a reverted transaction would have done."""
    asked = f" Its call data asks for {_asked(calls)}." if calls else ""
    return f"The transaction reverted: nothing moved.{asked}"


def _asked(calls: Sequence[Authorized]) -> str:
    shown = [
        f"{call.method.value} of {call.value} atomic units from {call.payer} to {call.payee}"
        for call in calls[:_SHOWN]
    ]
    more = len(calls) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
