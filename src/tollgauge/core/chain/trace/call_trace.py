"""CallTrace: the EIP-3009 transfers in a call trace (debug_traceTransaction, `callTracer`).

Rules:
- a token keeps its own balances, so it is reached by CALL: a DELEGATECALL frame is a proxy's
  implementation running the same call a second time and is not counted;
- a frame with an `error` changed nothing, and neither did any frame inside it;
- a frame that lacks a type, or whose parts have other types, raises TraceInputError;
- frames are read without recursion, so that no depth exhausts the stack.

Wrappers need not be known here: the node itself says which calls there were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tollgauge.core.base.units import EVM_ADDRESS_PATTERN
from tollgauge.core.chain.trace.calldata import SELECTORS, AuthorizedTransfer, read_call
from tollgauge.core.chain.trace.transaction import TraceInputError

_PREFIXES: Final = tuple("0x" + selector.hex() for selector in SELECTORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTrace:
    """What a trace says: whether the outermost call succeeded, and the transfers that were called,
    in order.
    """

    ok: bool
    calls: tuple[AuthorizedTransfer, ...]


def read_call_trace(value: object) -> CallTrace:
    """The outermost frame of a call trace. Raises TraceInputError."""
    if not isinstance(value, dict):
        raise TraceInputError("The call trace is no JSON object.")
    transfers = []
    waiting: list[Any] = [value]
    while waiting:
        frame = waiting.pop()
        if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
            raise TraceInputError("A frame of the call trace has no type.")
        if frame.get("error") is not None:
            continue
        transfer = _transfer(frame)
        if transfer is not None:
            transfers.append(transfer)
        inner = frame.get("calls")
        if not isinstance(inner, list | None):
            raise TraceInputError("A frame's calls are no list.")
        waiting += reversed(inner or [])
    return CallTrace(ok=value.get("error") is None, calls=tuple(transfers))


def _transfer(frame: dict[str, Any]) -> AuthorizedTransfer | None:
    """The EIP-3009 transfer that a frame calls, if it is one."""
    data, target = frame.get("input"), frame.get("to")
    if frame["type"] != "CALL" or not isinstance(data, str):
        return None
    if not data[:10].lower().startswith(_PREFIXES):
        return None
    if not isinstance(target, str) or not EVM_ADDRESS_PATTERN.fullmatch(target):
        raise TraceInputError("A frame's address is malformed.")
    try:
        return read_call(bytes.fromhex(data[2:]), target.lower())
    except ValueError as error:
        raise TraceInputError("A frame's input is not hex.") from error
