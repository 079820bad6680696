"""Networks, assets, amounts and time, in the forms that all other code uses.

Rules:
- a network is a CAIP-2 ID (`eip155:8453`); short names of x402 v1 are translated on reading;
- an amount is an integer of atomic units; dollars appear only on output;
- a time is an integer of milliseconds since the epoch, UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Final

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

BASE: Final = "eip155:8453"
_SOLANA: Final = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
_SOLANA_DEVNET: Final = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
_SOLANA_TESTNET: Final = "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z"

V1_NETWORKS: Final[dict[str, str]] = {
    "ethereum": "eip155:1",
    "sepolia": "eip155:11155111",
    "base": BASE,
    "base-sepolia": "eip155:84532",
    "avalanche": "eip155:43114",
    "avalanche-fuji": "eip155:43113",
    "polygon": "eip155:137",
    "polygon-amoy": "eip155:80002",
    "abstract": "eip155:2741",
    "abstract-testnet": "eip155:11124",
    "celo": "eip155:42220",
    "educhain": "eip155:41923",
    "flare": "eip155:14",
    "iotex": "eip155:4689",
    "megaeth": "eip155:4326",
    "monad": "eip155:143",
    "monad-testnet": "eip155:10143",
    "peaq": "eip155:3338",
    "sei": "eip155:1329",
    "sei-testnet": "eip155:1328",
    "skale-base-sepolia": "eip155:324705682",
    "stable": "eip155:988",
    "stable-testnet": "eip155:2201",
    "story": "eip155:1514",
    "solana": _SOLANA,
    "solana-devnet": _SOLANA_DEVNET,
    "solana-testnet": _SOLANA_TESTNET,
}
"""The network names of x402 v1 that an official client supports, as CAIP-2."""

V1_NETWORKS_DIVIDED: Final = frozenset(
    ["ethereum", "sepolia", "flare", "monad-testnet", "story", "educhain", "skale-base-sepolia"]
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

SOLANA_NETWORKS: Final = frozenset({_SOLANA, _SOLANA_DEVNET, _SOLANA_TESTNET})
"""The clusters that Solana clients support: mainnet, devnet, testnet."""

_TON: Final = "tvm:-239"
_TON_TESTNET: Final = "tvm:-3"
TON_NETWORKS: Final = frozenset({_TON, _TON_TESTNET})
"""The networks that TON clients support."""

TEST_NETWORKS: Final = frozenset(
    {
        *(caip2 for name, caip2 in V1_NETWORKS.items() if name.partition("-")[2]),
        *("eip155:11155111", "eip155:421614", "eip155:11155420", "eip155:97", "eip155:17000"),
        *("eip155:51", "eip155:11142220", "eip155:5042002", "eip155:31611", "eip155:72344"),
        "eip155:181228",
        _TON_TESTNET,
    }
)
"""Networks whose tokens are worthless, including all names of V1_NETWORKS with a hyphen."""
_TEST_WORDS: Final = re.compile(r"test|devnet|sepolia|amoy|fuji", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Asset:
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


_version_1 = partial(Asset, domain_version="1")
_permit2 = partial(Asset, domain_version="1", eip3009=False)
_mint = partial(Asset, domain_name="", domain_version="", eip3009=False)
_jetton = partial(Asset, domain_name="", domain_version="", symbol="USDT", eip3009=False)

_ASSETS: Final = (
    Asset("eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", "USD Coin"),
    Asset("eip155:84532", "0x036cbd53842c5426634e7929541ec2318f3dcf7e", "USDC"),
    Asset("eip155:1", "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", "USD Coin"),
    Asset("eip155:137", "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359", "USD Coin"),
    Asset("eip155:42161", "0xaf88d065e77c8cc2239327c5edb3a432268e5831", "USD Coin"),
    Asset("eip155:421614", "0x75faf114eafb1bdbe2f0316df893fd58ce46aa4d", "USD Coin"),
    Asset("eip155:43114", "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e", "USD Coin"),
    Asset("eip155:143", "0x754704bc059f8c67012fed69bc8a327a5aafb603", "USDC"),
    Asset("eip155:10143", "0x534b2f3a21130d7a60830c2df862319e593943a3", "USDC"),
    Asset("eip155:50", "0xfa2958cb79b0491cc627c1557f441ef849ca8eb1", "USDC"),
    Asset("eip155:51", "0xb5ab69f7bbada22b28e79c8ffaece55ef1c771d4", "USDC"),
    Asset("eip155:42220", "0xceba9300f2b948710d2653dd7b07f33a8b32118c", "USDC"),
    Asset("eip155:11142220", "0x01c5c0122039549ad1493b8220cabedd739bc44e", "USDC"),
    Asset("eip155:1329", "0xe15fc38f6d8c56af07bbcbe3baf5708a2bf42392", "USDC"),
    Asset("eip155:1328", "0x4fcf1784b31630811181f670aea7a7bef803eaed", "USDC"),
    Asset("eip155:5042", "0x3600000000000000000000000000000000000000", "USDC"),
    Asset("eip155:5042002", "0x3600000000000000000000000000000000000000", "USDC"),
    Asset("eip155:10", "0x0b2c639c533813f4aa9d7837caf62653d097ff85", "USD Coin", default=False),
    Asset("eip155:80002", "0x41e94eb019c0762f9bfcf9fb1e58725bfb0e7582", "USDC", default=False),
    Asset("eip155:43113", "0x5425890298aed601595a70ab815c96711a31bc65", "USD Coin", default=False),
    Asset(
        "eip155:4689", "0xcdf79194c6c285077a58da47641d4dbe51f63542", "Bridged USDC", default=False
    ),
    _version_1("eip155:988", "0x779ded0c9e1022225f8e0630b35a9b54be713736", "USDT0", "USDT0"),
    _version_1("eip155:2201", "0x78cf24370174180738c5b8e352b6d14c83a6c9a9", "USDT0", "USDT0"),
    _version_1("eip155:14", "0xe7cd86e13ac4309349f30b3435a9d337750fc82d", "USD\u20ae0", "USDT0"),
    _version_1("eip155:42220", "0x48065fbbe25f71c9282ddf5e1cd6d6a887483d5e", "Tether USD", "USDT"),
    _version_1(
        "eip155:42220", "0xd2ab3c9a02dbbab236bfec45d1d755df4267f771", "Tether America USD", "USAT"
    ),
    Asset("eip155:36900", "0x9cb8142aebbcdc60af7c97af897a67a8f3ca71c2", "USDC.e", "USDC.e"),
    Asset("eip155:190415", "0x401ecb1d350407f13ba348573e5630b83638e30d", "Bridged USDC", "USDC.e"),
    Asset("eip155:181228", "0x401ecb1d350407f13ba348573e5630b83638e30d", "Bridged USDC", "USDC.e"),
    _permit2("eip155:4326", "0xfafddbb3fc7688494971a79cc65dca3ef82079e7", "MegaUSD", "MegaUSD", 18),
    _permit2("eip155:31612", "0xdd468a1ddc392dcdbef6db6e34e89aa338f9f186", "Mezo USD", "mUSD", 18),
    _permit2("eip155:31611", "0x118917a40faf1cd7a13db0ef56c86de7973ac503", "Mezo USD", "mUSD", 18),
    _permit2("eip155:723487", "0x33ad9e4bd16b69b5bfded37d8b5d9ff9aba014fb", "Stable Coin", "SBC"),
    _permit2("eip155:72344", "0x33ad9e4bd16b69b5bfded37d8b5d9ff9aba014fb", "Stable Coin", "SBC"),
    _permit2("eip155:38833", "0xa5b8bf902b2844da17d4506cc827f7f1681735e7", "USDC"),
    _mint(_SOLANA, "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", symbol="USDC"),
    _mint(_SOLANA, "Es9vMFrzaCERmJfrF4H2FYD4KCoNkY11McCe8BenwNYB", symbol="USDT"),
    _mint(_SOLANA, "2u1tszSeqZ3qBWF3uNGPFc8TzMk2tdiwknnRMWGWjGWH", symbol="USDG"),
    _mint(_SOLANA, "2b1kV6DkPAnxd5ixfnxCpjxmKwqjjaYmCZfHsFu24GXo", symbol="PYUSD"),
    _mint(_SOLANA, "CASHx9KJUStyftLFWGvEVf59SGeG9sh5FfcnZMVPCASH", symbol="CASH"),
    _mint(_SOLANA_DEVNET, "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU", symbol="USDC"),
    _mint(_SOLANA_DEVNET, "4F6PM96JJxngmHnZLBh9n58RH4aTVNWvDs2nuwrT5BP7", symbol="USDG"),
    _mint(_SOLANA_DEVNET, "CXk2AMBfi3TwaEL2468s6zP8xq9NxTXjp9gjMgzeUynM", symbol="PYUSD"),
    _mint(_SOLANA_TESTNET, "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU", symbol="USDC"),
    _mint(_SOLANA_TESTNET, "4F6PM96JJxngmHnZLBh9n58RH4aTVNWvDs2nuwrT5BP7", symbol="USDG"),
    _mint(_SOLANA_TESTNET, "CXk2AMBfi3TwaEL2468s6zP8xq9NxTXjp9gjMgzeUynM", symbol="PYUSD"),
    _jetton(_TON, "0:b113a994b5024a16719f69139328eb759596c38a25f59028b146fecdc3621dfe"),
    _jetton(_TON_TESTNET, "0:f418a04cf196ebc959366844a6cdf53a6fd6fff1eadafc892f05210bba31593e"),
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


def known_asset(network: str, address: str) -> Asset | None:
    """Return the table's entry for a token, or None. Hex is accepted in any case, other alphabets
    as they are.
    """
    key = address.lower() if address[:2].lower() == "0x" else address
    return ASSETS.get((network, key))


def eip3009_assets(network: str) -> tuple[Asset, ...]:
    """Return the table's tokens on a network that accept transfers by signature."""
    return tuple(asset for asset in _ASSETS if asset.network == network and asset.eip3009)


def is_test_network(network: str | None) -> bool:
    """Return whether a network is a test network, by the table or by its name."""
    return network is not None and (
        network in TEST_NETWORKS or _TEST_WORDS.search(network) is not None
    )


def legacy_network(name: str) -> str | None:
    """Return the CAIP-2 ID of a plain network name; None if it is unknown."""
    return LEGACY_NETWORKS.get(name)


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
    return datetime.fromtimestamp(at // SECOND_MS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso(at: int) -> str:
    """Format a time as ISO 8601 UTC with `Z`, with milliseconds only if they are not zero."""
    day, of_day = divmod(at, DAY_MS)
    seconds, ms = divmod(of_day, SECOND_MS)
    time = f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{_iso_date(day)}T{time}.{ms:03d}Z" if ms else f"{_iso_date(day)}T{time}Z"


def iso_day(at: int) -> str:
    """Format the UTC date of a time: `2026-01-31`."""
    return _iso_date(at // DAY_MS)


@lru_cache(maxsize=1_024)
def _iso_date(day: int) -> str:
    # Cached: answers contain the same few days again and again.
    return date_of(day).isoformat()


def minute(at: int) -> str:
    """Format a time to the minute for people: `2026-01-31 14:05 UTC`."""
    return datetime.fromtimestamp(at // SECOND_MS, UTC).strftime("%Y-%m-%d %H:%M UTC")


def day_of(at: int) -> int:
    """Return the number of the UTC day (days since the epoch) of a time."""
    return at // DAY_MS


def date_of(day: int) -> date:
    """Return the date of a UTC day (days since the epoch)."""
    return EPOCH + timedelta(days=day)
