"""The `sale` section of the configuration: the receiving address, and prices that differ from the
defaults. The default price of a product is in its module (web/paid/products).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from tollgauge.core.base.units import EVM_ADDRESS_PATTERN, known_asset, parse_dollars


def _pay_to(address: str) -> str:
    if address and not EVM_ADDRESS_PATTERN.fullmatch(address):
        raise ValueError("must be an address: 0x and 40 hex digits")
    return address


def _prices(prices: Mapping[str, str]) -> Mapping[str, str]:
    if not prices:
        return prices
    # Imported here because it loads half of all modules, which most commands do not need.
    from tollgauge.web.paid.products import all_products

    paid = {product.path for product in all_products()}
    for path, text in prices.items():
        if path not in paid:
            raise ValueError(f"{path} is not a paid route")
        parse_dollars(text)
    return prices


@dataclass(frozen=True, slots=True, kw_only=True)
class SaleSettings:
    """Where money goes and what things cost. A route that `prices` leaves out keeps its default."""

    pay_to: Annotated[str, AfterValidator(_pay_to)] = ""
    """Address that receives payments. Nothing is sold while it is empty."""
    network: str = "eip155:8453"
    """CAIP-2 identifier, such as eip155:8453 for Base."""
    asset: str = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
    """Contract of native USDC on the network."""
    timeout_seconds: int = 300
    """Validity that a buyer's authorization should have."""
    contact: str = ""
    """E-mail address or URL for buyers' questions about payments."""
    prices: Annotated[
        Mapping[str, str],
        AfterValidator(_prices),
        Field(examples=[{"/v1/x402-trust": "0.005000"}]),
    ] = field(default_factory=dict)
    """Prices in dollars by route that replace the defaults."""

    def __post_init__(self) -> None:
        token = known_asset(self.network, self.asset)
        if token is None or token.symbol != "USDC" or not token.eip3009:
            raise ValueError("asset is not native USDC of network")
