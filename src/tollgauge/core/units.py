"""Networks, assets, amounts and time, each in the one form that the rest of the code uses.

Rules:
- a network is a CAIP-2 id (`eip155:8453`); the short names of x402 v1 are translated at the edge;
- an amount is an integer of atomic units; dollars appear only when something is shown;
- an instant is an integer of milliseconds since the epoch, UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
WINDOW_MS: Final = 30 * DAY_MS
"""The scoring window: 30 days."""

AMOUNT_PATTERN: Final = re.compile(r"(0|[1-9][0-9]{0,77})", re.ASCII)
"""An atomic amount on the wire: a decimal number without sign, at most 78 digits."""

UINT256_MAX: Final = 2**256 - 1

CAIP2_PATTERN: Final = re.compile(r"[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}", re.ASCII)
"""CAIP-2: namespace and reference."""

LEGACY_NETWORKS: Final[dict[str, str]] = {
    "base": "eip155:8453",
    "base-sepolia": "eip155:84532",
    "avalanche": "eip155:43114",
    "avalanche-fuji": "eip155:43113",
    "polygon": "eip155:137",
    "polygon-amoy": "eip155:80002",
    "ethereum": "eip155:1",
    "arbitrum": "eip155:42161",
    "optimism": "eip155:10",
    "iotex": "eip155:4689",
    "sei": "eip155:1329",
    "sei-testnet": "eip155:1328",
    "peaq": "eip155:3338",
    "abstract": "eip155:2741",
    "abstract-testnet": "eip155:11124",
    "solana": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
    "solana-devnet": "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
}
"""The short network names of x402 v1, as CAIP-2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A token that stock clients know: its place, its decimals and its EIP-712 domain."""

    network: str
    address: str
    symbol: str
    decimals: int
    domain_name: str
    domain_version: str


_USDC: Final = (
    ("eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", "USD Coin"),
    ("eip155:84532", "0x036cbd53842c5426634e7929541ec2318f3dcf7e", "USDC"),
    ("eip155:1", "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", "USD Coin"),
    ("eip155:10", "0x0b2c639c533813f4aa9d7837caf62653d097ff85", "USD Coin"),
    ("eip155:137", "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359", "USD Coin"),
    ("eip155:80002", "0x41e94eb019c0762f9bfcf9fb1e58725bfb0e7582", "USDC"),
    ("eip155:42161", "0xaf88d065e77c8cc2239327c5edb3a432268e5831", "USD Coin"),
    ("eip155:43114", "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e", "USD Coin"),
    ("eip155:43113", "0x5425890298aed601595a70ab815c96711a31bc65", "USD Coin"),
    ("eip155:4689", "0xcdf79194c6c285077a58da47641d4dbe51f63542", "Bridged USDC"),
    ("eip155:1329", "0xe15fc38f6d8c56af07bbcbe3baf5708a2bf42392", "USDC"),
    ("solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", ""),
)

ASSETS: Final[dict[tuple[str, str], Asset]] = {
    (network, address): Asset(
        network=network,
        address=address,
        symbol="USDC",
        decimals=6,
        domain_name=name,
        domain_version="2",
    )
    for network, address, name in _USDC
}
"""Circle's native USDC by (network, address), hex in lower case. A token outside the EVM has no
EIP-712 domain.
"""


def known_asset(network: str, address: str) -> Asset | None:
    """The table's entry for a token, or None; hex in any case, other alphabets as they are."""
    key = address.lower() if address[:2].lower() == "0x" else address
    return ASSETS.get((network, key))


def default_asset(network: str) -> Asset | None:
    """Native USDC of a network, or None where the table has none."""
    return next((asset for asset in ASSETS.values() if asset.network == network), None)


def legacy_network(name: str) -> str | None:
    """The CAIP-2 id of a v1 network name, or None when the name is unknown."""
    return LEGACY_NETWORKS.get(name)


def parse_amount(text: object) -> int | None:
    """An atomic amount from its decimal string, or None unless it is one and fits a uint256."""
    if not isinstance(text, str) or not AMOUNT_PATTERN.fullmatch(text):
        return None
    value = int(text)
    return value if value <= UINT256_MAX else None


def usd_text(amount: int, decimals: int = 6) -> str:
    """Dollars with six decimals, rounded half up, of an atomic amount: `5000` is `0.005000`."""
    micro = amount * 10**6 if decimals == 0 else (amount * 10**7 // 10**decimals + 5) // 10
    return f"{micro // 10**6}.{micro % 10**6:06d}"


def day_of(at: int) -> int:
    """The number of the UTC day (days since the epoch) that holds an instant."""
    return at // DAY_MS
