"""Endpoints as lists and the similarity index read them."""

from __future__ import annotations

from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lists.rated_endpoint import RatedEndpoint

USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"


def quote(
    price: int | None, pay_to: str | None = None, network: str = "eip155:8453"
) -> Quote | None:
    """An offer of a price in millionths of a dollar; None for one in another token."""
    if price is None and pay_to is None:
        return None
    asset = "0x01" if price is None else USDC
    return Quote(network=network, asset=asset, amount=price or 0, pay_to=pay_to or "")


def rated(
    name: str,
    *,
    host: str | None = None,
    price: int | None = None,
    pay_to: str | None = None,
    **values: object,
) -> RatedEndpoint:
    known = {"first_seen": 0, "resource": f"https://{name}.example/", **values}
    return RatedEndpoint(
        id=name,
        host=host or f"{name}.example",
        quote=quote(price, pay_to),
        **known,  # type: ignore[arg-type]
    )
