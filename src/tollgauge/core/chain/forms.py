"""Payments that contracts settle without an EIP-3009 authorization of the payTo, from event logs.

- **Permit2 proxies** (`exact` with Permit2, and `upto`): the proxy transfers the payer's money to
  the address that the payer signed, and then emits `Settled()` or `SettledWithPermit()`.
- **`batch-settlement`**: buyers deposit into an escrow, which pays the sum of what a seller claimed
  and emits `Settled(receiver, token, sender, amount)`. Deposits, claims and refunds are no payments
  of the seller. The transfer names no payer, so the escrow stands for all of them.
- **`auth-capture`** (base/commerce-payments): a charge or a capture pays the seller from the
  operator's store in the escrow, after an event; the fee is paid first. The event of a capture
  names no payer, and any contract can be the collector of a charge, so a charge counts as the
  payer's only through a collector of the SDKs, which checks the payer's signature. Otherwise the
  escrow stands for the payer. Money that an operator refunds does not come from the payTo and is
  not subtracted.

Each form has three parts: what to ask (`CONTRACTS` and `TOPICS`, in the blocks with transfers that
no authorization made), how to decode (`read_event`; other contracts and events are left out), and
what counts (`match_settled`): one transfer per event, in the event's transaction.

The addresses are those of the official SDKs; a test compares them. The contracts' code is in no
package, so that tests use stand-ins with the same interface, and the forms are experimental
(core/endpoint/terms).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from tollgauge.core.chain.settlement import LogError, Transfer, quantity, word
from tollgauge.core.endpoint.terms import AUTH_CAPTURE, BATCH, PERMIT2, UPTO

PROXIES: Final = {
    "0x402085c248eea27d92e8b30b2c58ed07f9e20001": PERMIT2,
    "0x4020a4f3b7b90cca423b9fabcc0ce57c6c240002": UPTO,
}
"""The form of payment that each proxy settles, by address in lower case."""
BATCH_ESCROW: Final = "0x4020074e9df2ce1dee5a9c1b5c3f541d02a10003"
CAPTURE_ESCROWS: Final = (
    "0xbdea0d1bcc5966192b070fdf62ab4ef5b4420cff",
    "0xf96815976523e00e65be8f34ca5e64b4f41eb19c",
)
COLLECTORS: Final = frozenset(
    {
        "0x0e3df9510de65469c4518d7843919c0b8c7a7757",
        "0x992476b9ee81d52a5bda0622c333938d0af0ab26",
        "0x8612dfdc421f80336cd14e8ef9cb1e765db5ab88",
        "0xd69831aed5bfe262067ec4c751f4f830ecdd446e",
    }
)
"""Collectors of auth-capture that check the payer's signature."""
CONTRACTS: Final = (*PROXIES, BATCH_ESCROW, *CAPTURE_ESCROWS)
"""The contracts whose events are read."""
ESCROWS: Final = frozenset(bytes.fromhex(one[2:]) for one in (BATCH_ESCROW, *CAPTURE_ESCROWS))
"""Addresses that stand for payers whom a transfer does not name."""

SETTLED: Final = "0x97088ec3606cfe8cc112180570d03fcde05f9b8e1bfef8e27784eaf5dd5691b6"
"""keccak256("Settled()")."""
SETTLED_WITH_PERMIT: Final = "0xde5b89d10fc800c459329c382fabfcad0be0ed7e5328e01fae04e507b09ef5d8"
"""keccak256("SettledWithPermit()")."""
BATCH_SETTLED: Final = "0x7337b4386b690fdb8ba66905b92b9d45d33bc6626ee2620c905fb150ec0cc47d"
"""keccak256("Settled(address,address,address,uint128)")."""
CHARGED: Final = "0x943ae4341dd799d7aeedc501f616cd26b134639e0bc2ec059581ba3ebbf1e7d0"
"""keccak256("PaymentCharged(bytes32,PaymentInfo,uint256,address,uint16,address)"), with the fields
of PaymentInfo.
"""
CAPTURED: Final = "0xe749f7bbd01b49bb05abf26ca492cb4dfdea6bedeada8a40fdccd478c73a74e2"
"""keccak256("PaymentCaptured(bytes32,uint256,uint16,address)")."""
STORE_CREATED: Final = "0xd8699a107a4fe8ea740423e52159bafb235249dce5c2df55fa265db06964d136"
"""keccak256("TokenStoreCreated(address,address)")."""
TOPICS: Final = (
    *(SETTLED, SETTLED_WITH_PERMIT, BATCH_SETTLED),
    *(CHARGED, CAPTURED, STORE_CREATED),
)
"""The events that are read."""
_FEE_WHOLE: Final = 10_000


class SettledEvent(NamedTuple):
    """An event that accompanies a payment, and the payment's transfer: its position relative to the
    event (None: any position in the transaction), token, sender, receiver and amount as far as the
    event determines them. `payer` is set if it is not the sender. Addresses are lower-case hex.
    """

    form: str
    offset: int | None
    token: str = ""
    sender: str = ""
    receiver: str = ""
    value: int | None = None
    payer: str = ""

    def fits(self, token: str, sender: str, receiver: str, value: int) -> bool:
        """Return whether a transfer may be the payment's."""
        return (
            self.token in ("", token)
            and self.sender in ("", sender)
            and self.receiver in ("", receiver)
            and self.value in (None, value)
        )

    def delayed(self) -> SettledEvent:
        """Return the event if the escrow creates the operator's store before the transfer."""
        return self if self.offset is None else self._replace(offset=self.offset + 1)


def read_event(address: str, topics: Sequence[str], data: str) -> SettledEvent | None:
    """Return the event in a log (lower-case hex), or None for any other log. Raises ValueError or
    IndexError for a malformed one.
    """
    topic = topics[0] if len(topics) else ""
    if address in PROXIES:
        is_settled = len(topics) == 1 and topic in (SETTLED, SETTLED_WITH_PERMIT)
        return SettledEvent(PROXIES[address], -1) if is_settled else None
    if address == BATCH_ESCROW and topic == BATCH_SETTLED:
        receiver, token = (_address(topics[n][2:]) for n in (1, 2))
        return SettledEvent(BATCH, None, token, address, receiver, int(data, 16), payer=address)
    if address in CAPTURE_ESCROWS and topic in (CAPTURED, CHARGED):
        return _read_capture(address, topic, bytes.fromhex(data[2:]))
    return None


def is_store_created(address: str, topics: Sequence[str]) -> bool:
    """Return whether a log is the creation of an operator's store, before its first transfer."""
    return address in CAPTURE_ESCROWS and list(topics[:1]) == [STORE_CREATED]


def _read_capture(escrow: str, topic: str, data: bytes) -> SettledEvent | None:
    """Return a capture or a charge of auth-capture; None if the fee is the whole amount.

    The data of a capture are amount, fee rate and fee receiver. The data of a charge are the
    payment (operator, payer, receiver, token and eight further words), amount, collector, fee rate
    and fee receiver. The fee is rounded down.
    """
    words = [data[start : start + 32] for start in range(0, len(data), 32)]
    if len(data) != 32 * (3 if topic == CAPTURED else 16):
        raise ValueError("An event has another length.")
    amount = int.from_bytes(words[-3] if topic == CAPTURED else words[-4])
    fee = amount * int.from_bytes(words[-2]) // _FEE_WHOLE
    if amount == fee:
        return None
    if topic == CAPTURED:
        # Nothing is between the event and the transfers of the fee and the rest.
        return SettledEvent(AUTH_CAPTURE, 2 if fee else 1, value=amount - fee, payer=escrow)
    payer, receiver, token, collector = (_address(words[n].hex()) for n in (1, 2, 3, 13))
    payer = payer if collector in COLLECTORS else escrow
    return SettledEvent(AUTH_CAPTURE, None, token, "", receiver, amount - fee, payer)


class Settled(NamedTuple):
    """An event that accompanies a payment, and its place; `event` is None for the creation of an
    operator's store.
    """

    number: int
    block_hash: bytes
    log_index: int
    transaction: bytes
    event: SettledEvent | None


def read_settled(logs: Iterable[Any], *, token: str) -> list[Settled]:
    """Return the events of payments in the token (lower-case hex) in JSON-RPC logs. Raises LogError
    for a malformed log.
    """
    settled: dict[tuple[bytes, int], Settled] = {}
    try:
        for log in logs:
            address, topics = log["address"].lower(), [topic.lower() for topic in log["topics"]]
            place = word(log["blockHash"]), quantity(log["logIndex"])
            event = read_event(address, topics, log["data"])
            if event is None and not is_store_created(address, topics):
                continue
            if event is not None and event.token not in ("", token):
                continue
            if log.get("removed"):
                raise LogError("A log of a removed block.")
            one = Settled(quantity(log["blockNumber"]), *place, word(log["transactionHash"]), event)
            if settled.setdefault(place, one) != one:
                raise LogError("Two logs have the same index.")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise LogError("A log is malformed.") from error
    return list(settled.values())


def match_settled(transfers: Iterable[Transfer], settled: Iterable[Settled]) -> list[Transfer]:
    """Return the transfers; the payments among them have their form, and the payer as sender."""
    settled = list(settled)
    created = {(one.block_hash, one.log_index) for one in settled if one.event is None}
    # By block, transaction, and log index of the transfer or None for any.
    awaited: dict[tuple[bytes, bytes, int | None], list[SettledEvent]] = {}
    for one in settled:
        if (event := one.event) is not None:
            if (one.block_hash, one.log_index + 1) in created:
                event = event.delayed()
            place = None if event.offset is None else one.log_index + event.offset
            awaited.setdefault((one.block_hash, one.transaction, place), []).append(event)
    matched = []
    for transfer in transfers:
        places = (transfer.log_index, None) if transfer.nonce is None else ()
        where = transfer.block_hash, transfer.transaction
        candidates = [awaited.get((*where, place), []) for place in places]
        if (event := _take(transfer, candidates)) is not None:
            payer = bytes.fromhex(event.payer[2:]) or transfer.sender
            transfer = transfer._replace(form=event.form, sender=payer)
        matched.append(transfer)
    return matched


def _take(transfer: Transfer, candidates: Iterable[list[SettledEvent]]) -> SettledEvent | None:
    """Remove and return the first event whose payment a transfer can be."""
    parties = ("0x" + transfer.sender.hex(), "0x" + transfer.receiver.hex(), transfer.value)
    for events in candidates:
        for event in events:
            if event.fits(event.token, *parties):
                events.remove(event)
                return event
    return None


def _address(word_hex: str) -> str:
    """Return the address in a word of 64 hex digits. Raises ValueError if it has more than that."""
    if len(word_hex) != 64 or int(word_hex[:24], 16):
        raise ValueError("A word is not an address.")
    return "0x" + word_hex[24:]
