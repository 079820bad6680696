"""Texts that explain why a transaction contains no payment, or what proves its payments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.chain.settlement import AUTHORIZATION_CANCELED, AUTHORIZATION_USED, TRANSFER
from tollgauge.core.chain.trace.calldata import AuthorizedTransfer
from tollgauge.core.chain.trace.nesting import incomplete
from tollgauge.core.chain.trace.result import Party
from tollgauge.core.chain.trace.transaction import Log, Receipt, Transaction
from tollgauge.core.chain.trace.transfers import holds

NONE: Final = (
    "The transaction contains no transferWithAuthorization, receiveWithAuthorization or settlement "
    "through Permit2 or an escrow of x402."
)
LOGS_ONLY: Final = (
    "Logs prove the payments; only the calls inside the transaction show their methods."
)
MORE_LOGS: Final = "The logs are incomplete: there may be more payments."
ASKED: Final = "This is only what the calls request."
PENDING: Final = (
    "The transaction was not mined when it was read: no money had moved, and it may still fail or "
    "disappear."
)
INCOMPLETE: Final = "The call data is incomplete: it ends before its arguments do."
NO_CHAIN: Final = "The transaction names no chain: {name} is assumed."
UNUSED: Final = (
    "No transaction has used or cancelled this authorization: nothing was paid with it. It can be "
    "used until it expires."
)
NOT_FOUND: Final = "None of the queried nodes knows this transaction."
_UNREADABLE: Final = "The call data is missing or not hex."
_UNSHOWN: Final = (
    "The call data contains no transferWithAuthorization, receiveWithAuthorization or settlement "
    "through Permit2."
)
_SHOWN: Final = 3

_EXPIRED: Final = "The authorization had expired when the transaction was included."
_EARLY: Final = "The authorization was not valid yet when the transaction was included."
_CAUSES: Final = (
    ("expired", Party.FACILITATOR, _EXPIRED),
    ("not yet valid", Party.FACILITATOR, _EARLY),
    ("used or cancel", Party.FACILITATOR, "The authorization was already used or cancelled."),
    ("invalid signature", Party.FACILITATOR, "The token rejected the payer's signature."),
    ("outofgas", Party.FACILITATOR, "Its sender set a gas limit that was too low."),
    ("exceeds balance", Party.PAYER, "The payer's balance was too low."),
    ("exceeds allowance", Party.PAYER, "The payer's allowance was too low."),
    ("blacklist", Party.CHAIN, "The token's issuer has blocked one of the accounts."),
    ("paused", Party.CHAIN, "The token was paused."),
)
"""Parts of messages with which nodes and Circle's FiatTokenV2_2 refuse a call."""
_KINDS: Final = {
    "": "It is a plain transfer of the native coin or an empty call.",
    "a9059cbb": "It is a plain ERC-20 transfer.",
    "23b872dd": "It is a plain ERC-20 transferFrom.",
    "095ea7b3": "It is an ERC-20 approval.",
    "d505accf": "It is an ERC-20 permit.",
    "5a049a70": "It cancels an authorization.",
    "b7b72899": "It cancels an authorization.",
    "13cd3b53": "It calls a function like that of the x402 proxies for Permit2.",
    "fa340378": "It calls a function like that of the x402 proxies for Permit2.",
    "ff11e7b4": "It calls a function like that of the x402 proxies for Permit2.",
    "016c1748": "It calls a function like that of the x402 proxies for Permit2.",
    "1fad948c": "It is an ERC-4337 bundle without such a call.",
    "765e827f": "It is an ERC-4337 bundle without such a call.",
}


def explain_missing_logs(receipt: Receipt | None) -> str:
    """Return why it is unknown whether money moved."""
    if receipt is None:
        lacks = "No receipt was given"
    elif receipt.logs and not holds(receipt.logs, AUTHORIZATION_USED):
        lacks = "None of the given logs is AuthorizationUsed, and there may be more logs"
    else:
        lacks = "The receipt has no logs" if receipt.logs is None else "The logs are incomplete"
    return f"{lacks}, so it is unknown whether money moved."


def is_cut(tx: Transaction) -> bool:
    """Return whether the call data is truncated."""
    return tx.cut if tx.data is None else incomplete(tx.data)


def explain_request(tx: Transaction, calls: Sequence[AuthorizedTransfer]) -> str:
    """Return the request of a transaction if neither logs nor readable calls show a payment."""
    if is_cut(tx):
        return INCOMPLETE
    if calls:
        return f"It requests {_describe_requests(calls)}, of a token that it does not name."
    if tx.data is None:
        return _UNREADABLE
    return " ".join(filter(None, (_UNSHOWN, _describe_kind(tx.data))))


def explain_no_payment(
    tx: Transaction, logs: Sequence[Log], calls: Sequence[AuthorizedTransfer]
) -> str:
    """Return why a successful transaction with complete logs contains no payment."""
    if holds(logs, AUTHORIZATION_USED):
        return "An authorization was used, but its token made no transfer from the authorizer."
    if calls and holds(logs, TRANSFER):
        return (
            "A transfer is logged, but none of the given logs is AuthorizationUsed: it is unknown "
            "whether the transfer is the one that the call data requests. It requests "
            f"{_describe_requests(calls)}."
        )
    if calls:
        return f"No money moved, although the call data requests {_describe_requests(calls)}."
    if holds(logs, AUTHORIZATION_CANCELED):
        return f"{NONE} It cancels an authorization."
    return " ".join(filter(None, (NONE, None if tx.data is None else _describe_kind(tx.data))))


def explain_revert(tx: Transaction, calls: Sequence[AuthorizedTransfer]) -> str:
    """Return that a transaction reverted, with the payments that it requested."""
    asked = f"Its call data requests {_describe_requests(calls)}." if calls else None
    cut = INCOMPLETE if asked is None and is_cut(tx) else None
    return " ".join(filter(None, ("The transaction reverted: no money moved.", asked, cut)))


def find_cause(
    calls: Sequence[AuthorizedTransfer], message: str, *, at: int | None
) -> tuple[Party | None, str]:
    """Return the party that caused calls to revert, and the cause: None and an empty text if both
    are unknown.

    Args:
        calls: The requested payments.
        message: The message of the called contract; empty if the node does not return it.
        at: The time of the transaction's block (ms UTC), if known.
    """
    words = message.lower().replace("out of gas", "outofgas")
    for part, party, text in _CAUSES:
        if part in words:
            return party, text
    if at is not None and any(call.valid_before <= at // SECOND_MS for call in calls):
        return Party.FACILITATOR, _EXPIRED
    if at is not None and any(call.valid_after > at // SECOND_MS for call in calls):
        return Party.FACILITATOR, _EARLY
    return None, ""


def _describe_kind(data: bytes) -> str | None:
    """Return the purpose of call data without a payment if its function is well known."""
    return _KINDS.get(data[:4].hex())


def _describe_requests(calls: Sequence[AuthorizedTransfer]) -> str:
    """Return the requests of the first few calls as text, and the number of the others."""
    shown = [
        f"{call.method.value} of {call.value} atomic units from {call.payer} to {call.payee}"
        for call in calls[:_SHOWN]
    ]
    more = len(calls) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
