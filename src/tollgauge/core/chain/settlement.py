"""Settlements: USDC transfers made by EIP-3009 authorizations, read from event logs.

Rules:
- the token emits `AuthorizationUsed(authorizer, nonce)` and, as its next event, the signed
  `Transfer` (Circle's FiatTokenV2: both signature overloads, from any caller, and also if a proxy,
  a batch or a smart account makes several in one transaction);
- so a transfer belongs to the authorization in the log immediately before it, if the authorizer is
  its sender: logs are paired by their order, not only by their transaction;
- logs are filtered by topic, so a gap between the two may hide another log. Transfers that only the
  whole transaction can decide are returned as unclear, and `match_by_receipts` decides them;
- a log that differs from the ABI raises LogError: its node is not trusted.

Hashes and addresses are bytes, sliced from the logs: an ABI library takes 30 times as long.
clients/chain fetches logs, and store/chain stores transfers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import hex_text

TRANSFER: Final = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
"""keccak256("Transfer(address,address,uint256)"), EIP-20."""
AUTHORIZATION_USED: Final = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
"""keccak256("AuthorizationUsed(address,bytes32)"), EIP-3009."""
AUTHORIZATION_CANCELED: Final = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
"""keccak256("AuthorizationCanceled(address,bytes32)"), EIP-3009."""

MIN_PAYMENT: Final = 100
"""A smaller amount (atomic units of a token with six decimals, $0.0001) is not a payment."""
_PADDING: Final = "0x" + 24 * "0"


class LogError(TollgaugeError):
    """An event log is malformed or contradicts another one."""


class Transfer(NamedTuple):
    """A transfer of the token: `value` in atomic units, `log_index` in its block. `nonce` is that
    of the authorization that made it, `form` the form of payment of the contract that settled it
    (core/chain/forms); a plain transfer has neither. `counterparty` is the payer (or the party of a
    refund) if the log does not name it.
    """

    number: int
    block_hash: bytes
    log_index: int
    transaction: bytes
    sender: bytes
    receiver: bytes
    value: int
    nonce: bytes | None = None
    form: str | None = None
    counterparty: bytes | None = None


class Used(NamedTuple):
    """A used authorization: its authorizer and nonce."""

    number: int
    block_hash: bytes
    log_index: int
    transaction: bytes
    authorizer: bytes
    nonce: bytes


class Events(NamedTuple):
    """The events of some logs, without duplicates and unordered. `stamps` are block times (ms UTC)
    by block hash, of logs with a `blockTimestamp`.
    """

    transfers: list[Transfer]
    used: list[Used]
    stamps: dict[bytes, int]


class Entry(NamedTuple):
    """A transfer as seen by one watched `wallet`, with the `other` address. `at` is the block's
    time in ms UTC. A transfer between two watched wallets has two entries. `submitter` is the
    address that sent the transaction, None if it is looked up later.
    """

    number: int
    block_hash: bytes
    log_index: int
    wallet: bytes
    other: bytes
    incoming: bool
    value: int
    nonce: bytes | None
    transaction: bytes
    at: int
    submitter: bytes | None = None


class Deposit(NamedTuple):
    """A transfer of a token to an address of this service, with addresses and hashes as in the
    ledger, in lower-case hex. `nonce` is that of its authorization; None for any other transfer.
    `at` is the block's time in ms UTC.
    """

    number: int
    block_hash: bytes
    log_index: int
    asset: str
    pay_to: str
    payer: str
    value: int
    nonce: str | None
    transaction: str
    at: int


class Matched(NamedTuple):
    """Transfers with their authorizations; filtered logs cannot decide the `unclear` ones."""

    transfers: list[Transfer]
    unclear: list[Transfer]


def read_logs(logs: Iterable[Any], *, token: str) -> Events:
    """Return the Transfer and AuthorizationUsed events of the token (lower-case hex) in JSON-RPC
    logs.

    Logs of other contracts, other events and duplicates are omitted. Raises LogError for a
    malformed or removed log, and for two logs with the same index.
    """
    by_place: dict[tuple[bytes, int], Transfer | Used] = {}
    blocks: dict[str, tuple[bytes, int, str]] = {}
    stamps: dict[bytes, int] = {}
    try:
        for log in logs:
            topics = log["topics"]
            address = log["address"]
            if address != token and address.lower() != token:
                continue
            kind = topics[0] if len(topics) else ""
            if kind != TRANSFER and kind != AUTHORIZATION_USED:
                continue
            hash_text = log["blockHash"]
            block = blocks.get(hash_text)
            if block is None:
                block = blocks[hash_text] = _read_block(log, stamps)
            block_hash, number, number_text = block
            if log["blockNumber"] != number_text or log.get("removed"):
                raise LogError("A log of a removed block, or of two blocks.")
            index = quantity(log["logIndex"])
            read = _read_transfer if kind == TRANSFER else _read_authorization
            event = read(log, topics, number=number, block_hash=block_hash, index=index)
            if by_place.setdefault((block_hash, index), event) != event:
                raise LogError("Two logs have the same index.")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise LogError("A log is malformed.") from error
    transfers = [event for event in by_place.values() if isinstance(event, Transfer)]
    used = [event for event in by_place.values() if isinstance(event, Used)]
    return Events(transfers, used, stamps)


def _read_block(log: Mapping[str, Any], stamps: dict[bytes, int]) -> tuple[bytes, int, str]:
    """Return a log's block: hash, number, and the number's text. Adds its time to `stamps`."""
    block_hash = word(log["blockHash"])
    stamp = log.get("blockTimestamp")
    if stamp is not None:
        stamps[block_hash] = 1_000 * quantity(stamp)
    return block_hash, quantity(log["blockNumber"]), log["blockNumber"]


def _read_transfer(
    log: Mapping[str, Any], topics: Sequence[str], *, number: int, block_hash: bytes, index: int
) -> Transfer:
    _, sender, receiver = topics
    transaction, data = log["transactionHash"], log["data"]
    raw = bytes.fromhex(transaction[2:] + sender[26:] + receiver[26:] + data[2:])
    # `fromhex` skips spaces, so both the length of the text and that of the bytes are checked.
    if (
        len(raw) != 104
        or not len(transaction) == len(sender) == len(receiver) == len(data) == 66
        or not sender[:26] == receiver[:26] == _PADDING
    ):
        raise LogError("A Transfer is malformed.")
    value = int.from_bytes(raw[72:])
    return Transfer(number, block_hash, index, raw[:32], raw[32:52], raw[52:72], value)


def _read_authorization(
    log: Mapping[str, Any], topics: Sequence[str], *, number: int, block_hash: bytes, index: int
) -> Used:
    _, authorizer, nonce = topics
    transaction = log["transactionHash"]
    raw = bytes.fromhex(transaction[2:] + authorizer[26:] + nonce[2:])
    if (
        len(raw) != 84
        or not len(transaction) == len(authorizer) == len(nonce) == 66
        or authorizer[:26] != _PADDING
    ):
        raise LogError("An AuthorizationUsed is malformed.")
    return Used(number, block_hash, index, raw[:32], raw[32:52], raw[52:])


def match_transfers(transfers: Iterable[Transfer], used: Iterable[Used]) -> Matched:
    """Match transfers with authorizations, from logs without some of those in between.

    A match is certain without the rest of the transaction if the log immediately before is the
    sender's authorization, or if the sender used none before it in the transaction (a plain
    transfer).
    """
    before: dict[tuple[bytes, int], Used] = {}
    first_used: dict[tuple[bytes, bytes], int] = {}
    for use in used:
        before[(use.block_hash, use.log_index + 1)] = use
        key = (use.transaction, use.authorizer)
        first_used[key] = min(use.log_index, first_used.get(key, use.log_index))
    certain: list[Transfer] = []
    unclear: list[Transfer] = []
    for transfer in transfers:
        adjacent = before.get((transfer.block_hash, transfer.log_index))
        if adjacent is not None and _makes(adjacent, transfer):
            certain.append(Transfer(*transfer[:7], adjacent.nonce))
            continue
        first = first_used.get((transfer.transaction, transfer.sender))
        (certain if first is None or first > transfer.log_index else unclear).append(transfer)
    return Matched(certain, unclear)


def pair_transfers(transfers: Iterable[Transfer], used: Iterable[Used]) -> list[Transfer]:
    """Pair transfers with authorizations, from all events of the token in the transactions: an
    authorization makes the token's next transfer if that is from its authorizer.
    """
    order: list[Transfer | Used] = [*transfers, *used]
    order.sort(key=lambda event: (event.number, event.block_hash, event.log_index))
    attributed: list[Transfer] = []
    pending: Used | None = None
    for event in order:
        if isinstance(event, Used):
            pending = event
            continue
        if pending is not None and _makes(pending, event):
            event = event._replace(nonce=pending.nonce)
        pending = None
        attributed.append(event)
    return attributed


def _makes(use: Used, transfer: Transfer) -> bool:
    """Return whether an authorization has the transaction and the sender of a transfer."""
    return use.transaction == transfer.transaction and use.authorizer == transfer.sender


def match_by_receipts(
    unclear: Sequence[Transfer], receipts: Iterable[Any], *, token: str
) -> list[Transfer]:
    """Return the unclear transfers with their authorizations, from their transactions' receipts.

    Raises LogError if a receipt does not contain the transfer.
    """
    known: dict[tuple[bytes, int], Transfer] = {}
    for receipt in receipts:
        logs = receipt.get("logs") if isinstance(receipt, Mapping) else None
        if not isinstance(logs, list):
            raise LogError("A receipt is malformed.")
        whole = read_logs(logs, token=token)
        for transfer in pair_transfers(whole.transfers, whole.used):
            known[(transfer.block_hash, transfer.log_index)] = transfer
    decided: list[Transfer] = []
    for transfer in unclear:
        proven = known.get((transfer.block_hash, transfer.log_index))
        if proven is None or proven._replace(nonce=None) != transfer:
            raise LogError("A receipt lacks a transfer that its block's logs contain.")
        decided.append(proven)
    return decided


def list_entries(
    transfers: Iterable[Transfer], wallets: Collection[bytes], times: Mapping[bytes, int]
) -> list[Entry]:
    """Return the entries of transfers: payments to a watched wallet that the payer signed, and all
    transfers from one (a refund needs no authorization).

    Plain and zero-value transfers to a wallet are not payments, because anyone can emit them in
    another's name. `times` are the block times (ms UTC) by hash.
    """
    rows = []
    new = Entry._make  # half the time of calling Entry
    for one in transfers:
        number, block_hash, index, transaction, sender, receiver, value, nonce, form, party = one
        place = (number, block_hash, index)
        rest = (value, nonce, transaction, times[block_hash], None)
        signed = nonce is not None or form is not None
        if signed and value >= MIN_PAYMENT and receiver in wallets:
            rows.append(new((*place, receiver, party or sender, True, *rest)))
        if sender in wallets and sender != receiver:
            rows.append(new((*place, sender, party or receiver, False, *rest)))
    return rows


def list_deposits(
    transfers: Iterable[Transfer], own: Collection[bytes], times: Mapping[bytes, int], *, token: str
) -> list[Deposit]:
    """Return the transfers to the service's `own` addresses.

    `times` are the block times (ms UTC) by hash, `token` is in hex.
    """
    return [
        Deposit(
            number=transfer.number,
            block_hash=transfer.block_hash,
            log_index=transfer.log_index,
            asset=token,
            pay_to=hex_text(transfer.receiver),
            payer=hex_text(transfer.sender),
            value=transfer.value,
            nonce=None if transfer.nonce is None else hex_text(transfer.nonce),
            transaction=hex_text(transfer.transaction),
            at=times[transfer.block_hash],
        )
        for transfer in transfers
        if transfer.receiver in own
    ]


def word(text: str) -> bytes:
    """Return 32 bytes from 0x-hex. Raises LogError or ValueError for any other text."""
    data = bytes.fromhex(text[2:])
    if len(text) != 66 or len(data) != 32 or text[:2] != "0x":
        raise LogError("A word is not 32 bytes.")
    return data


def quantity(text: str) -> int:
    """Return a JSON-RPC number below 2^40 (a block number, or seconds)."""
    if text[:2] != "0x" or not 2 < len(text) <= 12:
        raise LogError("A log's number is malformed.")
    return int(text, 16)
