"""Everything that is sold, one file each."""

from __future__ import annotations

from tollgauge.web.paid.catalogue import PaidDependencies, Product
from tollgauge.web.paid.products import bulk, history, renewal, similar, trace, trust, watch


def products(dependencies: PaidDependencies) -> tuple[Product, ...]:
    """Every paid route, in the order in which it is documented."""
    return (
        trust.product(dependencies),
        *bulk.products(dependencies),
        history.product(dependencies),
        trace.product(dependencies),
        similar.product(dependencies),
        watch.product(dependencies),
        renewal.product(dependencies),
    )
