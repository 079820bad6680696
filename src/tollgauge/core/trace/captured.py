"""Captured: a transaction, its receipt and its logs, read from the objects of JSON-RPC.

Rules:
- what a node sent, or what somebody saved of it, is read once into the small types below; hex is
  lower case, numbers are integers (saved ones may be decimal);
- a part that is missing is None, because absence and emptiness differ: a receipt without `logs`
  says nothing of transfers, one with an empty list says that there were none;
- a part that is present and malformed raises CaptureError, except call data that is no hex, which
  is unreadable and hence None.

Field names are those of the Ethereum execution API (eth_getTransactionByHash and
eth_getTransactionReceipt). What the parts mean is the other modules' work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from tollgauge.core.errors import TollgaugeError

TX_HASH: Final = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_HEX: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*", re.ASCII)
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,19}", re.ASCII)
_TOPICS_MAX: Final = 4


class CaptureError(TollgaugeError):
    """Something that is no transaction, receipt or call trace of an Ethereum node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Where a transaction was mined. `at` is milliseconds UTC; None where it is not known.

    `finality` is `latest`, `safe` or `finalized`, None where nobody asked.
    """

    number: int
    hash: str | None = None
    at: int | None = None
    finality: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What was sent. `pending` is None where the capture does not say whether it was mined;
    `data` is None where the call data is missing or unreadable; `to` is None for a creation.
    """

    hash: str | None
    chain_id: int | None
    sender: str | None
    to: str | None
    data: bytes | None
    pending: bool | None
    block: Block | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One event log. `index` is its place in the block, None where the capture leaves it out."""

    address: str
    topics: tuple[str, ...]
    data: str
    index: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a transaction. `ok` and `logs` are None where the capture leaves them out."""

    hash: str | None
    ok: bool | None
    sender: str | None
    block: Block | None
    logs: tuple[Log, ...] | None


def unwrapped(value: object) -> object:
    """The result of a saved JSON-RPC reply, or the value itself."""
    if isinstance(value, dict) and "jsonrpc" in value:
        return value.get("result")
    return value


def read_transaction(value: object) -> Transaction:
    """A transaction object. Raises CaptureError."""
    found = _object(value, "The transaction")
    if not found.keys() & {"hash", "input", "data"}:
        raise CaptureError("The object has neither a hash nor an input: it is no transaction.")
    number = found.get("blockNumber")
    data = found.get("input", found.get("data"))
    readable = isinstance(data, str) and _HEX.fullmatch(data)
    return Transaction(
        hash=_hex(found, "hash", TX_HASH),
        chain_id=_quantity(found, "chainId"),
        sender=_hex(found, "from", ADDRESS),
        to=_hex(found, "to", ADDRESS),
        data=bytes.fromhex(str(data)[2:]) if readable else None,
        pending=number is None if "blockNumber" in found else None,
        block=_block(found),
    )


def read_receipt(value: object) -> Receipt:
    """A receipt object. Raises CaptureError."""
    found = _object(value, "The receipt")
    status = _quantity(found, "status")
    if status not in (None, 0, 1):
        raise CaptureError("The receipt's status is neither 0 nor 1.")
    logs = found.get("logs")
    if logs is not None and not isinstance(logs, list):
        raise CaptureError("The receipt's logs are no list.")
    return Receipt(
        hash=_hex(found, "transactionHash", TX_HASH),
        ok=None if status is None else status == 1,
        sender=_hex(found, "from", ADDRESS),
        block=_block(found),
        logs=None if logs is None else tuple(_log(item) for item in logs),
    )


def _log(value: object) -> Log:
    found = _object(value, "A log")
    topics = found.get("topics")
    if not isinstance(topics, list) or len(topics) > _TOPICS_MAX:
        raise CaptureError("A log's topics are no list of at most four.")
    if not all(isinstance(topic, str) and TX_HASH.fullmatch(topic) for topic in topics):
        raise CaptureError("A log's topic is not 32 bytes of hex.")
    address, data = found.get("address"), found.get("data")
    if not isinstance(address, str) or not ADDRESS.fullmatch(address):
        raise CaptureError("A log's address is not 20 bytes of hex.")
    if not isinstance(data, str) or not _HEX.fullmatch(data):
        raise CaptureError("A log's data is not hex.")
    return Log(
        address=address.lower(),
        topics=tuple(topic.lower() for topic in topics),
        data=data.lower(),
        index=_quantity(found, "logIndex"),
    )


def _block(found: dict[str, Any]) -> Block | None:
    number, at = _quantity(found, "blockNumber"), _quantity(found, "blockTimestamp")
    if number is None:
        return None
    return Block(
        number=number,
        hash=_hex(found, "blockHash", TX_HASH),
        at=None if at is None else at * 1_000,
    )


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CaptureError(f"{what} is no JSON object.")
    return value


def _hex(found: dict[str, Any], key: str, pattern: re.Pattern[str]) -> str | None:
    value = found.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise CaptureError(f"The field {key} is not the expected hex.")
    return value.lower()


def _quantity(found: dict[str, Any], key: str) -> int | None:
    """A number below 2**64: as JSON-RPC writes it, or as a person saved it."""
    value = found.get(key)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return value
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise CaptureError(f"The field {key} is not a number.")
    return int(value, 16 if value.startswith("0x") else 10)
