"""The tables of the official x402 clients: schemes, networks, default tokens and contracts.

`sdk.json` is generated from the installed packages (`make sdk-update`); a test compares them.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

import msgspec


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
