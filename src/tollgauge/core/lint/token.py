"""Rules about the token and the payee of one entry of `accepts`.

Formats are checked for known schemes on EVM networks (EIP-55, EIP-712, EIP-3009), Solana and TON;
core/base/units lists the known tokens. Facts that only the chain knows, such as the existence of
the payee, are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tollgauge.core.base.units import ASSETS, SDK, Asset
from tollgauge.core.lint.accepts import AcceptsEntry
from tollgauge.core.lint.accounts import (
    NATIVE_COIN,
    ZERO_ADDRESS,
    ZERO_KEY,
    ZERO_TON_ADDRESS,
    lacks_checksum,
)
from tollgauge.core.lint.rule import error, warning
from tollgauge.core.probe.exchange import OfficialClient

_SYMBOLS: Final = {
    address: {asset.symbol for (_, other), asset in ASSETS.items() if other == address}
    for _, address in ASSETS
}
"""The symbols under which an address is a known token on any network."""
_LISTED: Final = {
    network: {asset.symbol for (other, _), asset in ASSETS.items() if other == network}
    for network, _ in ASSETS
}
"""The symbols of the known tokens, by network."""
_NOBODY: Final = (ZERO_ADDRESS, ZERO_KEY, ZERO_TON_ADDRESS)


def _is_malformed(entry: AcceptsEntry, field: str) -> bool:
    return not (entry.account(field) if entry.formats_apply else entry.text(field))


def _find_token(entry: AcceptsEntry) -> Asset | None:
    return ASSETS.get((entry.network, entry.account("asset") or ""))


def _is_excluded(entry: AcceptsEntry) -> bool:
    """Return whether this address is a known token on another network, and the token has another
    address here.

    One address can be a token on two networks, so an unknown address is not excluded.
    """
    symbols = _SYMBOLS.get(entry.account("asset") or "", set())
    return _find_token(entry) is None and not symbols.isdisjoint(_LISTED.get(entry.network, set()))


@error("asset")
def asset_form(entry: AcceptsEntry) -> bool:
    """The asset is missing, is not a string, or is not an address on the network. The signature
    contains it.
    """
    return _is_malformed(entry, "asset")


@error("payTo")
def payto_form(entry: AcceptsEntry) -> bool:
    """The payee is missing, is not a string, a placeholder, or not an account of the network."""
    return _is_malformed(entry, "payTo")


@warning()
def address_checksum(entry: AcceptsEntry) -> Iterator[str]:
    """Mixed case that does not match the EIP-55 checksum. The official clients pay it anyway with
    `exact` and `upto`.
    """
    for field in ("asset", "payTo"):
        digits = entry.text(field)[2:]
        mixed = digits not in (digits.lower(), digits.upper())
        if entry.evm and mixed and lacks_checksum(entry.fields.get(field)):
            yield entry.at(field)


@error()
def address_zero(entry: AcceptsEntry) -> Iterator[str]:
    """The zero address (on Solana the system program), to which tokens refuse transfers, or the
    placeholder for a chain's native coin, which is not a token.
    """
    for field in ("asset", "payTo"):
        if entry.account(field) in _NOBODY:
            yield entry.at(field)
    if entry.account("asset") == NATIVE_COIN:
        yield entry.at("asset")


@error("payTo")
def payto_asset(entry: AcceptsEntry) -> bool:
    """The payee is the token itself (USDC refuses such a transfer), a known token, as when asset
    and payTo are swapped, or a contract that x402 settles through.
    """
    payee = entry.account("payTo")
    if payee is None:
        return False
    token = payee == entry.account("asset") or (entry.network, payee) in ASSETS
    return token or payee in SDK.contracts


@error("asset", stops=())
def asset_network(entry: AcceptsEntry) -> bool:
    """The address of a token on another network, while the token is known to have another address
    here. Clients sign it, and only the chain knows what is at that address, so the entry may be
    payable.
    """
    return entry.evm and _is_excluded(entry)


@warning("asset")
def asset_not_default(entry: AcceptsEntry) -> bool:
    """A token that is not in the official clients' table of default tokens for this network."""
    token = _find_token(entry)
    unknown = token is None and entry.account("asset") is not None
    return (token is not None and not token.default) or (unknown and not _is_excluded(entry))


@error(stops={OfficialClient.TYPESCRIPT, OfficialClient.CIRCLE})
def domain_missing(entry: AcceptsEntry) -> Iterator[str]:
    """The name or the version is missing in a payment that is signed over the token's domain
    (EIP-3009, and every auth-capture payment). The official TypeScript client refuses to sign. The
    Python client signs `exact` without a name if the token is one that it pays by default. Permit2
    does not need a domain.
    """
    if not (entry.eip3009 or (entry.evm and entry.scheme == "auth-capture")):
        return
    yield from entry.domain_gaps()


@error()
def domain_wrong(entry: AcceptsEntry) -> Iterator[str]:
    """A known token with another name or version: every signature over it is invalid."""
    token = _find_token(entry) if entry.eip3009 else None
    if token is None:
        return
    for key, right in (("name", token.domain_name), ("version", token.domain_version)):
        if entry.domain.get(key, right) != right:
            yield entry.at(f"extra.{key}")


@error("extra.assetTransferMethod")
def asset_permit2(entry: AcceptsEntry) -> bool:
    """A known token without EIP-3009 that is offered without Permit2: the payments that clients
    sign cannot settle.
    """
    token = _find_token(entry) if entry.eip3009 else None
    return token is not None and not token.eip3009
