"""Payment terms of an endpoint, in one form for x402 v1 and v2, and its payTo history.

core/lint parses terms.

Some sellers name another payTo in each offer. They are recognised only in the first 24 hours of
observation: the payTo varied then, and no payTo has stayed for 7 days. An endpoint whose payTo once
stayed for 7 days is settled: only an announcement that this payTo signed
(core/directory/seller_file) makes it vary or moves it. Otherwise an attacker who took over an
endpoint could end the alarm about its changed payTo by changing it repeatedly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from pydantic import Field, PlainSerializer, WithJsonSchema

from tollgauge.core.base.units import (
    AMOUNT_PATTERN,
    BASE,
    DAY_MS,
    NETWORK_NAMES,
    canonical_address,
    chain_number,
    chain_of,
    is_address,
    is_solana_key,
    known_asset,
    micro_usd,
    settlement_token,
)

Text = Annotated[str, Field(max_length=4_096)]
Amount = Annotated[
    int,
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": f"^{AMOUNT_PATTERN.pattern}$"}),
]
"""Atomic units of an asset; a string in JSON, because many parsers cannot represent a uint256 as a
number.
"""

EIP3009: Final = "eip3009"
PERMIT2: Final = "permit2"
UPTO: Final = "upto"
BATCH_SETTLEMENT: Final = "batch-settlement"
AUTH_CAPTURE: Final = "auth-capture"
MAX_FORMS: Final = 8
MAX_EXTENSIONS: Final = 16
_EXTENSION: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}", re.ASCII)
MAX_OFFERS: Final = 16  # of an envelope, that are stored
MAX_ENDED_OFFERS: Final = 24
OFFERS_MS: Final = 30 * DAY_MS
"""Period for which an offer stays known after the last envelope with it."""
GATEWAY_DOMAIN: Final = "GatewayWalletBatched"  # EIP-712, npm @circle-fin/x402-batching 3.3

# History of a payTo
RECOGNISED_MS: Final = DAY_MS
"""Period after the first payTo in which the endpoint can be recognised as varying."""
SETTLED_MS: Final = 7 * DAY_MS
MIN_CHANGES: Final = 2
"""Changes in the first 24 hours that prove a varying payTo: a single one may be a correction."""


class FormReading(StrEnum):
    """Whether the settlements of a form of payment on a network are read.

    The reader of an experimental form was tested with stand-ins of its contracts only: the payments
    that it finds count, but finding none proves nothing.
    """

    READ = "read"
    EXPERIMENTAL = "experimental"
    NOT_READ = "not-read"


READ_FORMS: Final = {
    EIP3009: FormReading.READ,
    PERMIT2: FormReading.EXPERIMENTAL,
    UPTO: FormReading.EXPERIMENTAL,
    BATCH_SETTLEMENT: FormReading.EXPERIMENTAL,
    AUTH_CAPTURE: FormReading.EXPERIMENTAL,
    "exact": FormReading.READ,
}
"""The forms that are read on an indexed network (`exact`: on Solana); all others are not read."""
EVM_FORMS: Final = frozenset({BATCH_SETTLEMENT, AUTH_CAPTURE})
"""Forms that are read on EVM networks only."""
_OTHER: Final = "other"
_FORM_NAMES: Final = {  # labels
    EIP3009: "EIP-3009",
    PERMIT2: "Permit2",
    "erc7710": "ERC-7710",
    "gateway": "Circle Gateway",
    "other-token": "another token",
    "exact": "exact",
    UPTO: "upto",
    "upto-other-token": "upto in another token",
    BATCH_SETTLEMENT: "batch-settlement",
    "batch-settlement-other-token": "batch-settlement in another token",
    AUTH_CAPTURE: "auth-capture",
    "auth-capture-other-token": "auth-capture in another token",
    _OTHER: "another scheme",
}
_SCHEMES: Final = frozenset({"exact", UPTO, BATCH_SETTLEMENT, AUTH_CAPTURE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """One readable `accepts` entry.

    `network` is CAIP-2 if the name is known, otherwise as written. `amount` is in atomic units of
    `asset`. `pay_to` and `asset` keep their case.
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
    fee_payer: str | None = None

    @property
    def form(self) -> str:
        """The network and the form of the payment, separated by a space: `eip155:8453 upto`."""
        network = self.network if " " not in self.network else _OTHER
        name = self.scheme if self.scheme in _FORM_NAMES else _OTHER
        if name == "exact" and chain_of(network) is not None:
            name = self._exact_form()
        elif name == "exact" and chain_number(network) is not None and not self._is_read_token:
            name = "other-token"
        if name in (UPTO, BATCH_SETTLEMENT, AUTH_CAPTURE) and not self._is_read_token:
            name += "-other-token"
        return f"{network} {name}"

    @property
    def _is_read_token(self) -> bool:
        """Whether the token is the one whose transfers are read on its network."""
        token = settlement_token(self.network)
        return token is not None and token.address == self.quote().asset

    def _exact_form(self) -> str:
        """Return the transfer method of an EVM `exact` entry; clients treat an unknown method as
        EIP-3009.
        """
        if self.domain_name == GATEWAY_DOMAIN:
            return "gateway"
        if self.version == 2 and self.transfer_method == "erc7710":
            return self.transfer_method
        if not self._is_read_token:
            return "other-token"
        return PERMIT2 if self.version == 2 and self.transfer_method == PERMIT2 else EIP3009

    def quote(self) -> Quote:
        """Return the part of the terms whose changes are reported."""
        return Quote(
            network=self.network,
            asset=canonical_address(self.asset),
            amount=self.amount,
            pay_to=canonical_address(self.pay_to),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """An advertised price: amount, asset, network and payee. Hex is lower case."""

    network: Text
    """CAIP-2 network, or as written if it could not be translated"""
    asset: Text
    """Token address"""
    amount: Amount
    """Atomic units of the asset"""
    pay_to: Text
    """Receiving address"""

    @property
    def decimals(self) -> int | None:
        """Decimals of a known asset; None otherwise, because an unknown token is never priced in
        dollars.
        """
        asset = known_asset(self.network, self.asset)
        return asset.decimals if asset else None

    @property
    def symbol(self) -> str | None:
        """The symbol of a known asset, or None."""
        asset = known_asset(self.network, self.asset)
        return asset.symbol if asset else None

    @property
    def micro_usd(self) -> int | None:
        """The price in millionths of a dollar, rounded half up, if the asset is a known dollar
        token.
        """
        decimals = self.decimals
        return None if decimals is None else micro_usd(self.amount, decimals)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedTerms:
    """Terms of a directory's entry with a payee but without a readable amount.

    `network` is CAIP-2 if the name is known; `network` and `asset` are empty if the entry lacks
    them. Hex is lower case.
    """

    network: str
    asset: str
    pay_to: str


Advertised = Quote | UnpricedTerms
"""The terms of a directory's entry."""


def forms_of(terms: tuple[Terms, ...]) -> tuple[str, ...]:
    """Return the distinct forms of payment of some terms, sorted, at most MAX_FORMS."""
    return tuple(sorted({entry.form for entry in terms})[:MAX_FORMS])


class KnownOffer(msgspec.Struct, frozen=True, array_like=True):
    """An offer of an endpoint's envelopes.

    `amount` is in micro-dollars, None in an asset that is not a known dollar token. `until` is the
    time (ms UTC) of the first probe without the offer, None while the latest envelope contains it.
    `fee_payer` and `app_code` (the builder code of the seller's app) are the latest ones named;
    they are not part of the offer's identity, because facilitators rotate theirs.
    """

    network: str
    scheme: str
    pay_to: str
    amount: int | None
    until: int | None = None
    fee_payer: str = ""
    app_code: str = ""

    @property
    def identity(self) -> KnownOffer:
        """The offer without `until`, `fee_payer` and `app_code`."""
        return msgspec.structs.replace(self, until=None, fee_payer="", app_code="")


def list_offers(terms: Iterable[Terms], app_code: str = "") -> tuple[KnownOffer, ...]:
    """Return the distinct offers of an envelope in its order, at most MAX_OFFERS, with the builder
    code that its extensions name.
    """
    offers: dict[KnownOffer, KnownOffer] = {}
    for entry in terms:
        quote = entry.quote()
        offer = KnownOffer(entry.network, entry.scheme, quote.pay_to, quote.micro_usd)
        is_solana = (chain_number(entry.network) or 0) < 0
        payer = (entry.fee_payer or "") if is_solana else ""
        whole = msgspec.structs.replace(offer, fee_payer=payer, app_code=app_code)
        offers.setdefault(offer, whole)
        if len(offers) == MAX_OFFERS:
            break
    return tuple(offers.values())


def update_offers(
    known: Iterable[KnownOffer], offered: tuple[KnownOffer, ...], *, at: int
) -> tuple[KnownOffer, ...]:
    """Return the offers after an envelope with `offered` at `at` (ms UTC), the latest first.

    Offers that it no longer contains end at `at`. Ended offers are kept for OFFERS_MS, at most
    MAX_ENDED_OFFERS of them.
    """
    now = {offer.identity for offer in offered}
    ended = [
        offer if offer.until is not None else msgspec.structs.replace(offer, until=at)
        for offer in known
        if offer.identity not in now
    ]
    kept = [offer for offer in ended if offer.until is None or offer.until > at - OFFERS_MS]
    return (*offered, *kept[:MAX_ENDED_OFFERS])


def indexable_addresses(offers: Iterable[KnownOffer]) -> dict[tuple[str, str], str]:
    """Return the networks and payTo addresses of the latest envelope's offers whose settlements can
    be indexed, with the fee payer; nothing for a single address without one.
    """
    pairs: dict[tuple[str, str], str] = {}
    for one in offers:
        chain = chain_number(one.network)
        if one.until is None and chain is not None and is_address(one.pay_to, chain=chain):
            payer = one.fee_payer if chain < 0 and is_solana_key(one.fee_payer) else ""
            key = (one.network, one.pay_to)
            pairs[key] = pairs.get(key) or payer
    return pairs if len(pairs) > 1 or any(pairs.values()) else {}


def extension_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the well-formed names of extensions, sorted, at most MAX_EXTENSIONS."""
    return tuple(sorted(filter(_EXTENSION.fullmatch, names))[:MAX_EXTENSIONS])


def usual_form(network: str) -> str:
    """Return the form of payment of an endpoint without an envelope on this network (CAIP-2)."""
    network = network if " " not in network else _OTHER
    return f"{network} {'exact' if chain_of(network) is None else EIP3009}"


def scheme_of(form: str) -> str:
    """Return the x402 scheme of a form of payment: `exact` for each of its transfer methods."""
    name = form.rpartition(" ")[2].removesuffix("-other-token")
    return name if name in _SCHEMES else _OTHER if name == _OTHER else "exact"


def form_text(form: str) -> str:
    """Return the label of a form of payment: `upto on Base`."""
    network, _, name = form.rpartition(" ")
    known = NETWORK_NAMES.get(network, "").replace("-", " ").title()
    chain = chain_of(network)
    place = known or ("another network" if chain is None else f"chain {chain}")
    return f"{_FORM_NAMES.get(name, _FORM_NAMES[_OTHER])} on {place}"


def select_terms(terms: tuple[Terms, ...]) -> Terms | None:
    """Return the terms that an endpoint is quoted with; None without terms.

    They are the first `exact` entry on Base in a known asset, otherwise the first in a known asset,
    otherwise the first.
    """

    def rank(entry: Terms) -> int:
        if known_asset(entry.network, entry.asset) is None:
            return 2
        return 0 if entry.scheme == "exact" and entry.network == BASE else 1

    return min(terms, key=rank, default=None)


@dataclass(frozen=True, slots=True)
class PayToHistory:
    """The history of an endpoint's payTo, as seen by probes. Times are milliseconds UTC.

    Attributes:
        first_at: When the first payTo was seen.
        since: When the present payTo was first seen.
        changes: Changes in the first 24 hours.
        settled: The payTo that stayed for 7 days, or to which that one announced to move.
    """

    first_at: int
    since: int
    changes: int = 0
    varies: bool = False
    settled: str | None = None

    def is_varying(self, last_seen: int | None) -> bool:
        """Return whether the payTo varies; the present one was last seen at `last_seen` (ms
        UTC).
        """
        stayed = last_seen is not None and last_seen - self.since >= SETTLED_MS
        return self.varies and not stayed

    def add_change(
        self,
        before: str,
        after: str,
        *,
        at: int,
        last_seen: int,
        move_announced: bool,
        variation_announced: bool,
    ) -> PayToHistory:
        """Return the history after a change that a probe saw at `at` (ms UTC).

        `before` was last seen at `last_seen`. It may have announced to move to `after`, or to name
        another payTo in each offer.
        """
        settled = self.settled
        if settled is None and last_seen - self.since >= SETTLED_MS:
            settled = before
        if settled is not None:
            changed = replace(self, since=at, varies=False, settled=settled)
            if settled == before and variation_announced:
                return replace(changed, varies=True, settled=None)
            if settled == before and move_announced:
                return replace(changed, settled=after)
            return changed
        early = at <= self.first_at + RECOGNISED_MS
        changes = self.changes + early
        varies = self.varies or (early and changes >= MIN_CHANGES)
        return replace(self, since=at, changes=changes, varies=varies)
