"""Logs: the transfers by authorization that a receipt proves.

Rules (EIP-3009; core/chain/settlement pairs in the same way, here for any token and a whole
receipt):
- a token that uses an authorization emits `AuthorizationUsed(authorizer, nonce)` and then the
  `Transfer` from that authorizer: an authorization makes its token's next transfer, where that is
  from its authorizer, and nothing otherwise;
- `Transfer` has three topics (EIP-20): with a fourth it is an EIP-721 token;
- a log counts, whichever contract called the token and however the call was forwarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tollgauge.core.chain.settlement import AUTHORIZATION_USED, TRANSFER
from tollgauge.core.chain.trace.transaction import Log

_PADDING: Final = "0x" + "0" * 24


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTransfer:
    """One transfer by authorization. `index` is the `Transfer`'s place in its block."""

    token: str
    payer: str
    payee: str
    amount: int
    nonce: str
    index: int | None


def logged_transfers(logs: Iterable[Log]) -> tuple[LoggedTransfer, ...]:
    """Every pair in a receipt's logs, in the order of their transfers."""
    used: dict[str, tuple[str, str]] = {}  # payer and nonce, by token
    transfers = []
    for log in logs:
        if log.topics[:1] == (AUTHORIZATION_USED,) and len(log.topics) == 3:
            used[log.address] = log.topics[1], log.topics[2]
        elif log.topics[:1] == (TRANSFER,) and len(log.topics) == 3 and len(log.data) == 66:
            payer, nonce = used.pop(log.address, ("", ""))
            if payer == log.topics[1] and _address(payer) and _address(log.topics[2]):
                transfers.append(
                    LoggedTransfer(
                        token=log.address,
                        payer=_address(payer),
                        payee=_address(log.topics[2]),
                        amount=int(log.data, 16),
                        nonce=nonce,
                        index=log.index,
                    )
                )
    return tuple(transfers)


def holds(logs: Iterable[Log], topic: str) -> bool:
    """Whether an event is among the logs."""
    return any(log.topics[:1] == (topic,) for log in logs)


def _address(topic: str) -> str:
    """The address in a topic; empty where the topic holds more than that."""
    return "0x" + topic[-40:] if topic.startswith(_PADDING) else ""
