"""Forms of payment that are settled by a contract of x402, read from event logs.

Each contract transfers the money and emits an event about it. `FormReader.match` finds the transfer
to the payTo by its distance from the event in the log; `add_refunds` subtracts refunds. Nodes are
queried for the events of `CONTRACTS` in blocks with transfers that no authorization made, and for
refunds of the escrows in all blocks.

| form | transfer | event |
|---|---|---|
| permit2, upto | payer to payTo | directly after it, without arguments |
| batch-settlement | escrow to payTo, of claimed vouchers | directly after it |
| auth-capture | an operator's token store to payTo | before it: capture or charge |

An escrow's transfer does not show its payer. For batch-settlement, the claims in the same
transaction can prove one (`find_payer`); otherwise the escrow's contract is the counterparty. For
auth-capture it always is, also of refunds, so that they are subtracted from captures: the escrow
accepts money from any collector, so the payer that a payment names may not have agreed to it.

Addresses are those of the official SDKs, and so is the event of batch-settlement; a test compares
them. `Claimed` is from x402's contract, the events of auth-capture from base/commerce-payments
(version 1.0 has fees in basis points, 1.1 as amounts). No package contains the contracts' code:
tests use stand-ins, so that the forms are experimental (core/endpoint/terms).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from eth_hash.auto import keccak

from tollgauge.core.base.signature import hash_domain
from tollgauge.core.base.units import SDK, hex_text
from tollgauge.core.chain.settlement import LogError, Transfer, quantity, word
from tollgauge.core.endpoint.terms import AUTH_CAPTURE, BATCH_SETTLEMENT, PERMIT2, UPTO

PROXIES: Final = {
    "0x402085c248eea27d92e8b30b2c58ed07f9e20001": PERMIT2,
    "0x4020a4f3b7b90cca423b9fabcc0ce57c6c240002": UPTO,
}
"""The form of payment that each Permit2 proxy settles, by address in lower case."""
BATCH_ESCROW: Final = "0x4020074e9df2ce1dee5a9c1b5c3f541d02a10003"
CONTRACTS: Final = {
    **PROXIES,
    BATCH_ESCROW: BATCH_SETTLEMENT,
    **dict.fromkeys(sorted(SDK.escrows), AUTH_CAPTURE),
}
"""The form of payment that each contract settles, by address in lower case."""
CUSTODIANS: Final = frozenset(bytes.fromhex(one[2:]) for one in (BATCH_ESCROW, *SDK.escrows))
"""The counterparties of payments whose payer is unknown."""

_INFO: Final = (
    "(address operator,address payer,address receiver,address token,uint120 maxAmount,"
    "uint48 preApprovalExpiry,uint48 authorizationExpiry,uint48 refundExpiry,uint16 minFeeBps,"
    "uint16 maxFeeBps,address feeReceiver,uint256 salt)"
)
_INFO_TYPES: Final = re.sub(r" \w+", "", _INFO)
_INFO_HASH: Final = keccak(f"PaymentInfo{_INFO}".encode())
_CHANNEL_HASH: Final = keccak(
    b"ChannelConfig(address payer,address payerAuthorizer,address receiver,"
    b"address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)"
)


def _hash(text: str) -> str:
    return hex_text(keccak(text.encode()))


SETTLED: Final = _hash("Settled()")
SETTLED_WITH_PERMIT: Final = _hash("SettledWithPermit()")
BATCH_SETTLED: Final = _hash("Settled(address,address,address,uint128)")
CLAIMED: Final = _hash("Claimed(bytes32,address,uint128,uint128)")
_FEES: Final = ("uint16", "uint256")
CAPTURED: Final = tuple(_hash(f"PaymentCaptured(bytes32,uint256,{fee},address)") for fee in _FEES)
"""With the fee in basis points (1.0), and as an amount (1.1)."""
CHARGED: Final = tuple(
    _hash(f"PaymentCharged(bytes32,{_INFO_TYPES},uint256,address,{fee},address)") for fee in _FEES
)
STORE_CREATED: Final = _hash("TokenStoreCreated(address,address)")
REFUNDED: Final = _hash("PaymentRefunded(bytes32,uint256,address)")
EVENTS: Final = (
    *(SETTLED, SETTLED_WITH_PERMIT, BATCH_SETTLED, CLAIMED),
    *(*CAPTURED, *CHARGED, STORE_CREATED, REFUNDED),
)
_MAX_FEE: Final = 9
"""Place of the largest fee (basis points) in a payment of auth-capture."""
_CHARGE_LOGS: Final = range(1, 9)
"""Distance of the transfer from the event of a charge: the collector's logs are in between (at
most 3 for EIP-3009), and those of a new token store and the fee.
"""


class FormEvent(NamedTuple):
    """An event of one of `CONTRACTS`. `data` are its arguments without index, in words."""

    number: int
    block_hash: bytes
    log_index: int
    transaction: bytes
    contract: str
    topics: tuple[str, ...]
    data: tuple[int, ...]


def words(data: str) -> tuple[int, ...]:
    """Return the words of an event's data. Raises ValueError for anything else."""
    raw = bytes.fromhex(data[2:])
    if len(raw) % 32 or len(data) != 2 + 2 * len(raw):
        raise ValueError("The data of an event is not in words.")
    return tuple(int.from_bytes(raw[at : at + 32]) for at in range(0, len(raw), 32))


def read_events(logs: Iterable[Any]) -> list[FormEvent]:
    """Return the events of the contracts in JSON-RPC logs. Raises LogError for a malformed log."""
    events: dict[tuple[bytes, int], FormEvent] = {}
    try:
        for log in logs:
            contract = log["address"].lower()
            if contract not in CONTRACTS:
                continue
            if log.get("removed"):
                raise LogError("A log of a removed block.")
            event = FormEvent(
                quantity(log["blockNumber"]),
                word(log["blockHash"]),
                quantity(log["logIndex"]),
                word(log["transactionHash"]),
                contract,
                tuple(hex_text(word(topic)) for topic in log["topics"]),
                words(log["data"]),
            )
            if events.setdefault((event.block_hash, event.log_index), event) != event:
                raise LogError("Two logs have the same index.")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise LogError("A log is malformed.") from error
    return list(events.values())


class FormReader(NamedTuple):
    """Reads the payments in a token (lower-case hex) on a chain."""

    token: str
    chain_id: int

    def match(self, transfers: Iterable[Transfer], events: Iterable[FormEvent]) -> list[Transfer]:
        """Return the transfers; those that an event settles have its form of payment, and the
        contract as counterparty if it held the money.
        """
        matched = {(one.block_hash, one.log_index): one for one in transfers}
        logs = {(event.block_hash, event.log_index): event for event in events}
        for event in logs.values():
            after = logs.get((event.block_hash, event.log_index + 1))
            following = () if after is None else after.topics
            expected = _expect_transfer(event, following)
            if expected is None:
                continue
            custodian = expected.custodian
            party = None if custodian is None else bytes.fromhex(custodian[2:])
            for distance in expected.distances:
                key = event.block_hash, event.log_index + distance
                transfer = matched.get(key)
                if transfer is not None and self._settles(event, expected, transfer):
                    matched[key] = transfer._replace(form=expected.form, counterparty=party)
                    break
        return list(matched.values())

    def _settles(self, event: FormEvent, expected: _Expected, transfer: Transfer) -> bool:
        return (
            (transfer.nonce, transfer.form) == (None, None)
            and transfer.transaction == event.transaction
            and expected.token in (None, self.token)
            and expected.receiver in (None, hex_text(transfer.receiver))
            and expected.value in (None, transfer.value)
        )

    def add_payers(
        self,
        transfers: Iterable[Transfer],
        events: Iterable[FormEvent],
        calls: Mapping[bytes, bytes],
    ) -> list[Transfer]:
        """Return the transfers with the proven payers of batch settlements; `calls` are the call
        data of their transactions, without which no payer is proven.
        """
        claims: dict[bytes, list[tuple[str, int]]] = {}
        for event in events:
            if (len(event.topics), len(event.data)) == (3, 2) and event.topics[0] == CLAIMED:
                claim = event.topics[1], event.data[0]
                claims.setdefault(event.transaction, []).append(claim)
        named = []
        for transfer in transfers:
            transaction = transfer.transaction
            if transfer.form == BATCH_SETTLEMENT and transaction in claims:
                receiver, data = hex_text(transfer.receiver), calls.get(transaction, b"")
                payer = self.find_payer(receiver, transfer.value, claims[transaction], data)
                if payer is not None:
                    transfer = transfer._replace(counterparty=bytes.fromhex(payer[2:]))
            named.append(transfer)
        return named

    def find_payer(
        self, receiver: str, value: int, claims: Sequence[tuple[str, int]], data: bytes
    ) -> str | None:
        """Return the payer of a batch settlement (hex), proven by the claims in its transaction.

        A payer is proven if the claims for the receiver add up to the settled amount, and all
        channels are of one payer who signs its vouchers itself: the contract lets anyone fund a
        channel in the name of another, with an authorizer of its choice, but verifies the signature
        of each claim.

        Args:
            receiver: The payTo in lower-case hex.
            value: The settled amount.
            claims: Channel ID and amount of each `Claimed` event of the transaction.
            data: The transaction's call data, which contains the channels.
        """
        domain = hash_domain("x402 Batch Settlement", "1", self.chain_id, BATCH_ESCROW)
        channels = _find_structs(self.token, data, 7, 4, b"\x19\x01" + domain, _CHANNEL_HASH)
        payers, claimed = set(), 0
        for channel_id, amount in claims:
            if channel_id not in channels:
                return None
            payer, authorizer, payee, *_ = channels[channel_id]
            if f"0x{payee:040x}" == receiver:
                claimed += amount
                payers.add(f"0x{payer:040x}" if authorizer in (0, payer) else None)
        return payers.pop() if len(payers) == 1 and claimed == value else None

    def add_refunds(
        self,
        transfers: Iterable[Transfer],
        events: Iterable[FormEvent],
        calls: Mapping[bytes, bytes],
        wallets: Collection[bytes],
    ) -> list[Transfer]:
        """Return the transfers, with the refunds of captured payments of these wallets.

        The operator of a payment pays its refund. If the seller is its operator, the transfer from
        the payTo is the refund; otherwise a transfer is added that moves no money of the payTo but
        reduces its captures, by no more than the seller received. `calls` are the call data of the
        events' transactions, in which the refunded payment is found; without it there is no refund.
        """
        known = {(one.block_hash, one.log_index): one for one in transfers}
        for event in events:
            info = self._find_refunded(event, calls.get(event.transaction, b""))
            if info is None or (seller := info[2].to_bytes(32)[12:]) not in wallets:
                continue
            escrow, amount = bytes.fromhex(event.contract[2:]), event.data[0]
            own = known.get((event.block_hash, event.log_index + 1))
            if own is not None and (own.sender, own.value) == (seller, amount):
                known[own.block_hash, own.log_index] = own._replace(counterparty=escrow)
                continue
            # The escrow refunds fees too, which the seller never received. Without this limit,
            # anyone could charge with a fee of 100% and refund, and so erase the captures of any
            # seller.
            value = amount - amount * min(info[_MAX_FEE], 10_000) // 10_000
            if value:
                refund = Transfer(*event[:4], sender=seller, receiver=escrow, value=value)
                known[event.block_hash, event.log_index] = refund
        return list(known.values())

    def _find_refunded(self, event: FormEvent, data: bytes) -> tuple[int, ...] | None:
        """Return the payment of a refund's event as words: operator, payer, receiver, token, …"""
        if event.topics[:1] != (REFUNDED,) or (len(event.topics), len(event.data)) != (2, 2):
            return None
        prefix = self.chain_id.to_bytes(32) + _pad(event.contract)
        return _find_structs(self.token, data, 12, 3, prefix, _INFO_HASH).get(event.topics[1])


class _Expected(NamedTuple):
    """The transfer that an event settles; None for values that the event does not state.

    Attributes:
        distances: Possible distances of its log from the event; the first that fits counts.
        custodian: The contract that held the money; None if it came from the payer.
    """

    form: str
    distances: Sequence[int]
    token: str | None = None
    receiver: str | None = None
    value: int | None = None
    custodian: str | None = None


def _expect_transfer(event: FormEvent, following: Sequence[str]) -> _Expected | None:
    """Return the transfer that an event settles; None if it settles none, as a deposit or a void.
    `following` are the topics of the next log.
    """
    contract, topics, data = event.contract, event.topics, event.data
    form, topic = CONTRACTS[contract], topics[0] if topics else ""
    shape = len(topics), len(data)
    if form in (PERMIT2, UPTO) and topic in (SETTLED, SETTLED_WITH_PERMIT) and len(topics) == 1:
        return _Expected(form, (-1,))
    if form == BATCH_SETTLEMENT and topic == BATCH_SETTLED and shape == (4, 1):
        receiver, token = ("0x" + one[-40:] for one in topics[1:3])
        return _Expected(form, (-1,), token, receiver, data[0], contract)
    if form != AUTH_CAPTURE or shape not in ((2, 3), (2, 16)):
        return None
    amount, fee = (data[0], data[1]) if shape == (2, 3) else (data[12], data[14])
    if topic in (CAPTURED[0], CHARGED[0]):
        fee = amount * fee // 10_000
    if topic in CAPTURED and shape == (2, 3):
        # A store is created before the first transfer from it, after the event of a capture.
        distance = 1 + (fee > 0) + (following[:1] == (STORE_CREATED,))
        return _Expected(form, (distance,), value=amount - fee, custodian=contract)
    if topic in CHARGED and shape == (2, 16):
        receiver, token = (f"0x{data[index]:040x}" for index in (2, 3))
        return _Expected(form, _CHARGE_LOGS, token, receiver, amount - fee, contract)
    return None


# A transaction can have hundreds of events, and its structs take 70 ms per 128 kB of call data.
@lru_cache(maxsize=2)
def _find_structs(
    token: str, data: bytes, size: int, index: int, prefix: bytes, type_hash: bytes
) -> Mapping[str, tuple[int, ...]]:
    """Return whatever may be a struct of `size` words in call data, by its hash (EIP-712).

    An event with the hash proves a struct, whatever contract was called with it. Structs are
    searched for at the token, their word number `index`; a transaction has at most a few thousand.
    """
    structs = {}
    at = data.find(padded := _pad(token))
    while at >= 0:
        raw = data[max(0, at - 32 * index) : at + 32 * (size - index)]
        if len(raw) == 32 * size:
            structs[hex_text(keccak(prefix + keccak(type_hash + raw)))] = words(hex_text(raw))
        at = data.find(padded, at + 1)
    return structs


def _pad(address: str) -> bytes:
    return bytes.fromhex(address[2:]).rjust(32, b"\0")
