"""Rules about the token and the payee of one entry of `accepts`.

Shapes are asked only of schemes that we know on EVM networks (EIP-55, EIP-712, EIP-3009), on Solana
and on TON; the known tokens are those of core/base/units. What only the chain can tell (does the
payee exist, is the domain separator right for an unknown token) is not asked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tollgauge.core.base.units import ASSETS, Asset
from tollgauge.core.lint.parsing import NATIVE_COIN, ZERO_ADDRESS, ZERO_KEY, ZERO_TON_ADDRESS
from tollgauge.core.lint.reading import AcceptsEntry
from tollgauge.core.lint.rule import error, warning

_SYMBOLS: Final = {
    address: {asset.symbol for (_, other), asset in ASSETS.items() if other == address}
    for _, address in ASSETS
}
"""The symbols under which an address is a known token on any network."""
_LISTED: Final = {
    network: {asset.symbol for (other, _), asset in ASSETS.items() if other == network}
    for network, _ in ASSETS
}
"""The symbols of the known tokens of a network."""
_NOBODY: Final = (ZERO_ADDRESS, ZERO_KEY, ZERO_TON_ADDRESS)
X402_CONTRACTS: Final = frozenset(
    {
        "0x000000000022d473030f116ddee9f6b43ac78ba3",  # Permit2
        "0x402085c248eea27d92e8b30b2c58ed07f9e20001",  # the Permit2 proxy of exact
        "0x4020a4f3b7b90cca423b9fabcc0ce57c6c240002",  # the Permit2 proxy of upto
        "0x4020074e9df2ce1dee5a9c1b5c3f541d02a10003",  # the escrow of batch-settlement
    }
)
"""Contracts that x402 settles through, on every EVM network."""


def _malformed(entry: AcceptsEntry, field: str) -> bool:
    return not (entry.account(field) if entry.shaped else entry.text(field))


def _token(entry: AcceptsEntry) -> Asset | None:
    return ASSETS.get((entry.network, entry.account("asset") or ""))


def _is_excluded(entry: AcceptsEntry) -> bool:
    """Whether the table lists the token of an address elsewhere, and another address for it here.
    One address can be a token on two networks, so an address that is only unknown here is not
    excluded.
    """
    symbols = _SYMBOLS.get(entry.account("asset") or "", set())
    return _token(entry) is None and not symbols.isdisjoint(_LISTED.get(entry.network, set()))


@error(
    "asset-form",
    "Write the asset as the token's contract address (0x and 40 hex digits on EVM networks, the"
    " mint in base58 on Solana, the jetton's master on TON), not as a ticker, a CAIP-19 id or an"
    " object.",
    expected="the token's address on this network",
    fatal=True,
)
def asset_form(entry: AcceptsEntry) -> Iterator[str]:
    """The asset is missing, no text, or no address of the network: the signature names it."""
    if _malformed(entry, "asset"):
        yield entry.at("asset")


@error(
    "payto-form",
    "Write payTo as one account of the network (0x and 40 hex digits on EVM networks, 32 bytes in"
    " base58 on Solana, a raw or a user-friendly address on TON).",
    expected="one account of this network",
    fatal=True,
)
def payto_form(entry: AcceptsEntry) -> Iterator[str]:
    """The payee is missing, no text, a placeholder, or no account of the network."""
    if _malformed(entry, "payTo"):
        yield entry.at("payTo")


@warning(
    "address-checksum",
    "Write the address with its EIP-55 checksum or all in lower case: one digit may be wrong.",
    expected="the EIP-55 checksum, or lower case",
)
def address_checksum(entry: AcceptsEntry) -> Iterator[str]:
    """Mixed case that is not the EIP-55 checksum. The official clients pay it all the same by
    `exact` and `upto`.
    """
    for field in ("asset", "payTo"):
        digits = entry.text(field)[2:]
        mixed = digits not in (digits.lower(), digits.upper())
        if entry.evm and mixed and entry.account(field) and not entry.strict_account(field):
            yield entry.at(field)


@error(
    "address-zero",
    "Write a real account in payTo and a real token in asset: the zero address is neither.",
    expected="a real account, or a real token",
    fatal=True,
)
def address_zero(entry: AcceptsEntry) -> Iterator[str]:
    """The zero address (on Solana the system program), to which tokens refuse transfers; or the
    address that stands for a chain's own coin, which is no token.
    """
    for field in ("asset", "payTo"):
        if entry.account(field) in _NOBODY:
            yield entry.at(field)
    if entry.account("asset") == NATIVE_COIN:
        yield entry.at("asset")


@error(
    "payto-asset",
    "Write your own account in payTo: this is a token or a contract of x402 itself.",
    expected="your own account",
    fatal=True,
)
def payto_asset(entry: AcceptsEntry) -> Iterator[str]:
    """The payee is the token itself (USDC refuses such a transfer), a known token, as when asset
    and payTo are mixed up, or a contract that x402 settles through.
    """
    payee = entry.account("payTo")
    if payee is None:
        return
    token = payee == entry.account("asset") or (entry.network, payee) in ASSETS
    if token or payee in X402_CONTRACTS:
        yield entry.at("payTo")


@error(
    "asset-network",
    "Write the token's address on this network: this one is a token of another network (a test"
    " network's on the main network, or the other way round).",
    expected="the token's address on this network",
)
def asset_network(entry: AcceptsEntry) -> Iterator[str]:
    """The address of a known token on another network, whose address on this network is known to be
    another one. Clients sign it, and only the chain knows what is at that address, so the entry may
    be payable.
    """
    if entry.evm and _is_excluded(entry):
        yield entry.at("asset")


@warning(
    "asset-not-default",
    "Take a token that the official clients pay without being asked, USDC on most networks: they"
    " refuse others unless their owner allows them.",
    expected="a token that the official clients pay without being asked",
)
def asset_not_default(entry: AcceptsEntry) -> Iterator[str]:
    """A token outside the official clients' table of default tokens for this network."""
    token = _token(entry)
    unknown = token is None and entry.account("asset") is not None
    if (token is not None and not token.default) or (unknown and not _is_excluded(entry)):
        yield entry.at("asset")


@error(
    "domain-missing",
    "Write the token's EIP-712 domain in extra.name and extra.version, for example"
    ' {"name": "USD Coin", "version": "2"} for USDC on Base.',
    expected="the EIP-712 domain of the token",
    fatal=True,
)
def domain_missing(entry: AcceptsEntry) -> Iterator[str]:
    """No name or version for a payment that is signed over the token's domain (EIP-3009, and the
    auth-capture scheme always); the official TypeScript client then refuses to sign. Permit2 needs
    none.
    """
    if not (entry.eip3009 or (entry.evm and entry.scheme == "auth-capture")):
        return
    yield from entry.domain_gaps()


@error(
    "domain-wrong",
    "Write the EIP-712 domain that the token itself has: USDC is"
    ' {"name": "USD Coin", "version": "2"} on Base and {"name": "USDC", "version": "2"} on Base'
    " Sepolia.",
    expected="the EIP-712 domain of the token",
    fatal=True,
)
def domain_wrong(entry: AcceptsEntry) -> Iterator[str]:
    """A known token under another name or version: every signature over it is invalid."""
    token = _token(entry) if entry.eip3009 else None
    if token is None:
        return
    for key, right in (("name", token.domain_name), ("version", token.domain_version)):
        if entry.domain.get(key, right) != right:
            yield entry.at(f"extra.{key}")


@error(
    "asset-permit2",
    'Write "assetTransferMethod": "permit2" in extra: this token takes no EIP-3009 authorization.',
    expected="the transfer method of this token",
    fatal=True,
)
def asset_permit2(entry: AcceptsEntry) -> Iterator[str]:
    """A known token without EIP-3009 that is offered without Permit2: what clients sign for it
    can never settle.
    """
    token = _token(entry) if entry.eip3009 else None
    if token is not None and not token.eip3009:
        yield entry.at("extra.assetTransferMethod")
