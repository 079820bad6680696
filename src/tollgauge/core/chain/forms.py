"""Payments through the x402 Permit2 proxies, read from event logs.

A proxy transfers the payer's money with Permit2 to the address that the payer signed (`witness.to`)
and then emits `Settled()` or `SettledWithPermit()` without arguments. Transfer and event are
therefore matched by their order: a proxy's event belongs to the token's transfer in the log
immediately before it, in the same transaction.

- What to ask: the proxies' events in the blocks with transfers that no authorization made.
- How to decode: `read_settled`; other contracts and other events are left out.
- What counts: `match_settled`; the transferred amount, which `upto` chooses at settlement.

The addresses are those of the official SDKs; a test compares them. The contracts' code is in no
package, so that tests use stand-ins with the SDKs' ABI, and the forms are experimental
(core/endpoint/terms).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from tollgauge.core.chain.settlement import LogError, Transfer, quantity, word
from tollgauge.core.endpoint.terms import PERMIT2, UPTO

PROXIES: Final = {
    "0x402085c248eea27d92e8b30b2c58ed07f9e20001": PERMIT2,
    "0x4020a4f3b7b90cca423b9fabcc0ce57c6c240002": UPTO,
}
"""The form of payment that each proxy settles, by address in lower case."""
SETTLED: Final = "0x97088ec3606cfe8cc112180570d03fcde05f9b8e1bfef8e27784eaf5dd5691b6"
"""keccak256("Settled()")."""
SETTLED_WITH_PERMIT: Final = "0xde5b89d10fc800c459329c382fabfcad0be0ed7e5328e01fae04e507b09ef5d8"
"""keccak256("SettledWithPermit()")."""


def proxy_form(address: str, topics: Sequence[str]) -> str | None:
    """Return the form of payment of a proxy's event by its contract (lower case) and topics; None
    for any other log.
    """
    is_settled = len(topics) == 1 and topics[0] in (SETTLED, SETTLED_WITH_PERMIT)
    return PROXIES.get(address) if is_settled else None


class Settled(NamedTuple):
    """A settlement of a proxy: `form` is the form of payment."""

    number: int
    block_hash: bytes
    log_index: int
    transaction: bytes
    form: str


def read_settled(logs: Iterable[Any]) -> list[Settled]:
    """Return the proxies' events in JSON-RPC logs. Raises LogError for a malformed log."""
    settled: dict[tuple[bytes, int], Settled] = {}
    try:
        for log in logs:
            form = proxy_form(log["address"].lower(), log["topics"])
            if form is None:
                continue
            if log.get("removed"):
                raise LogError("A log of a removed block.")
            event = Settled(
                quantity(log["blockNumber"]),
                word(log["blockHash"]),
                quantity(log["logIndex"]),
                word(log["transactionHash"]),
                form,
            )
            if settled.setdefault((event.block_hash, event.log_index), event) != event:
                raise LogError("Two logs have the same index.")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise LogError("A log is malformed.") from error
    return list(settled.values())


def match_settled(transfers: Iterable[Transfer], settled: Iterable[Settled]) -> list[Transfer]:
    """Return the transfers; those that a proxy settled have its form of payment."""
    after = {(event.block_hash, event.log_index - 1): event for event in settled}
    matched = []
    for transfer in transfers:
        event = after.get((transfer.block_hash, transfer.log_index))
        if (
            transfer.nonce is None
            and event is not None
            and event.transaction == transfer.transaction
        ):
            transfer = transfer._replace(form=event.form)
        matched.append(transfer)
    return matched
