"""Everything that is sold, one file each; `watching` is what the routes of watches share."""

from __future__ import annotations

from tollgauge.web.paid.catalogue import Product, Shop
from tollgauge.web.paid.products import history, renewal, similar, trace, trust, watch


def products(shop: Shop) -> tuple[Product, ...]:
    """Every paid route, in the order in which it is documented."""
    return (
        trust.product(shop),
        history.product(shop),
        trace.product(shop),
        similar.product(shop),
        watch.product(shop),
        renewal.product(shop),
    )
