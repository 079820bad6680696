"""What changed between two advertised quotes of one endpoint.

Rules (docs/methodology.md, *components*):
- a price changed when its amount or its asset did; the same dollar on another network is the same
  asset, so a move from Base to Polygon alone is news about the network, not about the price;
- absence is not a price: without a quote on either side nothing changed;
- hexadecimal addresses have no case (core/terms lowers them), other addresses do.
"""

from __future__ import annotations

from tollgauge.core.terms import Quote
from tollgauge.core.units import known_asset

PRICE_CHANGED = "price-changed"
PAYTO_CHANGED = "payto-changed"
NETWORK_CHANGED = "network-changed"


def changes(before: Quote | None, after: Quote | None) -> tuple[tuple[str, str, str], ...]:
    """The changes from one quote to the next, as (kind, text before, text after), in the order
    price, payTo, network; empty when nothing changed or either side is missing.

    The text of a price is its atomic amount, followed by its asset where that changed.
    """
    if before is None or after is None:
        return ()
    found: list[tuple[str, str, str]] = []
    new_asset = not same_asset(before, after)
    if before.amount != after.amount or new_asset:
        found.append(
            (PRICE_CHANGED, _price(before, asset=new_asset), _price(after, asset=new_asset))
        )
    if before.pay_to != after.pay_to:
        found.append((PAYTO_CHANGED, before.pay_to, after.pay_to))
    if before.network != after.network:
        found.append((NETWORK_CHANGED, before.network, after.network))
    return tuple(found)


def same_asset(before: Quote, after: Quote) -> bool:
    """Whether two quotes are in the same token, or in the same known one of two networks."""
    if before.network == after.network:
        return before.asset == after.asset
    one, other = known_asset(before.network, before.asset), known_asset(after.network, after.asset)
    if one is None or other is None:
        return before.asset == after.asset
    return (one.symbol, one.decimals) == (other.symbol, other.decimals)


def _price(quote: Quote, *, asset: bool) -> str:
    return f"{quote.amount} {quote.asset}" if asset else str(quote.amount)
