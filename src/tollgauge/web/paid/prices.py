"""What is sold at which route, what it costs, and where the money goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal, InvalidOperation
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from tollgauge.core.base.units import EVM_ADDRESS_PATTERN, known_asset

TRUST: Final = "/v1/x402-trust"
HISTORY: Final = "/v1/x402-history"
TRACE: Final = "/v1/x402-payment-trace"
SIMILAR: Final = "/v1/similar"
WATCH: Final = "/v1/watch-endpoint-30d"
RENEW: Final = "/v1/watch/{id}/renew"
BULK: Final[Mapping[int, str]] = {
    tier: f"/v1/x402-trust-bulk-{tier}" for tier in (10, 50, 100, 200, 500)
}
"""Routes of bulk scores by how many resources they take at most, smallest first."""
PRICES: Final[Mapping[str, str]] = {
    TRUST: "0.005000",
    BULK[10]: "0.045000",
    BULK[50]: "0.200000",
    BULK[100]: "0.325000",
    BULK[200]: "0.400000",
    BULK[500]: "0.500000",
    HISTORY: "0.020000",
    TRACE: "0.011673",
    SIMILAR: "0.005000",
    WATCH: "0.200000",
    RENEW: "0.200000",
}
"""Default prices in dollars by route."""


def micro_usd(text: str) -> int:
    """Millionths of a dollar of a price's text. Raises ValueError."""
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not an amount in dollars") from error
    scaled = value * 10**6
    if not value.is_finite() or scaled != scaled.to_integral_value() or scaled <= 0:
        raise ValueError(f"{text!r} is not a positive amount with at most six decimals")
    return int(scaled)


def _pay_to(address: str) -> str:
    if address and not EVM_ADDRESS_PATTERN.fullmatch(address):
        raise ValueError("must be an address: 0x and 40 hex digits")
    return address


def _prices(prices: Mapping[str, str]) -> Mapping[str, str]:
    for route, text in prices.items():
        if route not in PRICES:
            raise ValueError(f"{route} is not a paid route")
        micro_usd(text)
    return prices


@dataclass(frozen=True, slots=True, kw_only=True)
class SaleSettings:
    """Where money goes and what things cost. A route that `prices` leaves out keeps its default."""

    pay_to: Annotated[str, AfterValidator(_pay_to)] = ""
    """The address that receives; while it is empty nothing is sold."""
    network: str = "eip155:8453"
    """CAIP-2, such as eip155:8453 for Base."""
    asset: str = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
    """Native USDC of the network."""
    timeout_seconds: int = 300
    """How long a buyer's authorization should hold."""
    contact: str = ""
    """Where buyers ask about a payment: an e-mail address or a URL."""
    prices: Annotated[
        Mapping[str, str],
        AfterValidator(_prices),
        Field(examples=[{"/v1/x402-trust": "0.005000"}]),
    ] = field(default_factory=dict)
    """Dollars by route, where they differ from the defaults."""

    def __post_init__(self) -> None:
        token = known_asset(self.network, self.asset)
        if token is None or token.symbol != "USDC" or not token.eip3009:
            raise ValueError("asset is not native USDC of network")

    def price(self, route: str) -> str:
        """A route's price in dollars, as text with six decimals."""
        amount = self.micro_usd(route)
        return f"{amount // 10**6}.{amount % 10**6:06d}"

    def micro_usd(self, route: str) -> int:
        """A route's price in millionths of a dollar."""
        return micro_usd(self.prices.get(route, PRICES[route]))
