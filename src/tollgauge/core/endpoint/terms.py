"""Terms: what an endpoint asks to be paid, in one form for x402 v1 and v2.

This module owns the type and its order of preference. Reading terms from foreign bytes is
core/lint's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import PlainSerializer

from tollgauge.core.base.units import BASE, NETWORK_NAMES, chain_of, known_asset, micro_usd

Amount = Annotated[int, PlainSerializer(str)]
"""Atomic units of an asset. A text in JSON, as many parsers cannot hold a uint256 as a number."""

EIP3009: Final = "eip3009"
"""The form of payment whose settlements are read on chain: an EIP-3009 authorization."""
MAX_FORMS: Final = 8
_GATEWAY_DOMAIN: Final = "GatewayWalletBatched"
_OTHER: Final = "other"
_FORM_NAMES: Final = {
    EIP3009: "EIP-3009",
    "permit2": "Permit2",
    "erc7710": "ERC-7710",
    "gateway": "Circle Gateway",
    "other-token": "another token",
    "exact": "exact",
    "upto": "upto",
    "batch-settlement": "batch-settlement",
    "auth-capture": "auth-capture",
    _OTHER: "another scheme",
}
"""The forms of payment, as people read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """One `accepts` entry that could be read.

    `network` is CAIP-2 where the text could be translated, else as written. `amount` is in
    atomic units of `asset`. `pay_to` and `asset` keep the case they came in.
    """

    version: int
    scheme: str
    network: str
    asset: str
    amount: int
    pay_to: str
    timeout_seconds: int | None = None
    domain_name: str | None = None
    domain_version: str | None = None
    transfer_method: str | None = None

    @property
    def form(self) -> str:
        """The network and the form of the payment, separated by a space: `eip155:8453 upto`."""
        network = self.network if " " not in self.network else _OTHER
        name = self.scheme if self.scheme in _FORM_NAMES else _OTHER
        if name == "exact" and chain_of(network) is not None:
            name = self._exact_form()
        return f"{network} {name}"

    def _exact_form(self) -> str:
        """How an EVM `exact` entry moves the money; clients take a method that they do not know for
        EIP-3009.
        """
        if self.domain_name == _GATEWAY_DOMAIN:
            return "gateway"
        if self.version == 2 and self.transfer_method in ("permit2", "erc7710"):
            return self.transfer_method
        asset = known_asset(self.network, self.asset)
        return EIP3009 if asset is not None and asset.eip3009 else "other-token"

    def quote(self) -> Quote:
        """The part of the terms whose change is reported."""
        return Quote(
            network=self.network,
            asset=self.asset.lower() if self.asset.startswith("0x") else self.asset,
            amount=self.amount,
            pay_to=self.pay_to.lower() if self.pay_to.startswith("0x") else self.pay_to,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """An advertised price: how much of what, on which network, to whom. Hex is lower case."""

    network: str
    asset: str
    amount: Amount
    pay_to: str

    @property
    def decimals(self) -> int | None:
        """Decimals of a known asset, else None: an unknown token is never priced as dollars."""
        asset = known_asset(self.network, self.asset)
        return asset.decimals if asset else None

    @property
    def symbol(self) -> str | None:
        """The symbol of a known asset, else None."""
        asset = known_asset(self.network, self.asset)
        return asset.symbol if asset else None

    @property
    def micro_usd(self) -> int | None:
        """The price in millionths of a dollar when the asset is a known dollar, rounded half
        up, else None.
        """
        decimals = self.decimals
        return None if decimals is None else micro_usd(self.amount, decimals)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedTerms:
    """Terms of a directory's entry that names a receiver and no amount that could be read.

    `network` is CAIP-2 where the text could be translated; `network` and `asset` are empty where
    the entry does not name them. Hex is lower case.
    """

    network: str
    asset: str
    pay_to: str


Advertised = Quote | UnpricedTerms
"""What a directory's entry asks for."""


def forms_of(terms: tuple[Terms, ...]) -> tuple[str, ...]:
    """The distinct forms of payment of some terms, sorted, at most MAX_FORMS."""
    return tuple(sorted({entry.form for entry in terms})[:MAX_FORMS])


def form_text(form: str) -> str:
    """A form of payment as people read it: `upto on Base`."""
    network, _, name = form.rpartition(" ")
    known = NETWORK_NAMES.get(network, "").replace("-", " ").title()
    chain = chain_of(network)
    place = known or ("another network" if chain is None else f"chain {chain}")
    return f"{_FORM_NAMES.get(name, _FORM_NAMES[_OTHER])} on {place}"


def preferred(terms: tuple[Terms, ...]) -> Quote | None:
    """The quote of an endpoint: that of its first `exact` entry on Base in a known asset, else of
    the first in a known asset, else of the first; None without terms.
    """

    def rank(entry: Terms) -> int:
        if known_asset(entry.network, entry.asset) is None:
            return 2
        return 0 if entry.scheme == "exact" and entry.network == BASE else 1

    return min(terms, key=rank).quote() if terms else None
