"""Rules about the token and the payee of one entry of `accepts`.

EVM shapes are asked only of schemes that we know on eip155 networks (EIP-55, EIP-712, EIP-3009);
the known tokens are those of core/units. What only the chain can tell (does the payee exist, is
the domain separator right for an unknown token) is not asked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from eth_utils.address import to_checksum_address

from tollgauge.core.lint.reading import Entry
from tollgauge.core.lint.rule import Rule, error, warning
from tollgauge.core.units import ASSETS, default_asset, known_asset

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_ZERO: Final = "0x" + "0" * 40
_KNOWN_ADDRESSES: Final = frozenset(address for _, address in ASSETS)


def _address(value: object) -> str | None:
    """A 20-byte address in lower case, or None."""
    return value.lower() if isinstance(value, str) and _ADDRESS.fullmatch(value) else None


def _bad(entry: Entry, field: str) -> bool:
    value = entry.fields.get(field)
    return _address(value) is None if entry.evm else not (isinstance(value, str) and value)


@error(
    "asset-form",
    "Write the asset as the token's contract address (0x and 40 hex digits on EVM networks), not"
    " as a ticker, a CAIP-19 id or an object.",
    fatal=True,
)
def asset_form(entry: Entry) -> Iterator[str]:
    """The asset is missing, no text, or no address on an EVM network: the signature names it."""
    if _bad(entry, "asset"):
        yield entry.at("asset")


@error(
    "payto-form",
    "Write payTo as one account of the network (0x and 40 hex digits on EVM networks).",
    fatal=True,
)
def payto_form(entry: Entry) -> Iterator[str]:
    """The payee is missing, no text, a placeholder, or no address on an EVM network."""
    if _bad(entry, "payTo"):
        yield entry.at("payTo")


@warning(
    "address-checksum",
    "Write the address with its EIP-55 checksum or all in lower case: one digit may be wrong.",
)
def address_checksum(entry: Entry) -> Iterator[str]:
    """Mixed case that is not the EIP-55 checksum. The official clients pay it all the same."""
    for field in ("asset", "payTo"):
        text = entry.fields.get(field)
        if not entry.evm or _address(text) is None or not isinstance(text, str):
            continue
        digits = text[2:]
        mixed = digits not in (digits.lower(), digits.upper())
        if mixed and to_checksum_address(text.lower()) != text:
            yield entry.at(field)


@error(
    "address-zero",
    "Write a real account in payTo and a real token in asset: the zero address is neither.",
    fatal=True,
)
def address_zero(entry: Entry) -> Iterator[str]:
    """The zero address; tokens refuse transfers to it."""
    for field in ("asset", "payTo"):
        if entry.evm and _address(entry.fields.get(field)) == _ZERO:
            yield entry.at(field)


@error("payto-asset", "Write your own account in payTo: this is the token contract.", fatal=True)
def payto_asset(entry: Entry) -> Iterator[str]:
    """The payee is the token itself; USDC refuses such a transfer."""
    payee = _address(entry.fields.get("payTo"))
    if entry.evm and payee is not None and payee == _address(entry.fields.get("asset")):
        yield entry.at("payTo")


@error(
    "asset-network",
    "Write the token's address on this network: this one is USDC of another network (a test"
    " network's on the main network, or the other way round).",
)
def asset_network(entry: Entry) -> Iterator[str]:
    """An address that is native USDC elsewhere and not here. Clients sign it, and what the chain
    holds at that address is not ours to say, so it is no bar to paying.
    """
    asset = _address(entry.fields.get("asset"))
    if entry.evm and asset in _KNOWN_ADDRESSES and known_asset(entry.network, asset) is None:
        yield entry.at("asset")


@warning(
    "asset-not-default",
    "Take native USDC: the official clients refuse other tokens unless their owner allows them.",
)
def asset_not_default(entry: Entry) -> Iterator[str]:
    """Another token than native USDC, on a network that has it."""
    asset = _address(entry.fields.get("asset"))
    if not entry.evm or asset is None or asset in _KNOWN_ADDRESSES:
        return
    if default_asset(entry.network) is not None:
        yield entry.at("asset")


@error(
    "domain-missing",
    "Write the token's EIP-712 domain in extra.name and extra.version, for example"
    ' {"name": "USD Coin", "version": "2"} for USDC on Base.',
    fatal=True,
)
def domain_missing(entry: Entry) -> Iterator[str]:
    """No name or version for an EIP-3009 payment; the official TypeScript client then refuses to
    sign. Permit2 payments need none.
    """
    if not entry.eip3009:
        return
    for key in ("name", "version"):
        value = entry.extra.get(key)
        if not isinstance(value, str) or not value:
            yield entry.at(f"extra.{key}")


@error(
    "domain-wrong",
    "Write the EIP-712 domain that the token itself has: USDC is"
    ' {"name": "USD Coin", "version": "2"} on Base and {"name": "USDC", "version": "2"} on Base'
    " Sepolia.",
    fatal=True,
)
def domain_wrong(entry: Entry) -> Iterator[str]:
    """A known token under another name or version: every signature over it is invalid."""
    asset = _address(entry.fields.get("asset"))
    token = known_asset(entry.network, asset) if entry.eip3009 and asset else None
    if token is None:
        return
    wanted = {"name": token.domain_name, "version": token.domain_version}
    for key, right in wanted.items():
        value = entry.extra.get(key)
        if isinstance(value, str) and value and value != right:
            yield entry.at(f"extra.{key}")


@error(
    "fee-payer-missing",
    "Write the facilitator's account in extra.feePayer: clients on Solana cannot build the"
    " transaction without it.",
    fatal=True,
)
def fee_payer_missing(entry: Entry) -> Iterator[str]:
    """`exact` on Solana without the account that pays the network's fee."""
    payer = entry.extra.get("feePayer")
    if entry.solana and not (isinstance(payer, str) and payer):
        yield entry.at("extra.feePayer")


RULES: Final[tuple[Rule[Entry], ...]] = (
    asset_form,
    payto_form,
    address_checksum,
    address_zero,
    payto_asset,
    asset_network,
    asset_not_default,
    domain_missing,
    domain_wrong,
    fee_payer_missing,
)
