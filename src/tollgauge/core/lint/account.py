"""Accounts: what the account of a network looks like.

EVM addresses (EIP-55), Solana's keys and TON's addresses are checked in full; the forms of other
chains are only compared loosely, to tell one chain's account from another's. Nothing here raises.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode
from functools import lru_cache
from typing import Final

from eth_utils.address import to_checksum_address

from tollgauge.core.base.units import EVM_ADDRESS_PATTERN

_KEY: Final = re.compile(r"[1-9A-HJ-NP-Za-km-z]{32,44}", re.ASCII)
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_KEY_BYTES: Final = 32
ZERO_ADDRESS: Final = "0x" + "0" * 40
NATIVE_COIN: Final = "0x" + "e" * 40
"""What exchanges write for a chain's own coin; it is no token."""
ZERO_KEY: Final = "1" * 32
"""Solana's system program, whose key is all zeros."""
ZERO_TON_ADDRESS: Final = "0:" + "0" * 64
_TON_RAW: Final = re.compile(r"(-1|0):([0-9a-fA-F]{64})", re.ASCII)
_TON_FRIENDLY: Final = re.compile(r"[0-9A-Za-z_/+-]{48}", re.ASCII)
_TON_TAGS: Final = (0x11, 0x51)
_TON_TEST_FLAG: Final = 0x80

OTHER_CHAINS: Final[dict[str, re.Pattern[str] | None]] = {
    "algorand": re.compile(r"[A-Z2-7]{58}", re.ASCII),
    "aptos": re.compile(r"0x[0-9a-fA-F]{1,39}|0x[0-9a-fA-F]{41,64}", re.ASCII),
    "bip122": None,
    "cardano": re.compile(r"addr[0-9a-z_]{20,130}", re.ASCII),
    "cosmos": None,
    "hedera": re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(-[a-z]{5})?|0x[0-9a-fA-F]{40}", re.ASCII),
    "kaspa": re.compile(r"kaspa(test)?:[0-9a-z]{50,80}", re.ASCII),
    "near": re.compile(r"[0-9a-f]{64}|[0-9a-z_-]+(\.[0-9a-z_-]+)*", re.ASCII),
    "starknet": None,
    "stellar": re.compile(r"[GC][A-Z2-7]{55}|M[A-Z2-7]{68}", re.ASCII),
    "sui": re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII),
    "ton": None,
    "tron": re.compile(r"T[1-9A-HJ-NP-Za-km-z]{33}", re.ASCII),
    "tvm": re.compile(r"-?[0-9]+:[0-9a-fA-F]{64}|[0-9A-Za-z_/+-]{48}", re.ASCII),
    "xrpl": re.compile(r"[rX][1-9A-HJ-NP-Za-km-z]{24,47}", re.ASCII),
}
"""Chains that sellers name and that we do not evaluate, by CAIP-2 namespace or by the first word
of a plain name, with the form of their accounts where we know it.
"""


def evm_address(value: object) -> str | None:
    """A 20-byte EVM address in lower case, or None."""
    if not isinstance(value, str) or not EVM_ADDRESS_PATTERN.fullmatch(value):
        return None
    return value.lower()


def strict_evm_address(value: object) -> str | None:
    """An EVM address in lower case, or None unless it is written in lower case or with its EIP-55
    checksum.
    """
    address = evm_address(value)
    return address if address and value in (address, _checksummed(address)) else None


@lru_cache(maxsize=32_768)  # few tokens and payees, met at every probe, and each takes a Keccak
def _checksummed(address: str) -> str:
    return to_checksum_address(address)


def solana_key(value: object) -> str | None:
    """An account or mint of Solana, that is 32 bytes in base58, or None."""
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        return None
    number = 0
    for digit in value:
        number = number * 58 + _BASE58.index(digit)
    zeros = len(value) - len(value.lstrip("1"))
    return value if zeros + (number.bit_length() + 7) // 8 == _KEY_BYTES else None


def ton_address(value: object) -> str | None:
    """A TON address as `workchain:hex` in lower case, from that form or the 48 characters of
    TEP-2 with a valid checksum; or None.
    """
    if not isinstance(value, str):
        return None
    if raw := _TON_RAW.fullmatch(value):
        return f"{raw[1]}:{raw[2].lower()}"
    if not _TON_FRIENDLY.fullmatch(value):
        return None
    decoded = urlsafe_b64decode(value.replace("+", "-").replace("/", "_"))
    body, checksum = decoded[:34], int.from_bytes(decoded[34:])
    if body[0] & ~_TON_TEST_FLAG not in _TON_TAGS or binascii.crc_hqx(body, 0) != checksum:
        return None
    return f"{int.from_bytes(body[1:2], signed=True)}:{body[2:].hex()}"


def fits_other_chain(chain: str, account: str) -> bool:
    """Whether an account may be one of a chain of OTHER_CHAINS. Where the form of its accounts is
    not known, anything may be, but for an EVM address. True for every other chain.
    """
    form = OTHER_CHAINS.get(chain)
    if form is not None:
        return form.fullmatch(account) is not None
    return chain not in OTHER_CHAINS or not EVM_ADDRESS_PATTERN.fullmatch(account)
