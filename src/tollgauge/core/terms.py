"""Terms: what an endpoint asks to be paid, in one form for x402 v1 and v2.

This module owns the type and its order of preference. Reading terms from foreign bytes is
core/lint's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainSerializer

from tollgauge.core.record import record
from tollgauge.core.units import BASE, known_asset, micro_usd

Amount = Annotated[int, PlainSerializer(str)]
"""Atomic units of an asset. A text in JSON, as many parsers cannot hold a uint256 as a number."""


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

    def quote(self) -> Quote:
        """The part of the terms whose change is reported."""
        return Quote(
            network=self.network,
            asset=self.asset.lower() if self.asset.startswith("0x") else self.asset,
            amount=self.amount,
            pay_to=self.pay_to.lower() if self.pay_to.startswith("0x") else self.pay_to,
        )


@record(frozen=True, slots=True, kw_only=True)
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


def preferred(terms: tuple[Terms, ...]) -> Quote | None:
    """The quote of an endpoint: that of its first `exact` entry on Base in a known asset, else of
    the first in a known asset, else of the first; None without terms.
    """

    def rank(entry: Terms) -> int:
        if known_asset(entry.network, entry.asset) is None:
            return 2
        return 0 if entry.scheme == "exact" and entry.network == BASE else 1

    return min(terms, key=rank).quote() if terms else None
