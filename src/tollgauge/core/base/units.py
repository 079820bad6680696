"""Networks, assets, amounts and time, in the forms that all other code uses.

Rules:
- a network is a CAIP-2 ID (`eip155:8453`); short names of x402 v1 are translated on reading;
- an amount is an integer of atomic units; dollars appear only on output;
- a time is an integer of milliseconds since the epoch, UTC.

The official x402 clients define known networks and assets: `sdk.json` has their tables, generated
from the installed packages (`make sdk-update`); a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib import resources
from typing import Final

import msgspec

Clock = Callable[[], int]
"""Returns the current time in milliseconds UTC."""

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
EPOCH: Final = date(1970, 1, 1)
LAST_SECOND: Final = 253_402_300_799
"""The last second (Unix time) of the year 9999, the last that ISO 8601 can express."""
WINDOW_MS: Final = 30 * DAY_MS
"""The scoring window: 30 days."""

AMOUNT_PATTERN: Final = re.compile(r"(0|[1-9][0-9]{0,77})", re.ASCII)
"""An atomic amount in JSON: a decimal number without sign or leading zeros, at most 78 digits."""

UINT256_MAX: Final = 2**256 - 1
CAIP2_PATTERN: Final = re.compile(r"[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}", re.ASCII)
"""CAIP-2: namespace and reference."""

EVM_ADDRESS_PATTERN: Final = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
"""An address of 20 bytes, in any case."""
EVM_WORD_PATTERN: Final = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
"""32 bytes, in any case: the hash of a transaction, a nonce, an ABI word."""
EVM_SIGNATURE_PATTERN: Final = re.compile(r"0x(?:[0-9a-fA-F]{2}){65,4096}", re.ASCII)
"""A signature: 65 bytes of a key, or more of a contract wallet."""

SOLANA_KEY_PATTERN: Final = re.compile(r"[1-9A-HJ-NP-Za-km-z]{32,44}", re.ASCII)
SOLANA_SIGNATURE_PATTERN: Final = re.compile(r"[1-9A-HJ-NP-Za-km-z]{64,88}", re.ASCII)
"""The form of a key (32 bytes) and of a signature (64 bytes) in base58."""
_EVM_ADDRESS_BYTES: Final = 20
_SOLANA_KEY_BYTES: Final = 32
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_DIGITS: Final = {digit: value for value, digit in enumerate(_BASE58)}
_SOLANA: Final = {
    "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp": -101,
    "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z": -102,
    "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1": -103,
}
"""The numbers of Solana's networks, as in its token list, negative to differ from EVM chains."""
SOLANA_NETWORKS: Final = tuple(_SOLANA)
_SOLANA_NETWORKS: Final = {number: network for network, number in _SOLANA.items()}


class Asset(msgspec.Struct, frozen=True):
    """A dollar token: its network and address, its decimals and its EIP-712 domain (empty outside
    the EVM).

    `default`: the official clients pay it without permission of their owner. `eip3009`: it accepts
    transfers by signature (EIP-3009); otherwise only Permit2.
    """

    network: str
    address: str
    domain_name: str
    symbol: str = "USDC"
    decimals: int = 6
    domain_version: str = "2"
    default: bool = True
    eip3009: bool = True


class SdkTables(msgspec.Struct, frozen=True, rename="camel"):
    """The content of `sdk.json`. Addresses on EVM networks are in lower case.

    Attributes:
        versions: The packages from which the tables were generated.
        schemes: By client, and by CAIP-2 namespace and version of the protocol (`eip155 2`).
        v1_networks: By client, the network names of version 1 as CAIP-2.
        gateway_networks: The networks of Circle's client.
        assets: The default tokens. The first of a network is its default.
        contracts: The contracts that x402 settles through on every EVM network.
        escrows: The escrow deployments that clients accept for auth-capture.
        token_programs: The token programs of Solana: SPL Token and Token-2022.
        memo_bytes: Maximum length of a memo on Solana.
        withdraw_delay: Shortest and longest time in seconds until a channel's payer can withdraw.
    """

    versions: dict[str, str]
    schemes: dict[str, dict[str, frozenset[str]]]
    v1_networks: dict[str, dict[str, str]]
    solana_networks: frozenset[str]
    ton_networks: frozenset[str]
    gateway_networks: frozenset[str]
    assets: tuple[Asset, ...]
    contracts: frozenset[str]
    escrows: frozenset[str]
    token_programs: tuple[str, ...]
    memo_bytes: int
    withdraw_delay: tuple[int, int]


SDK: Final = msgspec.json.decode(
    resources.files("tollgauge.core.base").joinpath("sdk.json").read_bytes(), type=SdkTables
)
"""The tables of the SDKs with which this version was tested."""

BASE: Final = "eip155:8453"
V1_NETWORKS: Final[dict[str, str]] = {
    **SDK.v1_networks["python"],
    **SDK.v1_networks["typescript"],
}
"""The network names of x402 v1 that an official client supports, as CAIP-2. Where the clients
disagree about a chain, the chain of the TypeScript client.
"""

V1_NETWORKS_DIVIDED: Final = frozenset(
    name
    for name in V1_NETWORKS
    if SDK.v1_networks["python"].get(name) != SDK.v1_networks["typescript"].get(name)
)
"""Names of V1_NETWORKS that one official client does not support, or maps to another chain."""

LEGACY_NETWORKS: Final[dict[str, str]] = {
    **V1_NETWORKS,
    "arbitrum": "eip155:42161",
    "bsc": "eip155:56",
    "optimism": "eip155:10",
    "x-layer": "eip155:196",
    "xdc": "eip155:50",
}
"""Every plain network name that can be translated: V1_NETWORKS, and names that sellers write
although no version 1 client supports them.
"""
NETWORK_NAMES: Final = {caip2: name for name, caip2 in LEGACY_NETWORKS.items()}
"""The same names by CAIP-2."""

TEST_NETWORKS: Final = frozenset(
    {
        *(caip2 for name, caip2 in V1_NETWORKS.items() if name.partition("-")[2]),
        *("eip155:11155111", "eip155:421614", "eip155:11155420", "eip155:97", "eip155:17000"),
        *("eip155:51", "eip155:11142220", "eip155:5042002", "eip155:31611", "eip155:72344"),
        "eip155:181228",
        "tvm:-3",
    }
)
"""Networks whose tokens are worthless, including all names of V1_NETWORKS with a hyphen."""
_TEST_WORDS: Final = re.compile(r"test|devnet|sepolia|amoy|fuji", re.ASCII | re.IGNORECASE)


_ASSETS: Final = (
    *SDK.assets,
    Asset("eip155:10", "0x0b2c639c533813f4aa9d7837caf62653d097ff85", "USD Coin", default=False),
    Asset("eip155:80002", "0x41e94eb019c0762f9bfcf9fb1e58725bfb0e7582", "USDC", default=False),
    Asset("eip155:43113", "0x5425890298aed601595a70ab815c96711a31bc65", "USD Coin", default=False),
    Asset(
        "eip155:4689", "0xcdf79194c6c285077a58da47641d4dbe51f63542", "Bridged USDC", default=False
    ),
)
ASSETS: Final[dict[tuple[str, str], Asset]] = {
    (asset.network, asset.address): asset for asset in _ASSETS
}
"""Dollar tokens by (network, address), hex in lower case: the default tokens of the official
clients, and Circle's USDC on other networks.
"""


def whole_seconds(ms: int) -> int:
    """Convert milliseconds to seconds, rounded up."""
    return -(-ms // SECOND_MS)


def evm_chain_id(network: str) -> int:
    """Return the number of an EVM chain (EIP-155). Raises ValueError for any other network."""
    return int(network.removeprefix("eip155:"))


def chain_of(network: str) -> int | None:
    """Return the number of an EVM chain; None for any other CAIP-2 network."""
    kind, _, number = network.partition(":")
    plain = number.isascii() and number.isdecimal() and len(number) <= 15
    return int(number) if kind == "eip155" and plain else None


def chain_number(network: str) -> int | None:
    """Return the number by which an indexed chain is stored: that of an EVM chain, or a negative
    one of a Solana network; None for any other network.
    """
    return _SOLANA.get(network, chain_of(network))


def network_of(number: int) -> str:
    """Return the CAIP-2 ID of a chain by its `chain_number`."""
    return _SOLANA_NETWORKS.get(number, f"eip155:{number}")


def chain_name(number: int) -> str:
    """Return the name of a chain in names of loops and variables: `8453`, `solana-devnet`."""
    return NETWORK_NAMES[_SOLANA_NETWORKS[number]] if number < 0 else str(number)


def base58_text(value: bytes) -> str:
    """Encode bytes in base58."""
    number, digits = int.from_bytes(value), ""
    while number:
        number, digit = divmod(number, 58)
        digits = _BASE58[digit] + digits
    return "1" * (len(value) - len(value.lstrip(b"\0"))) + digits


def base58_bytes(text: str) -> bytes:
    """Decode base58. Raises ValueError for other characters."""
    number = 0
    try:
        for digit in text:
            number = number * 58 + _BASE58_DIGITS[digit]
    except KeyError as error:
        raise ValueError("A character is not one of base58.") from error
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8)


def address_text(value: bytes) -> str:
    """Return an address of 20 bytes in hex (EVM), any other in base58 (Solana)."""
    return hex_text(value) if len(value) == _EVM_ADDRESS_BYTES else base58_text(value)


def address_bytes(text: str) -> bytes:
    """Return the bytes of an EVM address in hex or a Solana key in base58."""
    return bytes.fromhex(text[2:]) if text.startswith("0x") else base58_bytes(text)


def canonical_address(text: str) -> str:
    """Return an address in the form in which addresses are compared: lower case if it is hex."""
    return text.lower() if text.startswith("0x") else text


def is_solana_key(text: str) -> bool:
    """Return whether a text is a key of Solana: 32 bytes in base58."""
    is_text = SOLANA_KEY_PATTERN.fullmatch(text) is not None
    return is_text and len(base58_bytes(text)) == _SOLANA_KEY_BYTES


def is_address(text: str, *, chain: int) -> bool:
    """Return whether a text is an address of a chain (its `chain_number`); EVM in lower case."""
    if chain < 0:
        return is_solana_key(text)
    return EVM_ADDRESS_PATTERN.fullmatch(text) is not None and text == text.lower()


def known_asset(network: str, address: str) -> Asset | None:
    """Return the table's entry for a token, or None. Hex is accepted in any case, other alphabets
    as they are.
    """
    key = address.lower() if address[:2].lower() == "0x" else address
    return ASSETS.get((network, key))


def eip3009_assets(network: str) -> tuple[Asset, ...]:
    """Return the table's tokens on a network that accept transfers by signature."""
    return tuple(asset for asset in _ASSETS if asset.network == network and asset.eip3009)


@cache
def settlement_token(network: str) -> Asset | None:
    """Return the token whose transfers are read as settlements on a network, or None: the first in
    the table with six decimals that accepts transfers by signature, on Solana the first.
    """
    tokens = (asset for asset in _ASSETS if asset.network == network and asset.decimals == 6)
    return next((one for one in tokens if one.eip3009 or network in _SOLANA), None)


def is_test_network(network: str | None) -> bool:
    """Return whether a network is a test network, by the table or by its name."""
    return network is not None and (
        network in TEST_NETWORKS or _TEST_WORDS.search(network) is not None
    )


def parse_amount(text: object) -> int | None:
    """Return an atomic amount from its decimal string; None unless it fits a uint256."""
    if not isinstance(text, str) or not AMOUNT_PATTERN.fullmatch(text):
        return None
    value = int(text)
    return value if value <= UINT256_MAX else None


def micro_usd(amount: int, decimals: int = 6) -> int:
    """Return an atomic amount of a dollar token in millionths of a dollar, rounded half up."""
    return (amount * 10**7 // int(10**decimals) + 5) // 10


def usd(micro_usd: int) -> float:
    """Convert millionths of a dollar to dollars, for JSON."""
    return micro_usd / 1_000_000


def parse_dollars(text: str) -> int:
    """Return a price in dollars, such as `0.005`, in millionths of a dollar. Raises ValueError."""
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not an amount in dollars") from error
    scaled = value * 10**6
    if not value.is_finite() or scaled != scaled.to_integral_value() or scaled <= 0:
        raise ValueError(f"{text!r} is not a positive amount with at most six decimals")
    return int(scaled)


def dollars(amount: int, decimals: int = 6) -> str:
    """Format an atomic amount of a dollar token with two to six decimals: `$5,000.00`, `$0.10`,
    `$0.005`. Rounds half up.
    """
    whole, rest = divmod(micro_usd(amount, decimals), 10**6)
    return f"${whole:,}." + f"{rest:06d}".rstrip("0").ljust(2, "0")


def hex_text(value: bytes) -> str:
    """Return bytes in hex, as in JSON-RPC."""
    return "0x" + value.hex()


def iso_seconds(at: int) -> str:
    """Format a time as ISO 8601 UTC with `Z`, in whole seconds."""
    return datetime.fromtimestamp(at // SECOND_MS, UTC).isoformat().removesuffix("+00:00") + "Z"


def iso(at: int) -> str:
    """Format a time as ISO 8601 UTC with `Z`, with milliseconds only if they are not zero."""
    ms = at % SECOND_MS
    return f"{iso_seconds(at)[:-1]}.{ms:03d}Z" if ms else iso_seconds(at)


def iso_day(at: int) -> str:
    """Format the UTC date of a time: `2026-01-31`."""
    return date_of(at // DAY_MS).isoformat()


def minute(at: int) -> str:
    """Format a time to the minute for people: `2026-01-31 14:05 UTC`."""
    return datetime.fromtimestamp(at // SECOND_MS, UTC).strftime("%Y-%m-%d %H:%M UTC")


def day_of(at: int) -> int:
    """Return the number of the UTC day (days since the epoch) of a time."""
    return at // DAY_MS


def date_of(day: int) -> date:
    """Return the date of a UTC day (days since the epoch)."""
    return EPOCH + timedelta(days=day)
