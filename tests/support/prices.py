"""Paths and default prices of the products."""

from __future__ import annotations

from tollgauge.web.paid.products import all_products

PRICES = {product.path: product.price for product in all_products()}
"""Dollars by path."""
BULK = {product.tier: product.path for product in all_products() if product.tier is not None}
"""Paths of the bulk products by tier, smallest first."""
TRUST = "/v1/x402-trust"
HISTORY = "/v1/x402-history"
TRACE = "/v1/x402-payment-trace"
SIMILAR = "/v1/similar"
WATCH = "/v1/watch-endpoint-30d"
RENEW = "/v1/watch/{id}/renew"
