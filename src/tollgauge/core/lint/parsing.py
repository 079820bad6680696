"""Lenient parsers for the PAYMENT-REQUIRED header, `accepts` and accounts.

They never raise on foreign bytes. Directories and probes share them, so a listing and a challenge
with the same members have the same terms. EVM addresses (EIP-55), Solana keys and TON addresses are
validated in full; account formats of other chains only distinguish the chains.
"""

from __future__ import annotations

import base64
import binascii
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

import orjson
from eth_utils.address import to_checksum_address

from tollgauge.core.base.strictjson import depth
from tollgauge.core.base.units import (
    EVM_ADDRESS_PATTERN,
    UINT256_MAX,
    base58_bytes,
    is_solana_key,
    legacy_network,
)
from tollgauge.core.endpoint.terms import Terms
from tollgauge.core.probe.exchange import Answer

HEADER: Final = "payment-required"
DEPTH_MAX: Final = 32  # levels of JSON below the outermost object or array
_STANDARD_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")


class HeaderFault(StrEnum):
    """The reason why a header could not be read."""

    BASE64 = "base64"
    JSON = "json"
    OBJECT = "object"
    REQUIREMENTS = "requirements"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The `PAYMENT-REQUIRED` header.

    Attributes:
        text: The joined values; empty if the header is absent.
        count: Number of headers of this name.
        spaced: Contains whitespace, but decodes.
        urlsafe: Uses the URL-safe alphabet.
        unpadded: Lacks padding, but decodes.
        value: The decoded JSON value.
        document: The envelope; None with a fault.
    """

    text: str = ""
    count: int = 0
    spaced: bool = False
    urlsafe: bool = False
    unpadded: bool = False
    value: object = None
    document: dict[str, object] | None = None
    fault: HeaderFault | None = None


NO_HEADER: Final = Header()
"""The header is absent."""


def read_header(answer: Answer) -> Header:
    """Decode the header leniently.

    Several headers of the name are joined with a comma as HTTP clients join them (RFC 9110 section
    5.3), and the result does not decode. The specification names no base64 alphabet, so the
    URL-safe one, missing padding and whitespace are accepted, and rules warn about them.
    """
    values = answer.header_values(HEADER)
    text = ", ".join(values)
    encoded = text.encode("utf-8", "replace")  # other characters than ASCII are not base64 anyway
    compact = b"".join(encoded.split())
    if not compact:
        return Header(count=len(values))
    digits = compact.rstrip(b"=")
    standard = digits.translate(_STANDARD_ALPHABET)
    no_base64 = Header(text=text, count=len(values), fault=HeaderFault.BASE64)
    if len(compact) - len(digits) > 2:
        return no_base64
    try:
        raw = base64.b64decode(standard + b"=" * (-len(standard) % 4), validate=True)
    except ValueError:
        return no_base64
    value = load_json(raw)
    fault = _document_fault(value)
    return Header(
        text=text,
        count=len(values),
        spaced=compact != encoded,
        urlsafe=standard != digits,
        unpadded=len(compact) % 4 != 0,
        value=value,
        document=members(value) if fault is None else None,
        fault=fault,
    )


def _document_fault(value: object) -> HeaderFault | None:
    """Return the reason why the JSON value of a header is not an envelope."""
    if value is None:
        return HeaderFault.JSON
    if not isinstance(value, dict):
        return HeaderFault.OBJECT
    if "accepts" not in value and {"scheme", "payTo"} <= value.keys():
        return HeaderFault.REQUIREMENTS
    return None


def load_json(raw: bytes) -> object:
    """Parse JSON; None for `null`, invalid JSON, and JSON nested deeper than DEPTH_MAX.

    orjson limits the nesting itself. CPython's `json` overruns the C stack once an EVM library has
    raised the recursion limit.
    """
    try:
        value: object = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return value if depth(raw) <= DEPTH_MAX + 1 else None


def members(value: object) -> dict[str, object]:
    """Return the members of an object; empty for any other value."""
    return value if isinstance(value, dict) else {}


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


@lru_cache(
    maxsize=32_768
)  # the same tokens and payees occur in every probe, and each check takes a Keccak hash
def _add_checksum(address: str) -> str:
    return to_checksum_address(address)


def solana_key(value: object) -> str | None:
    """Return a Solana account or mint (32 bytes in base58), or None."""
    return value if isinstance(value, str) and is_solana_key(value) else None


def base58_decode(text: str) -> bytes:
    """Decode base58; empty for a text with another character or of more than TEXT_MAX."""
    try:
        return b"" if len(text) > TEXT_MAX else base58_bytes(text)
    except ValueError:
        return b""


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


ENTRIES_MAX: Final = 64
"""Entries that are read. Real challenges have far fewer; a hostile one may have thousands."""
TEXT_MAX: Final = 256
"""Maximum length of an identifier in characters; a Cardano asset needs 120."""
TIMEOUT_MAX: Final = 2**53
"""Largest timeout in seconds that JavaScript adds to a clock without losing precision."""
_DIGITS: Final = re.compile(r"[0-9]{1,78}", re.ASCII)
AMOUNT_KEYS: Final = {1: "maxAmountRequired", 2: "amount"}
"""The name of the amount, by envelope version."""


def terms_of_accepts(accepts: object, *, version: int) -> tuple[Terms, ...]:
    """Return the terms of every readable entry, in order, at most ENTRIES_MAX.

    `version` selects the name of the amount that is tried first. The other version's name and a
    JSON number are accepted too, because directories list both. Version 1 network names become
    CAIP-2.
    """
    if not isinstance(accepts, list):
        return ()
    read = [_terms(entry, version) for entry in accepts[:ENTRIES_MAX]]
    return tuple([terms for terms in read if terms is not None])


def atomic_amount(text: object) -> int | None:
    """Parse decimal digits as an amount in atomic units; None unless it fits a uint256.

    Leading zeros are accepted: clients and facilitators compare the number.
    """
    if not isinstance(text, str) or not _DIGITS.fullmatch(text):
        return None
    value = int(text)
    return value if value <= UINT256_MAX else None


def timeout_seconds(value: object) -> int | None:
    """Return a timeout that clients can add to a clock: a positive whole number; None otherwise."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value <= TIMEOUT_MAX else None


def _identifier(value: object) -> str | None:
    """Return a printable text of 1 to TEXT_MAX characters, or None."""
    if isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.isprintable():
        return value
    return None


def _terms(entry: object, version: int) -> Terms | None:
    """Return the terms of one entry; None if amount, token or payee is missing."""
    if not isinstance(entry, dict):
        return None
    scheme, network = _identifier(entry.get("scheme")), _identifier(entry.get("network"))
    asset, pay_to = _identifier(entry.get("asset")), _identifier(entry.get("payTo"))
    amount = _amount(entry, version)
    if scheme is None or network is None or asset is None or pay_to is None or amount is None:
        return None
    extra = entry.get("extra")
    domain = extra if isinstance(extra, dict) else {}
    return Terms(
        version=version,
        scheme=scheme,
        network=legacy_network(network) or network,
        asset=asset,
        amount=amount,
        pay_to=pay_to,
        timeout_seconds=timeout_seconds(entry.get("maxTimeoutSeconds")),
        domain_name=_identifier(domain.get("name")),
        domain_version=_identifier(domain.get("version")),
        transfer_method=_identifier(domain.get("assetTransferMethod")),
        fee_payer=_identifier(domain.get("feePayer")),
    )


def _amount(entry: dict[str, object], version: int) -> int | None:
    v1, v2 = AMOUNT_KEYS[1], AMOUNT_KEYS[2]
    for key in (v1, v2) if version == 1 else (v2, v1):
        value = entry.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value if 0 <= value <= UINT256_MAX else None
        amount = atomic_amount(value)
        if amount is not None:
            return amount
    return None
