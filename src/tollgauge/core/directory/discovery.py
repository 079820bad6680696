"""Discovery: changes between two crawls of a directory, in an entry's terms and in number.

Rules (docs/methodology.md, *components*; docs/operating, *directories*):
- a price changed if its amount or its asset did; the same dollar on another network is the same
  asset, so a move from Base to Polygon changes only the network, not the price;
- absence is not a price: values that either side omits did not change; the payee is compared even
  without an amount;
- hexadecimal addresses are compared without case (core/endpoint/terms lowers them), others with;
- a complete crawl that lists less than half of the last complete crawl of its source is suspicious
  and delists nothing until a second one agrees;
- a crawl with entries that could not be read delists only endpoints that no crawl has seen for
  UNREAD_MS, because such an entry may list any endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tollgauge.core.base.units import DAY_MS, known_asset
from tollgauge.core.endpoint.terms import Advertised, Quote, UnpricedTerms

UNREAD_MS: Final = 7 * DAY_MS
LISTED: Final = "listed"
DELISTED: Final = "delisted"
RELISTED: Final = "relisted"
PRICE_CHANGED: Final = "price-changed"
PAYTO_CHANGED: Final = "payto-changed"
NETWORK_CHANGED: Final = "network-changed"
TERM_EVENTS: Final = (PRICE_CHANGED, PAYTO_CHANGED, NETWORK_CHANGED)
"""The kinds of changes of terms, as in the evidence of a score."""
EVENTS: Final = (LISTED, DELISTED, RELISTED, *TERM_EVENTS)
"""All changes of a listing or its terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlCount:
    """The size of a complete crawl compared with earlier ones of its source.

    Attributes:
        listed: Endpoints in this crawl.
        complete: Endpoints in the source's last complete crawl; None before the first.
        suspicious: Endpoints in the last suspicious crawl since then; None without one.
        repeated: Endpoints of the suspicious crawl that were listed again after it.
        unreadable: Entries of this crawl that could not be read.
    """

    listed: int
    complete: int | None = None
    suspicious: int | None = None
    repeated: int = 0
    unreadable: int = 0

    @property
    def shrank(self) -> bool:
        """Whether more than half of the listings are missing, by count."""
        return self.complete is not None and self.listed * 2 < self.complete

    @property
    def agrees(self) -> bool:
        """Whether this crawl confirms the suspicious one before it.

        The smaller of the two counts is at least three quarters of the larger, and at least three
        quarters of the endpoints are the same.
        """
        if self.suspicious is None:
            return False
        few, many = sorted((self.listed, self.suspicious))
        return few * 4 >= many * 3 and self.repeated * 4 >= self.suspicious * 3

    @property
    def is_suspicious(self) -> bool:
        """Whether the crawl must not delist endpoints."""
        return self.shrank and not self.agrees


def is_same_directory(one: int, other: int, shared: int, *, named_alike: bool = False) -> bool:
    """Return whether two listings look like crawls of one directory.

    They share at least half of the smaller and a tenth of the larger one. A tenth of the smaller
    one is enough if their files' names differ only in digits.
    """
    few, many = sorted((one, other))
    if named_alike and shared and shared * 10 >= few:
        return True
    return shared > 0 and shared * 2 >= few and shared * 10 >= many


def carry_terms(before: Advertised | None, after: Advertised | None) -> Advertised | None:
    """Return the terms to compare the next crawl with: those of this crawl, with missing values
    from the one before.
    """
    if before is None or not isinstance(after, UnpricedTerms):
        return after or before
    after = replace(
        after, network=after.network or before.network, asset=after.asset or before.asset
    )
    if isinstance(before, Quote) and (before.network, before.asset) == (after.network, after.asset):
        return replace(before, pay_to=after.pay_to)
    return after


def find_changes(
    before: Advertised | None, after: Advertised | None
) -> tuple[tuple[str, str, str], ...]:
    """Return the changes of terms as (kind, text before, text after), in the order price, payTo,
    network.

    Empty if nothing changed or either side is missing. The text of a price is its atomic amount,
    followed by its asset if that changed.
    """
    if before is None or after is None:
        return ()
    changed: list[tuple[str, str, str]] = []
    if isinstance(before, Quote) and isinstance(after, Quote):
        new_asset = not is_same_asset(before, after)
        if before.amount != after.amount or new_asset:
            changed.append(
                (PRICE_CHANGED, _format(before, asset=new_asset), _format(after, asset=new_asset))
            )
    if before.pay_to != after.pay_to:
        changed.append((PAYTO_CHANGED, before.pay_to, after.pay_to))
    if before.network and after.network and before.network != after.network:
        changed.append((NETWORK_CHANGED, before.network, after.network))
    return tuple(changed)


def is_same_asset(before: Quote, after: Quote) -> bool:
    """Return whether two quotes are in the same token, or in the same known token on two
    networks.
    """
    if before.network == after.network:
        return before.asset == after.asset
    one, other = known_asset(before.network, before.asset), known_asset(after.network, after.asset)
    if one is None or other is None:
        return before.asset == after.asset
    return (one.symbol, one.decimals) == (other.symbol, other.decimals)


def _format(quote: Quote, *, asset: bool) -> str:
    """Return an atomic amount, optionally with its asset."""
    return f"{quote.amount} {quote.asset}" if asset else str(quote.amount)
