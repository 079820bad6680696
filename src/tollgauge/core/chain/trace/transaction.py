"""A transaction, its receipt and its logs, parsed from the JSON-RPC objects of a node.

Rules:
- hex becomes lower case; numbers may be hex, decimal text or JSON numbers;
- a missing part is None, because absence and emptiness differ: a receipt without `logs` shows
  nothing about transfers, one with an empty list proves that there were none;
- a malformed part raises TraceInputError, except call data that is not hex, which is unreadable and
  therefore None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import EVM_ADDRESS_PATTERN, EVM_WORD_PATTERN, SECOND_MS

BYTES: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*", re.ASCII)
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,19}", re.ASCII)

HASH: Final = ("hash", "transactionHash")
DATA: Final = ("input", "data")


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
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return value
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise ValueError("is not a number")
    return int(value, 16) if value.startswith("0x") else int(value)


def parse_hex(value: object, pattern: re.Pattern[str]) -> str:
    """Parse bytes as lower-case hex with 0x. Raises ValueError."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError("is not the expected hex")
    return value.lower()


def parse_status(value: object) -> bool:
    """Return whether a transaction succeeded. Raises ValueError."""
    status = parse_number(value)
    if status > 1:
        raise ValueError("is neither 0 nor 1")
    return status == 1


T = TypeVar("T")

_TOPICS_MAX: Final = 4
_hash: Final = partial(parse_hex, pattern=EVM_WORD_PATTERN)
_bytes: Final = partial(parse_hex, pattern=BYTES)
_address: Final = partial(parse_hex, pattern=EVM_ADDRESS_PATTERN)


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
        gas: The limit of gas that its sender set.
    """

    hash: str | None
    chain_id: int | None
    sender: str | None
    to: str | None
    data: bytes | None
    pending: bool | None
    block: Block | None
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
    """The outcome of a transaction. `ok` and `logs` are None if the capture lacks them."""

    hash: str | None
    ok: bool | None
    sender: str | None
    block: Block | None
    logs: tuple[Log, ...] | None


def unwrap_response(value: object) -> object:
    """Return the `result` of a saved JSON-RPC response, otherwise the value itself.

    Raises TraceInputError for an error response.
    """
    if not isinstance(value, dict) or not value.keys() & {"jsonrpc", "result"}:
        return value
    if value.get("error") is not None:
        raise TraceInputError("The saved response is an error.", hint="Query the node again.")
    return value.get("result")


def read_transaction(value: object) -> Transaction:
    """Parse a transaction object. Raises TraceInputError."""
    fields = _object(value, "The transaction")
    if not fields.keys() & {*HASH, *DATA} or "topics" in fields:
        raise TraceInputError("The object has no hash and no input: it is not a transaction.")
    _, written = first_value(fields, DATA)
    return Transaction(
        hash=_read(fields, HASH, _hash),
        chain_id=_read(fields, ("chainId",), parse_number),
        sender=_read(fields, ("from",), _address),
        to=_read(fields, ("to",), _address),
        data=_data(written),
        pending=fields["blockNumber"] is None if "blockNumber" in fields else None,
        block=_block(fields),
        gas=_read(fields, ("gas",), parse_number),
    )


def read_receipt(value: object) -> Receipt:
    """Parse a receipt object. Raises TraceInputError."""
    fields = _object(value, "The receipt")
    if not fields.keys() & {*HASH, "status", "logs"}:
        raise TraceInputError("The object has no status and no logs: it is not a receipt.")
    logs = fields.get("logs")
    if not isinstance(logs, list | None):
        raise TraceInputError("The receipt's logs are not an array.")
    return Receipt(
        hash=_read(fields, HASH, _hash),
        ok=_read(fields, ("status",), parse_status),
        sender=_read(fields, ("from",), _address),
        block=_block(fields),
        logs=None if logs is None else tuple(map(_log, logs)),
    )


def _log(value: object) -> Log:
    """Parse one event log. Raises TraceInputError."""
    fields = _object(value, "A log")
    topics = fields.get("topics")
    if not isinstance(topics, list) or len(topics) > _TOPICS_MAX:
        raise TraceInputError("A log's topics are not an array of at most four.")
    if fields.get("removed") is True:
        raise TraceInputError("A log was removed: its block is no longer part of the chain.")
    address = _read(fields, ("address",), _address)
    data = _read(fields, ("data",), _bytes)
    if address is None or data is None:
        raise TraceInputError("A log has no address or no data.")
    try:
        hashes = tuple(_hash(topic) for topic in topics)
    except ValueError as error:
        raise TraceInputError("A log's topic is not 32 bytes of hex.") from error
    return Log(
        address=address,
        topics=hashes,
        data=data,
        index=_read(fields, ("logIndex",), parse_number),
        tx_hash=_read(fields, HASH, _hash),
    )


def _block(fields: Mapping[str, Any]) -> Block | None:
    number = _read(fields, ("blockNumber",), parse_number)
    if number is None:
        return None
    at = _read(fields, ("blockTimestamp",), parse_number)
    return Block(
        number=number,
        hash=_read(fields, ("blockHash",), _hash),
        at=None if at is None else at * SECOND_MS,
    )


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TraceInputError(f"{what} is not a JSON object.")
    return value


def _read(
    fields: Mapping[str, Any], names: tuple[str, ...], form: Callable[[object], T]
) -> T | None:
    """Return the value under one of some names, or None. Raises TraceInputError."""
    name, value = first_value(fields, names)
    try:
        return None if value is None else form(value)
    except ValueError as error:
        words = str(error) if str(error).startswith("is ") else "is malformed"
        raise TraceInputError(f"The field {name} {words}.") from error


def _data(value: object) -> bytes | None:
    """Return call data; None unless it is hex."""
    try:
        return bytes.fromhex(_bytes(value)[2:])
    except ValueError:
        return None
