"""Terms: what an endpoint asks to be paid, in one form for x402 v1 and v2, and its payTo history.

core/lint reads terms from foreign bytes.

Some sellers name another payTo in each offer. They are recognised only by how they began: the payTo
varied in the first 24 hours of observation, and no payTo has stayed for 7 days. An endpoint whose
payTo once stayed for 7 days is settled: only an announcement that this payTo signed
(core/directory/seller_file) makes it vary or moves it. Otherwise an attacker who took over an
endpoint could end the alarm about its changed payTo by changing it repeatedly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import PlainSerializer

from tollgauge.core.base.units import BASE, DAY_MS, NETWORK_NAMES, chain_of, known_asset, micro_usd

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


RECOGNISED_MS: Final = DAY_MS
"""For how long after the first payTo the endpoint can be recognised as varying."""
SETTLED_MS: Final = 7 * DAY_MS
MIN_CHANGES: Final = 2
"""Changes in the first 24 hours that show that the payTo varies: one may be a correction."""


@dataclass(frozen=True, slots=True, kw_only=False)
class PayToHistory:
    """`first_at` is when probes first saw a payTo, `since` when they first saw the present one (ms
    UTC); `changes` counts those of the first 24 hours. `settled` is the payTo that stayed for 7
    days, or to which that one announced to move.
    """

    first_at: int
    since: int
    changes: int = 0
    varies: bool = False
    settled: str | None = None

    def is_varying(self, last_seen: int | None) -> bool:
        """Whether the payTo varies; the present one was last seen at `last_seen` (ms UTC)."""
        stayed = last_seen is not None and last_seen - self.since >= SETTLED_MS
        return self.varies and not stayed

    def changed(
        self,
        before: str,
        after: str,
        *,
        at: int,
        last_seen: int,
        move_announced: bool,
        variation_announced: bool,
    ) -> PayToHistory:
        """Return the history after a change that a probe saw at an instant (ms UTC).

        `last_seen` is when `before` was last seen. `before` may have announced to move to `after`,
        or to name another payTo in each offer.
        """
        settled = self.settled
        if settled is None and last_seen - self.since >= SETTLED_MS:
            settled = before
        changed = replace(self, since=at, varies=self.varies and settled is None, settled=settled)
        if settled is None:
            return _recognise(changed, at=at)
        if settled == before and variation_announced:
            return replace(changed, varies=True, settled=None)
        if settled == before and move_announced:
            return replace(changed, settled=after)
        return changed


def _recognise(history: PayToHistory, *, at: int) -> PayToHistory:
    """Count a change of the first 24 hours."""
    if at > history.first_at + RECOGNISED_MS:
        return history
    changes = history.changes + 1
    return replace(history, changes=changes, varies=history.varies or changes >= MIN_CHANGES)
