"""A transaction, its receipt and its logs, read from what a node or a client wrote.

Rules:
- what a node sent, or what somebody saved of it, is read once into the small types below; hex is
  lower case, numbers are integers. Names and values may be those of JSON-RPC, of client libraries
  or of explorers (core/chain/trace/forms);
- a part that is missing is None, because absence and emptiness differ: a receipt without `logs`
  tells nothing about transfers, one with an empty list says that there were none;
- a part that is present and malformed raises TraceInputError, except call data that is no hex,
  which is unreadable and hence None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import EVM_WORD_PATTERN
from tollgauge.core.chain.trace import forms

T = TypeVar("T")

_CUT: Final = re.compile(r"0x[0-9a-fA-F]|[0-9a-fA-F]{8}", re.ASCII)
_TOPICS_MAX: Final = 4
_ENVELOPE: Final = frozenset({"jsonrpc", "id", "result", "error", "status", "message"})
_hash: Final = partial(forms.hexadecimal, pattern=EVM_WORD_PATTERN)
_bytes: Final = partial(forms.hexadecimal, pattern=forms.BYTES)
_OF_RECEIPT: Final = frozenset({*forms.STATUS, *forms.HASH, "isError", "logs", "items"})


class TraceInputError(TollgaugeError):
    """Something that is no transaction, receipt or call trace of an Ethereum node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Where a transaction was mined. `at` is milliseconds UTC; None where it is not known.

    `finality` is `latest`, `safe` or `finalized`, None where the node was not asked for it.
    """

    number: int
    hash: str | None = None
    at: int | None = None
    finality: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What was sent. `pending` is None where the capture does not say whether it was mined;
    `data` is None where the call data is missing or unreadable, and `cut` says that it begins as
    hex and does not end so; `to` is None for a creation.
    """

    hash: str | None
    chain_id: int | None
    sender: str | None
    to: str | None
    data: bytes | None
    pending: bool | None
    block: Block | None
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One event log. `index` is its place in the block, `tx_hash` the transaction that it names;
    None where the capture leaves them out.
    """

    address: str
    topics: tuple[str, ...]
    data: str
    index: int | None
    tx_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a transaction. `ok` and `logs` are None where the capture leaves them out;
    `whole` is False where there may be more logs than these.
    """

    hash: str | None
    ok: bool | None
    sender: str | None
    block: Block | None
    logs: tuple[Log, ...] | None
    whole: bool = True


def unwrapped(value: object) -> object:
    """What a saved reply holds: the `result` of JSON-RPC or of an explorer's API, else the value
    itself. Raises TraceInputError for a reply that tells an error.
    """
    if not isinstance(value, dict):
        return value
    if "jsonrpc" not in value and not ("result" in value and value.keys() <= _ENVELOPE):
        return value
    if value.get("error") is not None or isinstance(value.get("result"), str):
        raise TraceInputError(
            "The saved reply is an error and not an answer.", hint="Ask the node again."
        )
    return value.get("result")


def read_transaction(value: object) -> Transaction:
    """A transaction object. Raises TraceInputError."""
    fields = _object(value, "The transaction")
    if not fields.keys() & {*forms.HASH, *forms.DATA} or "topics" in fields:
        raise TraceInputError("The object has neither a hash nor an input: it is no transaction.")
    _, written = forms.named(fields, forms.DATA)
    data = _data(written)
    mined = [fields[name] for name in forms.BLOCK if name in fields]
    return Transaction(
        hash=_read(fields, forms.HASH, _hash),
        chain_id=_read(fields, forms.CHAIN, forms.number),
        sender=_read(fields, ("from",), forms.address),
        to=_read(fields, ("to",), forms.address),
        data=data,
        pending=all(value is None for value in mined) if mined else None,
        block=_block(fields),
        cut=data is None and isinstance(written, str) and bool(_CUT.match(written)),
    )


def read_receipt(value: object) -> Receipt:
    """A receipt object, or a transaction's logs alone: a list of them, or a page of Blockscout.
    Raises TraceInputError.
    """
    if isinstance(value, list) and value:
        value = {"logs": value, forms.MORE: {}}  # there may be more of them
    fields = _object(value, "The receipt")
    if not fields.keys() & _OF_RECEIPT:
        raise TraceInputError("The object has neither a status nor logs: it is no receipt.")
    name, logs = forms.named(fields, ("logs", "items"))
    if logs is not None and not isinstance(logs, list):
        raise TraceInputError("The receipt's logs are no list.")
    read = [_log(item) for item in logs or ()]
    if name == "items" and all(log.index is not None for log in read):
        read.sort(key=lambda log: log.index or 0)  # an explorer may show the newest first
    return Receipt(
        hash=_read(fields, forms.HASH, _hash),
        ok=_outcome(fields),
        sender=_read(fields, ("from",), forms.address),
        block=_block(fields),
        logs=None if logs is None else tuple(read),
        whole=fields.get(forms.MORE) is None,
    )


def own_receipt(value: object) -> Receipt | None:
    """What a transaction object itself says of its outcome, as explorers' objects do; None where
    it says nothing. Raises TraceInputError.
    """
    fields = _object(value, "The transaction")
    if not fields.keys() & {*forms.STATUS, "isError", "logs"}:
        return None
    receipt = read_receipt(fields)
    return None if receipt.ok is None and receipt.logs is None else receipt


def merged(receipt: Receipt, other: Receipt) -> Receipt:
    """A receipt, completed with what another one of the same transaction says. Raises
    TraceInputError where their outcomes differ.
    """
    if None not in (receipt.ok, other.ok) and receipt.ok != other.ok:
        raise TraceInputError("The receipt and the transaction tell different outcomes.")
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


def _log(value: object) -> Log:
    """One event log. Raises TraceInputError."""
    fields = _object(value, "A log")
    topics = fields.get("topics")
    if not isinstance(topics, list) or len(topics) > _TOPICS_MAX:
        raise TraceInputError("A log's topics are no list of at most four.")
    if fields.get("removed") is True:
        raise TraceInputError("A log was removed: its block is not part of the chain any more.")
    while topics and topics[-1] is None:
        topics = topics[:-1]
    address = _read(fields, ("address",), forms.address)
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
        index=_read(fields, forms.LOG_INDEX, _index),
        tx_hash=_read(fields, forms.HASH, _hash),
    )


def _block(fields: Mapping[str, Any]) -> Block | None:
    number = _read(fields, forms.BLOCK, forms.number)
    if number is None:
        return None
    at = _read(fields, forms.TIME, forms.milliseconds)
    return Block(number=number, hash=_read(fields, forms.BLOCK_HASH, _hash), at=at)


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TraceInputError(f"{what} is no JSON object.")
    return value


def _read(
    fields: Mapping[str, Any], names: tuple[str, ...], form: Callable[[object], T]
) -> T | None:
    """The value under one of some names, None where there is none. Raises TraceInputError."""
    name, value = forms.named(fields, names)
    try:
        return None if value is None else form(value)
    except ValueError as error:
        words = str(error) if str(error).startswith("is ") else "is malformed"
        raise TraceInputError(f"The field {name} {words}.") from error


def _outcome(fields: Mapping[str, Any]) -> bool | None:
    """Whether the transaction succeeded, None where nothing says it. Raises TraceInputError."""
    try:
        return forms.outcome(fields)
    except ValueError as error:
        raise TraceInputError(
            "The receipt's status is neither 0 nor 1, and no word for it."
        ) from error


def _data(value: object) -> bytes | None:
    """Call data; None for what is no hex."""
    try:
        return bytes.fromhex(_bytes(value)[2:])
    except ValueError:
        return None


def _index(value: object) -> int:
    """The index of a log, which Etherscan writes as `0x` for 0."""
    return forms.number("0x0" if value == "0x" else value)
