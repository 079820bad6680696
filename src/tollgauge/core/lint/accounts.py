"""Accounts and tokens as sellers write them, in the address formats of each chain.

EVM addresses (EIP-55), Solana keys and TON addresses are validated in full; the formats of other
chains only distinguish the chains. Functions accept any value and never raise.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode
from functools import lru_cache
from typing import Final

from tollgauge.core.base.signature import add_checksum
from tollgauge.core.base.units import EVM_ADDRESS_PATTERN, is_solana_key

ZERO_ADDRESS: Final = "0x" + "0" * 40
NATIVE_COIN: Final = "0x" + "e" * 40
"""Placeholder of exchanges for a chain's native coin; it is not a token."""
ZERO_KEY: Final = "1" * 32
"""The system program of Solana, whose key is all zeros."""
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
"""Chains that are not evaluated, by CAIP-2 namespace or first word of a plain name, with the format
of their accounts if it is known.
"""


def evm_address(value: object) -> str | None:
    """Return a 20-byte EVM address in lower case, or None."""
    if not isinstance(value, str) or not EVM_ADDRESS_PATTERN.fullmatch(value):
        return None
    return value.lower()


def strict_evm_address(value: object) -> str | None:
    """Return an EVM address in lower case; None unless the value is lower case or has its EIP-55
    checksum.
    """
    address = evm_address(value)
    return address if address and value in (address, _add_checksum(address)) else None


def lacks_checksum(value: object) -> bool:
    """Return whether a value is an EVM address neither in lower case nor with its checksum."""
    return evm_address(value) is not None and strict_evm_address(value) is None


# The same tokens and payees occur in every probe, and each checksum takes a Keccak hash.
_add_checksum = lru_cache(maxsize=32_768)(add_checksum)


def solana_key(value: object) -> str | None:
    """Return a Solana account or mint (32 bytes in base58), or None."""
    return value if isinstance(value, str) and is_solana_key(value) else None


def ton_address(value: object) -> str | None:
    """Return a TON address as `workchain:hex` in lower case, or None.

    Accepts that form and the 48 characters of TEP-2 with a valid checksum.
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
    """Return whether an account may belong to a chain of OTHER_CHAINS.

    If the format of the chain's accounts is unknown, every account except an EVM address may. True
    for every other chain.
    """
    form = OTHER_CHAINS.get(chain)
    if form is not None:
        return form.fullmatch(account) is not None
    return chain not in OTHER_CHAINS or not EVM_ADDRESS_PATTERN.fullmatch(account)
