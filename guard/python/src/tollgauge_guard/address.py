"""Addresses of accounts on EVM chains (EIP-55) and Solana (base58)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from eth_hash.auto import keccak

_HEX: Final = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_ZERO: Final = "0x" + "0" * 40
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_KEY_BYTES: Final = 32


def parse_account(text: object, network: str = "") -> str | None:
    """Return the address of an account on a network (CAIP-2; any if empty), None if malformed."""
    if network.startswith("solana:") or (not network and not str(text).startswith("0x")):
        return text if isinstance(text, str) and _is_public_key(text) else None
    return parse_address(text)


def parse_address(text: object) -> str | None:
    """Return an EVM address in lower case.

    Returns None if it is not 20 bytes of hex, is in mixed case with a wrong checksum (EIP-55), or
    is the zero address.
    """
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        return None
    lower = text.lower()
    digits = text[2:]
    is_one_case = digits in (digits.lower(), digits.upper())
    return lower if lower != _ZERO and (is_one_case or text == checksum(lower)) else None


@lru_cache(maxsize=4_096)
def checksum(lower: str) -> str:
    """Return the mixed-case form of a lower-case address (EIP-55)."""
    digits = lower[2:]
    digest = keccak(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(nibble, 16) >= 8 else digit
        for digit, nibble in zip(digits, digest, strict=False)
    )


def _is_public_key(text: str) -> bool:
    """Whether a text is 32 bytes in base58 and not all zero."""
    if not 32 <= len(text) <= 44 or any(digit not in _BASE58 for digit in text):
        return False
    value = 0
    for digit in text:
        value = value * 58 + _BASE58.index(digit)
    zeros = len(text) - len(text.lstrip("1"))
    return value > 0 and zeros + (value.bit_length() + 7) // 8 == _KEY_BYTES
