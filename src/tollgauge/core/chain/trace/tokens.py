"""Tokens: what a token's contract says of itself, read from the replies of `eth_call`.

A symbol is the contract's own text and untrusted: it is cleaned and cut, and no amount is shown in
dollars because of it.
`symbol()` answers an ABI string, or 32 bytes in old tokens (EIP-20 says string).
"""

from __future__ import annotations

import re
from typing import Final

from tollgauge.core.base.text import clean_text
from tollgauge.core.chain.trace.abi import WORD, word

SYMBOL_CALL: Final = "0x95d89b41"
DECIMALS_CALL: Final = "0x313ce567"
SYMBOL_MAX: Final = 16
DECIMALS_MAX: Final = 77
_HEX: Final = re.compile(r"0x(?:[0-9a-fA-F]{2}){1,4096}", re.ASCII)


def read_symbol(reply: object) -> str | None:
    """A symbol, or None for a reply that holds none."""
    data = _bytes(reply)
    if len(data) == WORD:
        raw = data.rstrip(b"\0")
    elif len(data) >= 2 * WORD and word(memoryview(data), 0) == WORD:
        length = word(memoryview(data), WORD)
        raw = data[2 * WORD : 2 * WORD + min(length, len(data))]
    else:
        return None
    return clean_text(raw.decode("utf-8", "replace"), SYMBOL_MAX) or None


def read_decimals(reply: object) -> int | None:
    """How many decimals a token shows, or None for a reply that is no such number."""
    data = _bytes(reply)
    if len(data) != WORD:
        return None
    decimals = word(memoryview(data), 0)
    return decimals if decimals <= DECIMALS_MAX else None


def _bytes(reply: object) -> bytes:
    if isinstance(reply, str) and _HEX.fullmatch(reply):
        return bytes.fromhex(reply[2:])
    return b""
