"""Calls inside call data: those that a contract's arguments request from other contracts.

Rules:
- well-known wrappers are read by their published signatures: batchers (Multicall3), self-calls
  (`multicall`), smart accounts (`execute`, `executeBatch`, ERC-7579, Safe), bundles (ERC-4337
  `handleOps`, both entry points);
- two batch contracts take authorizations as lists and not as call data, and call
  `transferWithAuthorization` for every row: `batchTransferWithAuthorization`, whose parallel
  arrays are the arguments of the token's function, and Circle's FiatTokenUtil, which packs them
  tightly. Their token is fixed, so rows do not name it;
- a part that exceeds the data is ignored, because its contract would have reverted;
- work is bounded for any bytes: at most CALLS_MAX calls in all and DEPTH_MAX levels, and no bytes
  are copied for a level;
- in an unknown wrapper, `transfers_anywhere` searches for the bytes of EIP-3009 calls; such calls
  count only if something else proves them (core/chain/trace/decode).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from eth_utils.abi import function_signature_to_4byte_selector

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
SCAN_MAX: Final = 4_096
_TERMS_SIZE: Final = 168
_SIGNATURE_SIZE: Final = 65
_CALL_HEAD: Final = 85
"""Bytes before the data of a call in Safe's MultiSend."""


@dataclass(frozen=True, slots=True)
class InnerCall:
    """One call: the called contract (None if the data does not name it) and its call data."""

    target: str | None
    data: memoryview


Part = InnerCall | AuthorizedTransfer
Reader = Callable[[Arguments, str | None], Iterator[Part]]


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
            parts = list(islice(_iterate_complete(part), budget))
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
        for _ in islice(_parts(InnerCall(None, memoryview(data))), CALLS_MAX):
            pass
    except OutsideError:
        return True
    return 0 < len(data) < SELECTOR_SIZE


def transfers_anywhere(data: bytes) -> tuple[AuthorizedTransfer, ...]:
    """Return everything that looks like an EIP-3009 call in the data; the targets are unknown."""
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


def _parts(call: InnerCall) -> Iterator[Part]:
    """Yield the calls or rows of a known wrapper, in order; nothing for any other function.

    Raises OutsideError if a part exceeds the data.
    """
    reader = _WRAPPERS.get(bytes(call.data[:SELECTOR_SIZE]))
    if reader is not None:
        yield from reader(Arguments(call.data, SELECTOR_SIZE), call.target)


def _iterate_complete(call: InnerCall) -> Iterator[Part]:
    """Yield the parts before the first one that exceeds the data."""
    with suppress(OutsideError):
        yield from _parts(call)


def _single(arguments: Arguments, _caller: str | None, *, target: int, data: int) -> Iterator[Part]:
    """One call, in two arguments."""
    yield InnerCall(arguments.address(target), arguments.bytes(data))


def _tuples(arguments: Arguments, _caller: str | None, *, array: int, data: int) -> Iterator[Part]:
    """An array of tuples that begin with the target."""
    length, elements = arguments.items(array)
    for place in range(length):
        element = elements.at(place)
        yield InnerCall(element.address(0), element.bytes(data))


def _columns(arguments: Arguments, _caller: str | None, *, data: int) -> Iterator[Part]:
    """An array of targets, and one of their call data."""
    targets, addresses = arguments.items(0)
    length, elements = arguments.items(data)
    for place in range(min(targets, length)):
        yield InnerCall(addresses.address(place), elements.bytes(place))


def _read_own_calls(arguments: Arguments, caller: str | None, *, array: int) -> Iterator[Part]:
    """An array of call data for the called contract itself."""
    length, elements = arguments.items(array)
    for place in range(length):
        yield InnerCall(caller, elements.bytes(place))


def _modular(arguments: Arguments, _caller: str | None) -> Iterator[Part]:
    """ERC-7579: the mode's first byte selects one packed call (0) or an array of tuples (1)."""
    kind, data = arguments.number(0) >> 248, arguments.bytes(1)
    if kind == 1:
        yield from _tuples(Arguments(data, 0), None, array=0, data=2)
    elif kind == 0 and len(data) >= 20 + WORD:
        yield InnerCall("0x" + data[:20].hex(), data[20 + WORD :])


def _read_packed_calls(arguments: Arguments, _caller: str | None) -> Iterator[Part]:
    """Safe's MultiSend: operation (1 byte), target (20), value (32), length (32), data."""
    data = arguments.bytes(0)
    at = 0
    while (start := at + _CALL_HEAD) <= len(data):
        length = word(data, at + 53)
        if length > len(data) - start:
            return
        yield InnerCall("0x" + data[at + 1 : at + 21].hex(), data[start : start + length])
        at = start + length


def _array_list(arguments: Arguments, _caller: str | None) -> Iterator[Part]:
    """Nine arrays: the arguments of `transferWithAuthorization`, one row per transfer."""
    columns = [arguments.items(place) for place in range(9)]
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


def _packed_list(arguments: Arguments, _caller: str | None) -> Iterator[Part]:
    """Rows of from (20 bytes), to (20), value, validAfter, validBefore, nonce (32 each); rows of
    v (1), r, s (32 each).
    """
    terms, signatures = arguments.bytes(0), arguments.bytes(1)
    rows = min(len(terms) // _TERMS_SIZE, len(signatures) // _SIGNATURE_SIZE)
    for row in range(rows):
        at, signed = row * _TERMS_SIZE, row * _SIGNATURE_SIZE
        yield AuthorizedTransfer(
            method=Method.TRANSFER,
            payer="0x" + terms[at : at + 20].hex(),
            payee="0x" + terms[at + 20 : at + 40].hex(),
            value=word(terms, at + 40),
            valid_after=word(terms, at + 72),
            valid_before=word(terms, at + 104),
            nonce="0x" + terms[at + 136 : at + _TERMS_SIZE].hex(),
            signature=bytes(signatures[signed + 1 : signed + _SIGNATURE_SIZE])
            + bytes(signatures[signed : signed + 1]),
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
    "aggregate((address,bytes)[])": partial(_tuples, array=0, data=1),
    "blockAndAggregate((address,bytes)[])": partial(_tuples, array=0, data=1),
    "tryAggregate(bool,(address,bytes)[])": partial(_tuples, array=1, data=1),
    "tryBlockAndAggregate(bool,(address,bytes)[])": partial(_tuples, array=1, data=1),
    "aggregate3((address,bool,bytes)[])": partial(_tuples, array=0, data=2),
    "aggregate3Value((address,bool,uint256,bytes)[])": partial(_tuples, array=0, data=3),
    # contracts that call themselves
    "multicall(bytes[])": partial(_read_own_calls, array=0),
    "multicall(uint256,bytes[])": partial(_read_own_calls, array=1),
    "multicall(bytes32,bytes[])": partial(_read_own_calls, array=1),
    "executeWithoutChainIdValidation(bytes[])": partial(_read_own_calls, array=0),
    # accounts
    "execute(address,uint256,bytes)": partial(_single, target=0, data=2),
    "execute(address,uint256,bytes,uint8)": partial(_single, target=0, data=2),
    "executeCall(address,uint256,bytes)": partial(_single, target=0, data=2),
    "executeBatch(address[],bytes[])": partial(_columns, data=1),
    "executeBatch(address[],uint256[],bytes[])": partial(_columns, data=2),
    "executeBatch((address,uint256,bytes)[])": partial(_tuples, array=0, data=2),
    "execute((address,uint256,bytes)[])": partial(_tuples, array=0, data=2),
    "execute(bytes32,bytes)": _modular,
    "executeFromExecutor(bytes32,bytes)": _modular,
    # Safe
    "execTransaction(address,uint256,bytes,uint8,uint256,uint256,uint256,address,address,bytes)": (
        partial(_single, target=0, data=2)
    ),
    "execTransactionFromModule(address,uint256,bytes,uint8)": partial(_single, target=0, data=2),
    "executeUserOp(address,uint256,bytes,uint8)": partial(_single, target=0, data=2),
    "executeUserOpWithErrorString(address,uint256,bytes,uint8)": partial(_single, target=0, data=2),
    "multiSend(bytes)": _read_packed_calls,
    # ERC-4337, entry points 0.6 and 0.7
    f"handleOps({_OPERATION_6}[],address)": partial(_tuples, array=0, data=3),
    f"handleOps({_OPERATION_7}[],address)": partial(_tuples, array=0, data=3),
    # lists of authorizations
    ARRAYS: _array_list,
    PACKED: _packed_list,
}
_WRAPPERS: Final[dict[bytes, Reader]] = {
    function_signature_to_4byte_selector(text): reader for text, reader in _SIGNATURES.items()
}
