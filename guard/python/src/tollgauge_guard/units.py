"""Units: the tokens that the guard pays with, and money in atomic units and micro-dollars.

An amount is an integer of atomic units of its token; a limit is an integer of micro-dollars
(millionths of a dollar). For USDC, with its 6 decimals, both are the same number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MICRO_DECIMALS: Final = 6
UINT256_MAX: Final = 2**256 - 1
_AMOUNT: Final = re.compile(r"[1-9][0-9]{0,77}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Asset:
    """A dollar token.

    Its network (CAIP-2), its contract or mint, its decimals, and the EIP-712 domain that is used if
    a seller does not name it.
    """

    network: str
    address: str
    decimals: int = MICRO_DECIMALS
    domain_name: str = "USDC"
    domain_version: str = "2"

    def micro_usd(self, amount: int) -> int:
        """Return the micro-dollars of an amount, rounded up."""
        if self.decimals <= MICRO_DECIMALS:
            return amount * int(10 ** (MICRO_DECIMALS - self.decimals))
        return -(-amount // int(10 ** (self.decimals - MICRO_DECIMALS)))


_USD_COIN: Final = "USD Coin"
USDC: Final = (
    Asset("eip155:1", "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", domain_name=_USD_COIN),
    Asset("eip155:10", "0x0b2c639c533813f4aa9d7837caf62653d097ff85", domain_name=_USD_COIN),
    Asset("eip155:50", "0xfa2958cb79b0491cc627c1557f441ef849ca8eb1"),
    Asset("eip155:51", "0xb5ab69f7bbada22b28e79c8ffaece55ef1c771d4"),
    Asset("eip155:137", "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359", domain_name=_USD_COIN),
    Asset("eip155:143", "0x754704bc059f8c67012fed69bc8a327a5aafb603"),
    Asset("eip155:1328", "0x4fcf1784b31630811181f670aea7a7bef803eaed"),
    Asset("eip155:1329", "0xe15fc38f6d8c56af07bbcbe3baf5708a2bf42392"),
    Asset("eip155:5042", "0x3600000000000000000000000000000000000000"),
    Asset("eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", domain_name=_USD_COIN),
    Asset("eip155:10143", "0x534b2f3a21130d7a60830c2df862319e593943a3"),
    Asset("eip155:42161", "0xaf88d065e77c8cc2239327c5edb3a432268e5831", domain_name=_USD_COIN),
    Asset("eip155:42220", "0xceba9300f2b948710d2653dd7b07f33a8b32118c"),
    Asset("eip155:43113", "0x5425890298aed601595a70ab815c96711a31bc65", domain_name=_USD_COIN),
    Asset("eip155:43114", "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e", domain_name=_USD_COIN),
    Asset("eip155:80002", "0x41e94eb019c0762f9bfcf9fb1e58725bfb0e7582"),
    Asset("eip155:84532", "0x036cbd53842c5426634e7929541ec2318f3dcf7e"),
    Asset("eip155:421614", "0x75faf114eafb1bdbe2f0316df893fd58ce46aa4d", domain_name=_USD_COIN),
    Asset("eip155:5042002", "0x3600000000000000000000000000000000000000"),
    Asset("eip155:11142220", "0x01c5c0122039549ad1493b8220cabedd739bc44e"),
    Asset(
        "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"
    ),
    Asset(
        "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1", "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
    ),
    Asset(
        "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z", "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
    ),
)
"""Circle's USDC by network."""

V1_NETWORKS: Final = {
    "avalanche": "eip155:43114",
    "avalanche-fuji": "eip155:43113",
    "base": "eip155:8453",
    "base-sepolia": "eip155:84532",
    "celo": "eip155:42220",
    "monad": "eip155:143",
    "monad-testnet": "eip155:10143",
    "polygon": "eip155:137",
    "polygon-amoy": "eip155:80002",
    "sei": "eip155:1329",
    "sei-testnet": "eip155:1328",
}
"""Network names of x402 version 1 whose chain has USDC, as CAIP-2."""


def parse_amount(text: object) -> int | None:
    """Return a positive atomic amount from its decimal string.

    Returns None for a sign, an exponent, leading zeros, and more than a uint256.
    """
    if not isinstance(text, str) or not _AMOUNT.fullmatch(text):
        return None
    value = int(text)
    return value if value <= UINT256_MAX else None


def dollars(micro_usd: int) -> str:
    """Return micro-dollars as text: two decimals, or more if they are not zero."""
    whole, rest = divmod(micro_usd, 10**MICRO_DECIMALS)
    return f"${whole:,}." + f"{rest:06d}".rstrip("0").ljust(2, "0")
