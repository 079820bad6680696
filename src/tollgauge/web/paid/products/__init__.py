"""The products, one module each with a tuple `PRODUCTS`. A new module is found by its place."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from tollgauge.web.paid.product import Product


@cache
def all_products() -> tuple[Product, ...]:
    """Return every product, in the order in which they are documented."""
    modules = [
        import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
    ]
    products = [product for module in modules for product in module.PRODUCTS]
    return tuple(sorted(products, key=lambda product: product.position))
