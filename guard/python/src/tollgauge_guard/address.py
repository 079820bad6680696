"""Address: whether a text is the address of an account on an EVM chain (EIP-55)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from eth_hash.auto import keccak

_HEX: Final = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_ZERO: Final = "0x" + "0" * 40


def parse_address(text: object) -> str | None:
    """The address in lower case, or None for what is none: not 20 bytes of hex, in mixed case with
    a wrong checksum (EIP-55: somebody mistyped it), or the zero address, which nobody owns.
    """
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        return None
    lower = text.lower()
    digits = text[2:]
    is_one_case = digits in (digits.lower(), digits.upper())
    return lower if lower != _ZERO and (is_one_case or text == checksum(lower)) else None


@lru_cache(maxsize=4_096)
def checksum(lower: str) -> str:
    """The mixed-case form of a lower-case address (EIP-55)."""
    digits = lower[2:]
    digest = keccak(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(nibble, 16) >= 8 else digit
        for digit, nibble in zip(digits, digest, strict=False)
    )
