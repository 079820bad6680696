"""A transaction, its receipt and its logs, parsed from the JSON of nodes, libraries and explorers.

Rules:
- hex becomes lower case, numbers become integers; BigInt and HexBytes notations are accepted;
- a missing part is None, because absence and emptiness differ: a receipt without `logs` shows
  nothing about transfers, one with an empty list proves that there were none;
- a malformed part raises TraceInputError, except call data that is not hex, which is unreadable and
  therefore None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import EVM_ADDRESS_PATTERN, EVM_WORD_PATTERN

BYTES: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*", re.ASCII)
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,19}n?", re.ASCII)
_HEX_BYTES: Final = re.compile(r"HexBytes\((['\"])([^'\"]*)\1\)")
_BARE: Final = re.compile(r"[0-9a-fA-F]*", re.ASCII)

# The names of a member in the JSON of nodes, libraries and explorers.
HASH: Final = ("hash", "transactionHash", "transaction_hash", "tx_hash")
DATA: Final = ("input", "data", "raw_input")
BLOCK: Final = ("blockNumber", "block_number", "block")
BLOCK_HASH: Final = ("blockHash", "block_hash")
TIME: Final = ("blockTimestamp", "timestamp", "timeStamp")
CHAIN: Final = ("chainId", "chain_id")
LOG_INDEX: Final = ("logIndex", "index", "log_index")
STATUS: Final = ("status", "txreceipt_status", "success")
MORE: Final = "next_page_params"
"""The member that Blockscout adds to a page of logs if more pages follow."""

_STATUS_WORDS: Final = {
    "success": True,
    "ok": True,
    "reverted": False,
    "error": False,
    "failed": False,
    "failure": False,
}
_CUT: Final = re.compile(r"0x[0-9a-fA-F]|[0-9a-fA-F]{8}", re.ASCII)
_TOPICS_MAX: Final = 4
_ENVELOPE: Final = frozenset({"jsonrpc", "id", "result", "error", "status", "message"})
_OF_RECEIPT: Final = frozenset({*STATUS, *HASH, "isError", "logs", "items"})

T = TypeVar("T")


class TraceInputError(TollgaugeError):
    """An object that is not a transaction, receipt or call trace of an Ethereum node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The block of a transaction. `at` is milliseconds UTC, or None.

    `finality` is `latest`, `safe` or `finalized`; None if the node was not queried for it.
    """

    number: int
    hash: str | None = None
    at: int | None = None
    finality: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A sent transaction.

    Attributes:
        to: None for a contract creation.
        data: None if the call data is missing or unreadable.
        pending: None if the capture does not show whether it was mined.
        cut: The call data starts as hex, but is truncated.
        gas: The limit of gas that its sender set.
    """

    hash: str | None
    chain_id: int | None
    sender: str | None
    to: str | None
    data: bytes | None
    pending: bool | None
    block: Block | None
    cut: bool = False
    gas: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One event log. `index` is its index in the block, `tx_hash` its transaction; None if the
    capture lacks them.
    """

    address: str
    topics: tuple[str, ...]
    data: str
    index: int | None
    tx_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The outcome of a transaction.

    Attributes:
        ok, logs: None if the capture lacks them.
        whole: False if there may be more logs.
    """

    hash: str | None
    ok: bool | None
    sender: str | None
    block: Block | None
    logs: tuple[Log, ...] | None
    whole: bool = True


def unwrap_response(value: object) -> object:
    """Return the content of a saved response: the `result` of JSON-RPC or of an explorer's API,
    otherwise the value itself.

    Raises TraceInputError for an error response.
    """
    if not isinstance(value, dict):
        return value
    if "jsonrpc" not in value and not ("result" in value and value.keys() <= _ENVELOPE):
        return value
    if value.get("error") is not None or isinstance(value.get("result"), str):
        raise TraceInputError("The saved response is an error.", hint="Query the node again.")
    return value.get("result")


def read_transaction(value: object) -> Transaction:
    """Parse a transaction object. Raises TraceInputError."""
    fields = _require_object(value, "The transaction")
    if not fields.keys() & {*HASH, *DATA} or "topics" in fields:
        raise TraceInputError("The object has no hash and no input: it is not a transaction.")
    _, written = first_value(fields, DATA)
    data = _read_data(written)
    mined = [fields[name] for name in BLOCK if name in fields]
    return Transaction(
        hash=_read_field(fields, HASH, _parse_hash),
        chain_id=_read_field(fields, CHAIN, parse_number),
        sender=_read_field(fields, ("from",), parse_address),
        to=_read_field(fields, ("to",), parse_address),
        data=data,
        pending=all(value is None for value in mined) if mined else None,
        block=_read_block(fields),
        gas=_read_field(fields, ("gas", "gas_limit"), parse_number),
        cut=data is None and isinstance(written, str) and bool(_CUT.match(written)),
    )


def read_receipt(value: object) -> Receipt:
    """Parse a receipt object, or only a transaction's logs: a list of them, or a page of
    Blockscout.

    Raises TraceInputError.
    """
    if isinstance(value, list) and value:
        value = {"logs": value, MORE: {}}  # there may be more of them
    fields = _require_object(value, "The receipt")
    if not fields.keys() & _OF_RECEIPT:
        raise TraceInputError("The object has no status and no logs: it is not a receipt.")
    name, logs = first_value(fields, ("logs", "items"))
    if logs is not None and not isinstance(logs, list):
        raise TraceInputError("The receipt's logs are not an array.")
    read = [_read_log(item) for item in logs or ()]
    if name == "items" and all(log.index is not None for log in read):
        read.sort(key=lambda log: log.index or 0)  # an explorer may show the newest first
    return Receipt(
        hash=_read_field(fields, HASH, _parse_hash),
        ok=_read_status(fields),
        sender=_read_field(fields, ("from",), parse_address),
        block=_read_block(fields),
        logs=None if logs is None else tuple(read),
        whole=fields.get(MORE) is None,
    )


def own_receipt(value: object) -> Receipt | None:
    """Return the outcome in a transaction object itself, as in explorers' objects; None without
    one.

    Raises TraceInputError.
    """
    fields = _require_object(value, "The transaction")
    if not fields.keys() & {*STATUS, "isError", "logs"}:
        return None
    receipt = read_receipt(fields)
    return None if receipt.ok is None and receipt.logs is None else receipt


def merge_receipts(receipt: Receipt, other: Receipt) -> Receipt:
    """Return a receipt, completed with another one of the same transaction.

    Raises TraceInputError if their outcomes differ.
    """
    if None not in (receipt.ok, other.ok) and receipt.ok != other.ok:
        raise TraceInputError("The receipt and the transaction state different outcomes.")
    logs = receipt if receipt.logs is not None else other
    return replace(
        receipt,
        hash=receipt.hash or other.hash,
        ok=other.ok if receipt.ok is None else receipt.ok,
        sender=receipt.sender or other.sender,
        block=receipt.block or other.block,
        logs=logs.logs,
        whole=logs.whole,
    )


def first_value(fields: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, object]:
    """Return the first of some names that has a value, with the value; otherwise the first name and
    None.
    """
    for name in names:
        if fields.get(name) is not None:
            return name, fields[name]
    return names[0], None


def parse_number(value: object) -> int:
    """Parse a number from 0 to 2**64 - 1. Raises ValueError."""
    if isinstance(value, dict):  # a BigInt of wagmi, a BigNumber of ethers 5
        value = value.get("value") if value.get("__type") == "bigint" else value.get("hex")
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return value
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise ValueError("is not a number")
    return int(value, 16) if value.startswith("0x") else int(value.removesuffix("n"))


def parse_time(value: object) -> int:
    """Parse seconds or an ISO text as milliseconds UTC, from 1970 on. Raises ValueError."""
    if isinstance(value, str) and "-" in value:
        at = datetime.fromisoformat(value)
        value = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    return parse_number(value) * 1_000


def parse_hex(value: object, pattern: re.Pattern[str]) -> str:
    """Parse bytes as lower-case hex with 0x. Raises ValueError."""
    if isinstance(value, str):
        quoted = _HEX_BYTES.fullmatch(value)
        text = quoted[2] if quoted else value
        text = f"0x{text}" if _BARE.fullmatch(text) else text
        if pattern.fullmatch(text):
            return text.lower()
    raise ValueError("is not the expected hex")


def parse_address(value: object) -> str:
    """Parse an address, or an object with its `hash`. Raises ValueError."""
    return parse_hex(value.get("hash") if isinstance(value, dict) else value, EVM_ADDRESS_PATTERN)


def parse_status(fields: Mapping[str, Any]) -> bool | None:
    """Return whether a transaction succeeded; None if it is unknown. Raises ValueError."""
    _, value = first_value(fields, STATUS)
    if value is None or value == "":
        wrong = fields.get("isError")
        return None if wrong is None else parse_number(wrong) == 0
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _STATUS_WORDS:
        return _STATUS_WORDS[value.lower()]
    if isinstance(value, str) and value.lower() == "pending":
        return None
    status = parse_number(value)
    if status > 1:
        raise ValueError("is neither 0 nor 1")
    return status == 1


def _parse_hash(value: object) -> str:
    return parse_hex(value, EVM_WORD_PATTERN)


def _parse_bytes(value: object) -> str:
    return parse_hex(value, BYTES)


def _read_log(value: object) -> Log:
    """Parse one event log. Raises TraceInputError."""
    fields = _require_object(value, "A log")
    topics = fields.get("topics")
    if not isinstance(topics, list) or len(topics) > _TOPICS_MAX:
        raise TraceInputError("A log's topics are not an array of at most four.")
    if fields.get("removed") is True:
        raise TraceInputError("A log was removed: its block is no longer part of the chain.")
    while topics and topics[-1] is None:
        topics = topics[:-1]
    address = _read_field(fields, ("address",), parse_address)
    data = _read_field(fields, ("data",), _parse_bytes)
    if address is None or data is None:
        raise TraceInputError("A log has no address or no data.")
    try:
        hashes = tuple(_parse_hash(topic) for topic in topics)
    except ValueError as error:
        raise TraceInputError("A log's topic is not 32 bytes of hex.") from error
    return Log(
        address=address,
        topics=hashes,
        data=data,
        index=_read_field(fields, LOG_INDEX, _read_index),
        tx_hash=_read_field(fields, HASH, _parse_hash),
    )


def _read_block(fields: Mapping[str, Any]) -> Block | None:
    number = _read_field(fields, BLOCK, parse_number)
    if number is None:
        return None
    at = _read_field(fields, TIME, parse_time)
    return Block(number=number, hash=_read_field(fields, BLOCK_HASH, _parse_hash), at=at)


def _require_object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TraceInputError(f"{what} is not a JSON object.")
    return value


def _read_field(
    fields: Mapping[str, Any], names: tuple[str, ...], form: Callable[[object], T]
) -> T | None:
    """Return the value under one of some names, or None. Raises TraceInputError."""
    name, value = first_value(fields, names)
    try:
        return None if value is None else form(value)
    except ValueError as error:
        problem = str(error) if str(error).startswith("is ") else "is malformed"
        raise TraceInputError(f"The field {name} {problem}.") from error


def _read_status(fields: Mapping[str, Any]) -> bool | None:
    """Return whether the transaction succeeded; None if it is unknown. Raises TraceInputError."""
    try:
        return parse_status(fields)
    except ValueError as error:
        raise TraceInputError(
            "The receipt's status is neither 0 nor 1 nor a known word."
        ) from error


def _read_data(value: object) -> bytes | None:
    """Return call data; None unless it is hex."""
    try:
        return bytes.fromhex(parse_hex(value, BYTES)[2:])
    except ValueError:
        return None


def _read_index(value: object) -> int:
    """Return the index of a log, which Etherscan writes as `0x` for 0."""
    return parse_number("0x0" if value == "0x" else value)
