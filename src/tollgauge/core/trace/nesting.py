"""Nesting: the calls that a call's data tells another contract to make.

Rules:
- well-known wrappers are read by their published signatures: batchers (Multicall3), self-calls
  (`multicall`), smart accounts (`execute`, `executeBatch`, ERC-7579, Safe), bundles (ERC-4337
  `handleOps`, both entry points); lists of authorizations are core/trace/listed's;
- a part that does not fit the data is left out, as its contract would have reverted;
- work is bounded whatever the bytes are: at most CALLS_MAX calls in all and DEPTH_MAX levels, and
  no byte is copied to descend;
- an unknown wrapper hides nothing from `scanned`, which finds the bytes of an EIP-3009
  call anywhere; what it finds counts only where something else proves it (core/trace/decode).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, TypeVar

from eth_utils.abi import function_signature_to_4byte_selector

from tollgauge.core.trace.abi import Arguments, OutsideError
from tollgauge.core.trace.calldata import SELECTORS, WORD, Authorized, read_call, word
from tollgauge.core.trace.listed import listed

CALLS_MAX: Final = 4_096
DEPTH_MAX: Final = 16
SCAN_MAX: Final = 4_096
_SELECTOR_SIZE: Final = 4

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Inner:
    """One call: whom (None: not told by the data) and with what."""

    target: str | None
    data: memoryview


Reader = Callable[[Arguments, str | None], Iterator[Inner]]


def authorized(data: bytes, target: str | None) -> tuple[Authorized, ...]:
    """Every EIP-3009 transfer that a call to `target` asks for, itself or through wrappers."""
    transfers: list[Authorized] = []
    waiting = [(Inner(target, memoryview(data)), 0)]
    budget = CALLS_MAX
    while waiting and len(transfers) < CALLS_MAX:
        call, depth = waiting.pop()
        transfer = read_call(call.data, call.target)
        if transfer is not None:
            transfers.append(transfer)
            continue
        transfers += islice(_fitting(listed(call.data)), CALLS_MAX - len(transfers))
        if depth < DEPTH_MAX:
            inner = list(islice(_fitting(_inner(call)), budget))
            budget -= len(inner)
            waiting += [(inner_call, depth + 1) for inner_call in reversed(inner)]
    return tuple(transfers)


def incomplete(data: bytes) -> bool:
    """Whether call data ends before the arguments that it announces: it was cut, or its contract
    would have reverted. Data of functions that are not known here is never called so.
    """
    call = Inner(None, memoryview(data))
    if data[:_SELECTOR_SIZE] in SELECTORS:
        return read_call(data) is None
    try:
        for _ in islice(chain(listed(call.data), _inner(call)), CALLS_MAX):
            pass
    except OutsideError:
        return True
    return 0 < len(data) < _SELECTOR_SIZE


def scanned(data: bytes) -> tuple[Authorized, ...]:
    """Whatever looks like an EIP-3009 call anywhere in the data; its target is not known."""
    transfers: list[Authorized] = []
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


def _inner(call: Inner) -> Iterator[Inner]:
    """The calls that a known wrapper makes, in order; nothing for anything else. Raises
    OutsideError where one does not fit the data.
    """
    reader = _WRAPPERS.get(bytes(call.data[:4]))
    if reader is not None:
        yield from reader(Arguments(call.data, 4), call.target)


def _fitting(parts: Iterator[P]) -> Iterator[P]:
    """The parts up to the first that does not fit the data."""
    with suppress(OutsideError):
        yield from parts


def _single(target: int, data: int) -> Reader:
    """One call, in two arguments."""

    def read(arguments: Arguments, _caller: str | None) -> Iterator[Inner]:
        yield Inner(arguments.address(target), arguments.bytes(data))

    return read


def _tuples(array: int, *, data: int) -> Reader:
    """An array of tuples that begin with the target."""

    def read(arguments: Arguments, _caller: str | None) -> Iterator[Inner]:
        length, elements = arguments.items(array)
        for place in range(length):
            element = elements.at(place)
            yield Inner(element.address(0), element.bytes(data))

    return read


def _columns(*, data: int) -> Reader:
    """An array of targets, and one of their call data."""

    def read(arguments: Arguments, _caller: str | None) -> Iterator[Inner]:
        targets, addresses = arguments.items(0)
        length, elements = arguments.items(data)
        for place in range(min(targets, length)):
            yield Inner(addresses.address(place), elements.bytes(place))

    return read


def _own(array: int) -> Reader:
    """An array of call data for the called contract itself."""

    def read(arguments: Arguments, caller: str | None) -> Iterator[Inner]:
        length, elements = arguments.items(array)
        for place in range(length):
            yield Inner(caller, elements.bytes(place))

    return read


def _modular(arguments: Arguments, _caller: str | None) -> Iterator[Inner]:
    """ERC-7579: the mode's first byte says one packed call (0) or an array of tuples (1)."""
    kind, data = arguments.number(0) >> 248, arguments.bytes(1)
    if kind == 1:
        yield from _tuples(0, data=2)(Arguments(data, 0), None)
    elif kind == 0 and len(data) >= 20 + WORD:
        yield Inner("0x" + data[:20].hex(), data[20 + WORD :])


def _packed(arguments: Arguments, _caller: str | None) -> Iterator[Inner]:
    """Safe's MultiSend: operation (1 byte), target (20), value (32), length (32), data."""
    data = arguments.bytes(0)
    at = 0
    while at + 85 <= len(data):
        length = word(data, at + 53)
        if length > len(data) - at - 85:
            return
        yield Inner("0x" + data[at + 1 : at + 21].hex(), data[at + 85 : at + 85 + length])
        at += 85 + length


_OPERATION_6: Final = (
    "(address,uint256,bytes,bytes,uint256,uint256,uint256,uint256,uint256,bytes,bytes)"
)
_OPERATION_7: Final = "(address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)"

_SIGNATURES: Final[dict[str, Reader]] = {
    # Multicall3 and its forerunners
    "aggregate((address,bytes)[])": _tuples(0, data=1),
    "blockAndAggregate((address,bytes)[])": _tuples(0, data=1),
    "tryAggregate(bool,(address,bytes)[])": _tuples(1, data=1),
    "tryBlockAndAggregate(bool,(address,bytes)[])": _tuples(1, data=1),
    "aggregate3((address,bool,bytes)[])": _tuples(0, data=2),
    "aggregate3Value((address,bool,uint256,bytes)[])": _tuples(0, data=3),
    # contracts that call themselves
    "multicall(bytes[])": _own(0),
    "multicall(uint256,bytes[])": _own(1),
    "multicall(bytes32,bytes[])": _own(1),
    "executeWithoutChainIdValidation(bytes[])": _own(0),
    # accounts
    "execute(address,uint256,bytes)": _single(0, 2),
    "execute(address,uint256,bytes,uint8)": _single(0, 2),
    "executeCall(address,uint256,bytes)": _single(0, 2),
    "executeBatch(address[],bytes[])": _columns(data=1),
    "executeBatch(address[],uint256[],bytes[])": _columns(data=2),
    "executeBatch((address,uint256,bytes)[])": _tuples(0, data=2),
    "execute((address,uint256,bytes)[])": _tuples(0, data=2),
    "execute(bytes32,bytes)": _modular,
    "executeFromExecutor(bytes32,bytes)": _modular,
    # Safe
    "execTransaction(address,uint256,bytes,uint8,uint256,uint256,uint256,address,address,bytes)": (
        _single(0, 2)
    ),
    "execTransactionFromModule(address,uint256,bytes,uint8)": _single(0, 2),
    "executeUserOp(address,uint256,bytes,uint8)": _single(0, 2),
    "executeUserOpWithErrorString(address,uint256,bytes,uint8)": _single(0, 2),
    "multiSend(bytes)": _packed,
    # ERC-4337, entry points 0.6 and 0.7
    f"handleOps({_OPERATION_6}[],address)": _tuples(0, data=3),
    f"handleOps({_OPERATION_7}[],address)": _tuples(0, data=3),
}
_WRAPPERS: Final[dict[bytes, Reader]] = {
    function_signature_to_4byte_selector(text): reader for text, reader in _SIGNATURES.items()
}
