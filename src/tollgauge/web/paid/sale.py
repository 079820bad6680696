"""A sale as the gate carries it out, the claim under which its answer is made, and the settings of
sales.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ParamSpec, Protocol, TypeVar

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from sqlalchemy import Connection

from tollgauge.core.base.units import EVM_ADDRESS_PATTERN, known_asset, parse_dollars
from tollgauge.core.sale.payment import Offer
from tollgauge.db.engine import Store, Work
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.payments import LedgerRow

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """A claimed payment: the only way in which a sale writes outside the ledger.

    `row` is the payment as it was claimed, `store` the store that the sale may write to, and `seen`
    the result of the sale's `check`. Functions that a product appends to `with_answer` run in the
    transaction that stores the answer, or not at all.
    """

    store: Store
    row: LedgerRow
    seen: object = None
    with_answer: list[Callable[[Connection], object]] = field(default_factory=list)

    @property
    def payment_id(self) -> str:
        """The ID of the payment in the ledger."""
        return self.row.id

    async def writing(self, work: Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function in its own writing transaction. Raises payments.ClaimLost, with nothing
        written, if another worker has taken the payment over.
        """

        def check_and_work(tx: Connection) -> R:
            # A worker that was suspended for longer than its lease does not notice that another
            # worker has sold the same payment (docs/payments.md).
            payments.check_claim(tx, self.row)
            return work(tx, *args, **kwargs)

        return await self.store.writing(check_and_work)


class Reveal(Protocol):
    """Turns a stored answer that contains a secret into the one that is sent."""

    def __call__(self, body: bytes, /, *, secret: bool) -> Awaitable[bytes]:
        """Return the answer's JSON bytes, with the secret only if `secret` is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """A request to a paid route, ready for the gate.

    Attributes:
        bazaar: The x402 extension of that name, which describes input and output to directories.
        validate: Turns the parsed body into the route's order, or raises Problem 422.
        compute: Makes the whole answer's JSON bytes under the payment's claim, or raises Problem.
        bodyless: Whether a request without a body is read as an empty object.
        reveal: Needed only for answers that contain a secret.
        hosts: The hosts that an order makes the service connect to.
        check: Runs in the transaction of the claim. It raises Problem for an order that cannot be
            served now; its result is `HeldClaim.seen`.
        headers: Additional headers of the answer to a settled payment.
    """

    offer: Offer
    description: str
    validate: Callable[[object], object]
    compute: Callable[[object, HeldClaim], Awaitable[bytes]]
    bazaar: dict[str, Any] = field(default_factory=dict)
    bodyless: bool = False
    reveal: Reveal | None = None
    hosts: Callable[[Any], tuple[str, ...]] = lambda _order: ()
    check: Callable[[Connection, Any], object] = lambda _tx, _order: None
    headers: Callable[[LedgerRow], Mapping[str, str]] = lambda _row: {}


def _pay_to(address: str) -> str:
    if address and not EVM_ADDRESS_PATTERN.fullmatch(address):
        raise ValueError("must be an address: 0x and 40 hex digits")
    return address


def _prices(prices: Mapping[str, str]) -> Mapping[str, str]:
    for text in prices.values():
        parse_dollars(text)
    return prices


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
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
