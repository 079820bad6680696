"""Calls inside call data: those that a contract's arguments request from other contracts.

The functions of well-known wrappers (batches, smart accounts, bundles) are read by their published
signatures. `_SIGNATURES` at the end of the module lists them with the shape of their arguments; to
support another one, add a line there. A part that exceeds the data is ignored, because its contract
would have reverted.

Work is bounded for any bytes: at most CALLS_MAX calls and DEPTH_MAX levels, and no bytes are copied
for a level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from eth_hash.auto import keccak

from tollgauge.core.chain.trace.calldata import (
    SELECTOR_SIZE,
    SELECTORS,
    WORD,
    Arguments,
    AuthorizedTransfer,
    Method,
    OutsideError,
    read_call,
    word,
)

CALLS_MAX: Final = 4_096
DEPTH_MAX: Final = 16
SCAN_MAX: Final = 4_096  # occurrences of a selector that are read
_PACKED_TERMS: Final = 168  # bytes of a row: from, to, value, validAfter, validBefore, nonce
_PACKED_SIGNATURE: Final = 65  # bytes of a row: v, r, s
_PACKED_CALL: Final = 85  # bytes before the data: operation, target, value, length


@dataclass(frozen=True, slots=True)
class InnerCall:
    """A call and the called contract: None if a contract calls itself, or if it is unknown."""

    target: str | None
    data: memoryview


Part = InnerCall | AuthorizedTransfer
Reader = Callable[[Arguments], Iterator[Part]]


def transfers_in(data: bytes, target: str | None) -> tuple[AuthorizedTransfer, ...]:
    """Return every EIP-3009 transfer that a call to `target` requests, directly or through
    wrappers.
    """
    transfers: list[AuthorizedTransfer] = []
    waiting: list[tuple[Part, int]] = [(InnerCall(target, memoryview(data)), 0)]
    budget = CALLS_MAX
    while waiting:
        part, depth = waiting.pop()
        transfer = read_call(part.data, part.target) if isinstance(part, InnerCall) else part
        if transfer is not None:
            transfers.append(transfer)
        elif isinstance(part, InnerCall) and depth < DEPTH_MAX:
            parts = list(islice(_read_complete(part), budget))
            budget -= len(parts)
            waiting += [(inner, depth + 1) for inner in reversed(parts)]
    return tuple(transfers)


def incomplete(data: bytes) -> bool:
    """Return whether call data ends before its arguments: it was truncated, or its contract would
    have reverted.

    False for functions that are unknown here.
    """
    if data[:SELECTOR_SIZE] in SELECTORS:
        return read_call(data) is None
    try:
        for _ in islice(_read_parts(InnerCall(None, memoryview(data))), CALLS_MAX):
            pass
    except OutsideError:
        return True
    return 0 < len(data) < SELECTOR_SIZE


def transfers_anywhere(data: bytes) -> tuple[AuthorizedTransfer, ...]:
    """Return everything that looks like an EIP-3009 call in the data, such as the calls in an
    unknown wrapper. The targets are unknown, and nothing proves that these bytes are a call.
    """
    transfers: list[AuthorizedTransfer] = []
    for selector in SELECTORS:
        at = data.find(selector)
        for _ in range(SCAN_MAX):
            if at < 0:
                break
            transfer = read_call(data, start=at, strict=True)
            if transfer is not None:
                transfers.append(transfer)
            at = data.find(selector, at + 1)
    return tuple(transfers)


def _read_parts(call: InnerCall) -> Iterator[Part]:
    """Yield the parts of a known wrapper, in order; nothing for any other function.

    Raises OutsideError if a part exceeds the data.
    """
    read = _WRAPPERS.get(bytes(call.data[:SELECTOR_SIZE]))
    if read is None:
        return
    for part in read(Arguments(call.data, SELECTOR_SIZE)):
        if isinstance(part, InnerCall) and part.target is None:
            part = InnerCall(call.target, part.data)
        yield part


def _read_complete(call: InnerCall) -> Iterator[Part]:
    """Yield the parts before the first one that exceeds the data."""
    with suppress(OutsideError):
        yield from _read_parts(call)


def _read_call(arguments: Arguments, *, target: int, data: int) -> Iterator[Part]:
    """Read one call from two arguments."""
    yield InnerCall(arguments.address(target), arguments.bytes(data))


def _read_tuples(arguments: Arguments, *, array: int, data: int) -> Iterator[Part]:
    """Read an array of tuples that begin with the target."""
    length, elements = arguments.items(array)
    for index in range(length):
        element = elements.at(index)
        yield InnerCall(element.address(0), element.bytes(data))


def _read_columns(arguments: Arguments, *, data: int) -> Iterator[Part]:
    """Read an array of targets, and one of their call data."""
    targets, addresses = arguments.items(0)
    length, elements = arguments.items(data)
    for index in range(min(targets, length)):
        yield InnerCall(addresses.address(index), elements.bytes(index))


def _read_own_calls(arguments: Arguments, *, array: int) -> Iterator[Part]:
    """Read an array of calls of the contract to itself."""
    length, elements = arguments.items(array)
    for index in range(length):
        yield InnerCall(None, elements.bytes(index))


def _read_execution(arguments: Arguments) -> Iterator[Part]:
    """Read an execution of ERC-7579: the mode's first byte selects one packed call (0) or an array
    of tuples (1).
    """
    kind, data = arguments.number(0) >> 248, arguments.bytes(1)
    if kind == 1:
        yield from _read_tuples(Arguments(data, 0), array=0, data=2)
    elif kind == 0 and len(data) >= 20 + WORD:
        yield InnerCall("0x" + data[:20].hex(), data[20 + WORD :])


def _read_packed_calls(arguments: Arguments) -> Iterator[Part]:
    """Read the calls of Safe's MultiSend: operation (1 byte), target (20), value (32), length (32),
    data.
    """
    data = arguments.bytes(0)
    at = 0
    while (start := at + _PACKED_CALL) <= len(data):
        length = word(data, at + 53)
        if length > len(data) - start:
            return
        yield InnerCall("0x" + data[at + 1 : at + 21].hex(), data[start : start + length])
        at = start + length


def _read_authorizations(arguments: Arguments) -> Iterator[Part]:
    """Read nine arrays: the arguments of `transferWithAuthorization`, one row per transfer."""
    columns = [arguments.items(index) for index in range(9)]
    payer, payee, value, after, before, nonce, v, r, s = (cells for _, cells in columns)
    for row in range(min(length for length, _ in columns)):
        signature = r.number(row).to_bytes(WORD) + s.number(row).to_bytes(WORD)
        yield AuthorizedTransfer(
            method=Method.TRANSFER,
            payer=payer.address(row),
            payee=payee.address(row),
            value=value.number(row),
            valid_after=after.number(row),
            valid_before=before.number(row),
            nonce=nonce.word(row),
            signature=signature + bytes([v.number(row) & 0xFF]),
        )


def _read_packed_authorizations(arguments: Arguments) -> Iterator[Part]:
    """Read rows of from (20 bytes), to (20), value, validAfter, validBefore, nonce (32 each), and
    rows of v (1), r, s (32 each).
    """
    terms, signatures = arguments.bytes(0), arguments.bytes(1)
    rows = min(len(terms) // _PACKED_TERMS, len(signatures) // _PACKED_SIGNATURE)
    for row in range(rows):
        fields = terms[row * _PACKED_TERMS : (row + 1) * _PACKED_TERMS]
        v_r_s = bytes(signatures[row * _PACKED_SIGNATURE : (row + 1) * _PACKED_SIGNATURE])
        yield AuthorizedTransfer(
            method=Method.TRANSFER,
            payer="0x" + fields[:20].hex(),
            payee="0x" + fields[20:40].hex(),
            value=word(fields, 40),
            valid_after=word(fields, 72),
            valid_before=word(fields, 104),
            nonce="0x" + fields[136:].hex(),
            signature=v_r_s[1:] + v_r_s[:1],
        )


ARRAYS: Final = (
    "batchTransferWithAuthorization(address[],address[],uint256[],uint256[],uint256[],bytes32[],"
    "uint8[],bytes32[],bytes32[],uint256)"
)
PACKED: Final = "transferWithMultipleAuthorizations(bytes,bytes,bool)"
_OPERATION_6: Final = (
    "(address,uint256,bytes,bytes,uint256,uint256,uint256,uint256,uint256,bytes,bytes)"
)
_OPERATION_7: Final = "(address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)"

_SIGNATURES: Final[dict[str, Reader]] = {
    # Multicall3 and its forerunners
    "aggregate((address,bytes)[])": partial(_read_tuples, array=0, data=1),
    "blockAndAggregate((address,bytes)[])": partial(_read_tuples, array=0, data=1),
    "tryAggregate(bool,(address,bytes)[])": partial(_read_tuples, array=1, data=1),
    "tryBlockAndAggregate(bool,(address,bytes)[])": partial(_read_tuples, array=1, data=1),
    "aggregate3((address,bool,bytes)[])": partial(_read_tuples, array=0, data=2),
    "aggregate3Value((address,bool,uint256,bytes)[])": partial(_read_tuples, array=0, data=3),
    # contracts that call themselves
    "multicall(bytes[])": partial(_read_own_calls, array=0),
    "multicall(uint256,bytes[])": partial(_read_own_calls, array=1),
    "multicall(bytes32,bytes[])": partial(_read_own_calls, array=1),
    "executeWithoutChainIdValidation(bytes[])": partial(_read_own_calls, array=0),
    # accounts
    "execute(address,uint256,bytes)": partial(_read_call, target=0, data=2),
    "execute(address,uint256,bytes,uint8)": partial(_read_call, target=0, data=2),
    "executeCall(address,uint256,bytes)": partial(_read_call, target=0, data=2),
    "executeBatch(address[],bytes[])": partial(_read_columns, data=1),
    "executeBatch(address[],uint256[],bytes[])": partial(_read_columns, data=2),
    "executeBatch((address,uint256,bytes)[])": partial(_read_tuples, array=0, data=2),
    "execute((address,uint256,bytes)[])": partial(_read_tuples, array=0, data=2),
    "execute(bytes32,bytes)": _read_execution,
    "executeFromExecutor(bytes32,bytes)": _read_execution,
    # Safe
    "execTransaction(address,uint256,bytes,uint8,uint256,uint256,uint256,address,address,bytes)": (
        partial(_read_call, target=0, data=2)
    ),
    "execTransactionFromModule(address,uint256,bytes,uint8)": partial(_read_call, target=0, data=2),
    "executeUserOp(address,uint256,bytes,uint8)": partial(_read_call, target=0, data=2),
    "executeUserOpWithErrorString(address,uint256,bytes,uint8)": partial(
        _read_call, target=0, data=2
    ),
    "multiSend(bytes)": _read_packed_calls,
    # ERC-4337, entry points 0.6 and 0.7
    f"handleOps({_OPERATION_6}[],address)": partial(_read_tuples, array=0, data=3),
    f"handleOps({_OPERATION_7}[],address)": partial(_read_tuples, array=0, data=3),
    # Batches whose rows are authorizations and not call data; the token is fixed and not named. The
    # second is Circle's FiatTokenUtil.
    ARRAYS: _read_authorizations,
    PACKED: _read_packed_authorizations,
}
_WRAPPERS: Final[dict[bytes, Reader]] = {
    keccak(text.encode())[:SELECTOR_SIZE]: reader for text, reader in _SIGNATURES.items()
}
